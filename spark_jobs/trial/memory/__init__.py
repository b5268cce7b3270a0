"""Memory: limits of hosts and GPUs, and errors that say it is exhausted."""
