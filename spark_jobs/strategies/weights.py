"""The weights of a model as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating[Any]]
"""Weights in one dimension."""


def flat(keras: Any, variables: Sequence[Any]) -> Vector:
    """Return a copy of variables as a vector: of float64 if one is, else of float32.

    Args:
        keras: The module `keras`.
        variables: Keras' variables of floating-point numbers, in any order that all workers share.
    """
    wide = any(str(variable.dtype) == "float64" for variable in variables)
    kind = np.float64 if wide else np.float32
    arrays = [keras.ops.convert_to_numpy(variable).reshape(-1) for variable in variables]
    return np.concatenate([np.empty(0, kind), *arrays], dtype=kind)


def assign(variables: Sequence[Any], vector: Vector) -> None:
    """Set variables to the parts of a vector, in the order of `flat`."""
    start = 0
    for variable in variables:
        end = start + math.prod(variable.shape)
        variable.assign(vector[start:end].reshape(variable.shape))
        start = end


def reals(keras: Any, variables: Sequence[Any]) -> list[Any]:
    """Return the variables of floating-point numbers."""
    return [each for each in variables if keras.backend.is_float_dtype(str(each.dtype))]


def renew_constants(keras: Any, model: Any) -> None:
    """Let adapted layers compute with their present weights: Keras makes constants of them.

    In a function that TensorFlow traces, these constants are the weights at each call of it.

    Args:
        keras: The module `keras`.
        model: A model whose weights were assigned one by one.
    """
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()


def sendable(keras: Any, variable: Any) -> npt.NDArray[Any]:
    """Return a variable as an array of a type that the workers' connections can send."""
    array: npt.NDArray[Any] = keras.ops.convert_to_numpy(variable)
    if array.dtype.kind in "fiuc":
        return array
    return array.astype(np.uint8 if array.dtype == bool else np.float32)  # bool; bfloat16
