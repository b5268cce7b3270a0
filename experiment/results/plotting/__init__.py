"""Plots of results, by matplotlib."""
