"""TensorBoard's event files: writing and reading them, and `tf.summary` in a trial."""
