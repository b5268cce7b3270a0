"""Data for train functions."""
