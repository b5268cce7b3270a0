"""`experiment.doctor`: what would make a search on this cluster fail."""
