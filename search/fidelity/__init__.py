"""Searches whose trials train the longer, the better they do: multi-fidelity optimisation."""
