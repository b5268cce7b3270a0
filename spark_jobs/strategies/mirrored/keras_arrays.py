"""The data set that Keras makes of arrays: shuffled alike by all workers, of known length."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from spark_jobs.import_hooks import when_imported
from spark_jobs.strategies.in_step.random_numbers import SharedNumbers, is_seeded
from spark_jobs.strategies.replacing import replaced

_ADAPTER = "keras.src.trainers.data_adapters.array_data_adapter"


@contextlib.contextmanager
def arrays_alike(numbers: SharedNumbers) -> Iterator[None]:
    """Let all workers make the same data sets of arrays in the block, which may import Keras.

    Args:
        numbers: The random numbers that all workers share.
    """
    with contextlib.ExitStack() as entered:

        def correct(module: ModuleType) -> None:
            kind = module.ArrayDataAdapter
            function = _datasets_of(kind.get_tf_dataset, module.array_slicing, numbers)
            entered.enter_context(replaced(kind, "get_tf_dataset", function))

        with when_imported(_ADAPTER, correct):
            yield


def _datasets_of(original: Any, slicing: ModuleType, numbers: SharedNumbers) -> Any:
    @functools.wraps(original)
    def get_tf_dataset(adapter: Any) -> Any:
        import tensorflow as tf

        shuffles = adapter._shuffle and not is_seeded()
        dense = _dense(tf, slicing, adapter._inputs) if shuffles else None
        if dense is None:
            dataset = original(adapter)
        else:
            adapter = copy.copy(adapter)
            adapter._inputs = dense
            dataset = _shuffled(tf, lambda: original(adapter), numbers.getrandbits(31))
        # Keras knows how many batches there are; a worker that knows need not ask the others.
        return dataset.apply(tf.data.experimental.assert_cardinality(adapter.num_batches))

    return get_tf_dataset


def _dense(tf: Any, slicing: ModuleType, inputs: Any) -> Any:
    """Return arrays as tensors, which no graph copies; None if one is sparse or ragged."""
    compatible = slicing.convert_to_sliceable(inputs, target_backend="tensorflow")
    leaves = [leaf for leaf in tf.nest.flatten(compatible) if leaf is not None]
    if not all(isinstance(leaf, np.ndarray | tf.Tensor) for leaf in leaves):
        return None
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), compatible
    )


def _shuffled(tf: Any, made: Any, seed: int) -> Any:
    """Return a data set that has another order in each epoch, the same one in all workers.

    With a seed of TensorFlow, Keras' own order is the same in each epoch, since its operation
    begins anew: so here the operation gets its seed from a data set that goes on.

    Args:
        tf: The module tensorflow.
        made: Makes the data set of one epoch, by `tf.random.shuffle`.
        seed: The seed.
    """

    def epoch(number: Any) -> Any:
        def shuffle(values: Any, *args: Any, **kwargs: Any) -> Any:
            return tf.random.experimental.stateless_shuffle(values, seed=tf.stack([number, seed]))

        with replaced(tf.random, "shuffle", shuffle):
            return made()

    numbers = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)
    return numbers.flat_map(tf.autograph.experimental.do_not_convert(epoch))
