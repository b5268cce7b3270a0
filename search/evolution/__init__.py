"""Algorithms that keep a population."""
