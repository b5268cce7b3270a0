"""Searches in the background, and calls as futures."""
