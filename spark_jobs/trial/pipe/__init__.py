"""The pipe between the process of a trial and its supervisor."""
