"""`experiment.doctor`: problems that would make a search on a cluster fail."""
