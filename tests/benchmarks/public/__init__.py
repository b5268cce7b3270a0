"""The quality of searches on public problems, ours beside others': `make bench-public`.

Nothing is ever tuned on these problems: they are run once per release, with the seeds 0 to 19.

`make bench-public` installs the problems and most methods. Two need `pip install smac` and `pip
install HEBO`; HEBO 0.3.6 asks for numpy below 1.25, so it needs an environment of its own, in which
NGOpt runs, too: with numpy 2.4 that of Nevergrad 1.0.12 fails for 300 trials of real numbers. Parts
may be run in several environments, and their printed lines joined by `--add`. A method whose
package is missing has a row that says so. Optuna's AutoSampler is downloaded from GitHub when it is
first used.
"""
