"""The data set that Keras makes of arrays: shuffled alike by all workers, of known length."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

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
            function = _datasets_of(kind.get_tf_dataset, module, numbers)
            entered.enter_context(replaced(kind, "get_tf_dataset", function))

        with when_imported(_ADAPTER, correct):
            yield


def _datasets_of(original: Any, module: ModuleType, numbers: SharedNumbers) -> Any:
    @functools.wraps(original)
    def get_tf_dataset(adapter: Any) -> Any:
        import tensorflow as tf

        if adapter._shuffle and not is_seeded():
            adapter = copy.copy(adapter)
            adapter._inputs = _tensors(tf, module, adapter._inputs)
            dataset = _shuffled(tf, lambda: original(adapter), numbers.getrandbits(31))
        else:
            dataset = original(adapter)
        # Keras knows how many batches there are; a worker that knows need not ask the others.
        return dataset.apply(tf.data.experimental.assert_cardinality(adapter.num_batches))

    return get_tf_dataset


def _tensors(tf: Any, module: ModuleType, inputs: Any) -> Any:
    """Return arrays as tensors, dense, sparse or ragged ones, which no graph copies."""
    from keras import tree

    def tensor(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, tf.SparseTensor | tf.RaggedTensor):
            return leaf
        if module.data_adapter_utils.is_scipy_sparse(leaf):
            return module.data_adapter_utils.scipy_sparse_to_tf_sparse(leaf)
        compatible = module.array_slicing.convert_to_sliceable(leaf, target_backend="tensorflow")
        return tf.convert_to_tensor(compatible)

    return tree.map_structure(tensor, inputs)


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
