"""The GPUs of a slot: which they are, and the memory that trials leave on them."""
