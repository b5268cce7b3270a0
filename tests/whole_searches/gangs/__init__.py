"""Trials of several workers, with each framework and strategy."""
