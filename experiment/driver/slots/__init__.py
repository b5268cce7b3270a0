"""The slots of a running search, their hosts and GPUs, and which of them may get trials."""
