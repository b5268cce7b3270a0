"""The driver of a running search."""
