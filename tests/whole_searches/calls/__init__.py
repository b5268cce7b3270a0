"""What users call, run and look at: each call, the examples, a notebook, TensorBoard."""
