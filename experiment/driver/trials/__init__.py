"""The trials of a running search: what is shown of them, which run, which attempt is next."""
