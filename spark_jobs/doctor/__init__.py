"""Checks that executors run on themselves."""
