"""The parts of a batch: one for each replica of the model.

TensorFlow's own rule asks all workers before each step whether anybody has a batch left, and gives
a replica without samples an empty batch, whose mean is 0 or NaN. Here each worker reads the whole
data set and cuts its parts out of each batch, so all workers make the same number of steps and none
needs to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from search.errors import InvalidArgument


def bounds(samples: int, replica: int, replicas: int) -> tuple[int, int]:
    """Return the first sample of a replica's part of a batch, and the one after its last.

    Args:
        samples: The number of samples in the batch; all three may be scalar tensors, too.
        replica: The replica, from 0.
        replicas: The number of replicas.
    """
    return samples * replica // replicas, samples * (replica + 1) // replicas


class Parts:
    """Cuts batches into one part per replica.

    Args:
        tensorflow: The module.
        replicas: The number of replicas of all workers.
        uneven: Called with the number of samples of a batch that a model is trained on, if the
            replicas' parts differ in size. Default: for data that no model is trained on.
    """

    def __init__(
        self, tensorflow: Any, replicas: int, uneven: Callable[[int], None] | None = None
    ) -> None:
        self._tf = tensorflow
        self._replicas = replicas
        self._uneven = uneven

    def of(self, dataset: Any, first: int, count: int) -> Any:
        """Return the data set of a worker's parts, `count` elements for each batch.

        Args:
            dataset: A `tf.data.Dataset` of batches.
            first: The worker's first replica.
            count: The number of its replicas.
        """
        tf, spec = self._tf, dataset.element_spec
        plain = tf.autograph.experimental.do_not_convert

        def part(components: Any, replica: Any) -> Any:  # `map` passes the components of a tuple
            batch = tf.nest.pack_sequence_as(spec, tf.nest.flatten(components))
            return self._part(batch, replica)

        def parts_of(*components: Any) -> Any:
            replicas = tf.data.Dataset.range(first, first + count)
            return replicas.map(plain(lambda replica: part(components, replica)))

        if count == 1:
            return dataset.map(plain(lambda *components: part(components, first)))
        parts = dataset.flat_map(plain(parts_of))
        if (batches := int(dataset.cardinality())) < 0:
            return parts
        return parts.apply(tf.data.experimental.assert_cardinality(batches * count))

    def _part(self, batch: Any, replica: Any) -> Any:
        samples = [
            self._samples(value) for value in self._tf.nest.flatten(batch) if self._is_cut(value)
        ]
        self._check(samples)
        if samples and self._uneven is not None:
            self._tell_if_uneven(samples[0], self._uneven)
        return self._tf.nest.map_structure(lambda value: self._cut(value, replica), batch)

    def _check(self, samples: list[Any]) -> None:
        """Refuse batches of unequal arrays, such as the nodes and the edges of graphs."""
        for other in samples[1:]:
            if not (isinstance(samples[0], int) and samples[0] == other):
                self._tf.debugging.assert_equal(
                    self._tf.cast(samples[0], self._tf.int64),
                    self._tf.cast(other, self._tf.int64),
                    "data set: expected batches whose arrays have one length, so that each worker "
                    "can take its part; set the AutoShardPolicy of the data set to FILE or OFF, "
                    "and give each worker batches of its own",
                )

    def _is_cut(self, value: Any) -> bool:
        return value is not None and not isinstance(value, self._tf.experimental.Optional)

    def _samples(self, value: Any) -> Any:
        """Return the number of samples: an int where the shape has it, else a tensor."""
        tf = self._tf
        if value.shape.rank == 0:
            raise InvalidArgument(
                "data set", "batches", f"single elements, such as {value}", "call .batch(size)"
            )
        if value.shape.rank is not None and value.shape[0] is not None:
            return int(value.shape[0])
        if isinstance(value, tf.RaggedTensor):
            return value.nrows()
        sparse = isinstance(value, tf.SparseTensor)
        return value.dense_shape[0] if sparse else tf.shape(value, tf.int64)[0]

    def _tell_if_uneven(self, samples: Any, uneven: Callable[[int], None]) -> None:
        tf, replicas = self._tf, self._replicas

        def tell() -> Any:
            tf.numpy_function(lambda number: uneven(int(number)), [samples], [])
            return tf.no_op()

        # Fewer samples than replicas are not divided: see `_cut`.
        is_uneven = (samples > replicas) & (samples % replicas != 0)
        if not isinstance(is_uneven, bool):
            tf.cond(is_uneven, tell, tf.no_op)
        elif is_uneven:
            uneven(samples)

    def _cut(self, value: Any, replica: Any) -> Any:
        if not self._is_cut(value):
            return value
        tf, samples = self._tf, self._samples(value)
        start, end = bounds(samples, replica, self._replicas)
        if self._uneven is not None:
            # A replica without samples would train on the mean of nothing. If each has all samples,
            # the mean of the gradients is the one of a single worker.
            few = samples < self._replicas
            if isinstance(few, bool):
                start, end = (0, samples) if few else (start, end)
            else:
                start, end = tf.where(few, tf.zeros_like(start), start), tf.where(few, samples, end)
        if not isinstance(value, tf.SparseTensor):
            return value[start:end]
        others = value.dense_shape[1:]
        first = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(others)], axis=0)
        size = tf.concat([[tf.cast(end - start, tf.int64)], others], axis=0)
        return tf.sparse.slice(value, first, size)
