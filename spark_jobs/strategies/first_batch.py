"""The first batch of the data of a `fit`, by which Keras builds a model."""

from __future__ import annotations

from typing import Any


def first_batch(iterator: Any) -> Any:
    """Return the first batch of an epoch, which `fit` trains on all the same.

    Args:
        iterator: Keras' iterator over an epoch, which `fit` resets later.
    """
    whole = peeked(iterator.data_adapter)
    return taken(iterator) if whole is None else whole


def peeked(adapter: Any) -> Any:
    """Return the first batch of data from which none must be taken; None for other data.

    A generator yields no batch twice. From the queue of a `PyDataset` all later epochs would begin
    one batch late.

    Args:
        adapter: Keras' adapter of the data.
    """
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    if first_batches := getattr(adapter, "_first_batches", None):  # of a generator
        return first_batches[0]
    if isinstance(adapter, PyDatasetAdapter):
        return adapter._standardize_batch(adapter.py_dataset[0])
    return None


def taken(iterator: Any) -> Any:
    """Take the first batch out of an iterator over an epoch."""
    *_, batches = next(iter(iterator))  # two items before Keras 3.11, else three
    return next(batches)
