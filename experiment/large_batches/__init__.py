"""Large batches: the learning rate, its warm-up, their size."""
