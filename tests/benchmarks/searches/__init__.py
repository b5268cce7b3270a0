"""How good the searches are, beside those of others: `make bench-search`."""
