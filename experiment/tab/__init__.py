"""The Experiment tab of TensorBoard: a plugin that shows runs from their folders."""
