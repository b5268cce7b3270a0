"""Training one model in step, by TensorFlow: `Mirrored`."""
