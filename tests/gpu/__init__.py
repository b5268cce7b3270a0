"""Tests on a real GPU, with JAX or PyTorch; they need neither Spark nor TensorFlow."""
