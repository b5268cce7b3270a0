"""The vocabularies of a model's layers, which are no weights, so that no worker sends them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from search.errors import InvalidArgument

HINT = "give each layer the same list of words in all workers, by vocabulary="


def number_of(keras: Any, model: Any) -> np.float32:
    """Return a number that is another one for other vocabularies, and is sent with weights.

    Args:
        keras: The module `keras`.
        model: A model with any layers, or without one that has a vocabulary.
    """
    kinds = keras.layers.StringLookup, keras.layers.IntegerLookup  # TextVectorization has one
    found = [
        [str(word) for word in each.get_vocabulary()]
        for each in model._flatten_layers()
        if isinstance(each, kinds)
    ]
    digest = hashlib.sha256(repr(found).encode()).digest()
    return np.float32(int.from_bytes(digest[:3]))  # as many bits as a float32 holds exactly


def different(strategy: str) -> InvalidArgument:
    """Return the error for workers whose vocabularies differ."""
    expected = f"the same vocabularies in all workers, for {strategy!r}"
    return InvalidArgument("model", expected, "different ones", HINT)
