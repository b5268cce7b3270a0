"""The trials of a running search: which run, which attempt is next, how they end, what is shown."""
