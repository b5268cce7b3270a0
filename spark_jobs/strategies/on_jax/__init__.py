"""Training one model in step, with Keras on JAX: `Jax`."""
