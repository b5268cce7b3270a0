"""The slots of a running search: which are there, on which hosts, and which may get work."""
