"""Searches by each algorithm, with several objectives, spaces with conditions."""
