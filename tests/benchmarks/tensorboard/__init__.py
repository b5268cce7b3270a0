"""How soon TensorBoard and its Experiment tab show a search: `make bench-tensorboard`."""
