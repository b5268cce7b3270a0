"""The version of this package, and the only place that has it: pyproject.toml reads it here."""

__version__ = "0.1.0"
