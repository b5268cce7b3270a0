"""Training one model on each worker, which learn from each other, with Keras: `Codistillation`."""
