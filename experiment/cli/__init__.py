"""The command lines: `python -m experiment`, and a search as a job of spark-submit."""

from experiment.neighbours import check_neighbours

check_neighbours()
