"""Displays of a search: terminal, notebook, TensorBoard, logs."""
