"""Ours beside other libraries that run trials in parallel, in one run: `make bench-peers`.

Each library is a *peer* with an environment and a program of its own. A *run* is one task of one
peer in one round; a round runs each task of each peer once, so that what changes on the machine
meets all of them. `roster.py` lists the peers, `tasks.py` the tasks.

Modules that peers' processes import, `program.py`, `trials.py`, `stopwatch.py` and `programs/`,
need psutil and the peer, and nothing of this project except `programs/ours.py`.

To pin newer versions of a peer, install what the first line of `requirements/NAME.txt` says into a
new environment, and replace the lines below by what `pip freeze` prints there.
"""
