"""The speed of sums over processes, on this host and on an emulated network."""
