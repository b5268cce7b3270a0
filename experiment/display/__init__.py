"""What people see of a search: terminal, notebook, TensorBoard, logs."""
