"""Searches on clusters and through Connect: slots, imports, GPUs, the way to the driver."""
