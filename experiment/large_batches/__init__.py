"""What makes large batches work: the learning rate, its warm-up, the size of a batch."""
