"""Importing this module selects JAX as Keras' backend in this process and its forks.

It is the first module that is imported for trials under `Jax`, since Keras chooses its backend when
it is imported, before a trial's process is forked.
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"
