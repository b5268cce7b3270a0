"""The time for which a worker waits for the others within the operations of TensorFlow."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from spark_jobs.strategies.replacing import replaced


class Waited:
    """The time for which this worker has waited for the gradients and statistics of all.

    Args:
        tf: The module tensorflow.
        strategy: The strategy of this worker. It was made, and its scope is not entered.
    """

    def __init__(self, tf: Any, strategy: Any) -> None:
        self._tf = tf
        self._strategy = strategy
        self._devices = strategy.extended.worker_devices
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def seconds(self) -> float:
        """Return the seconds so far."""
        return float(self._seconds.numpy())

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the all-reduces of the block, in graphs that are made in it, too."""
        kind = self._tf.distribute.ReplicaContext
        original = kind.all_reduce

        @functools.wraps(original)
        def all_reduce(context: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
            if context.strategy is not self._strategy or not self._is_first(context):
                return original(context, reduce_op, value, options)
            come = self._now_after(value)
            reduced = original(context, reduce_op, value, options)
            self._seconds.assign_add(self._now_after(reduced) - come)
            return reduced

        with replaced(kind, "all_reduce", all_reduce):
            yield

    def _is_first(self, context: Any) -> bool:
        """Return whether this is the first of the worker's devices, whose time counts."""
        number = self._tf.get_static_value(context.replica_id_in_sync_group)
        return number is not None and int(number) % len(self._devices) == 0

    def _now_after(self, values: Any) -> Any:
        """Return the time when all these were computed, by a clock of TensorFlow's graphs."""
        tf = self._tf
        computed = tf.nest.flatten(values, expand_composites=True)
        if "GPU" in self._devices[0]:
            # It computes on when an operation counts as done, but it copies in order.
            with tf.control_dependencies(computed):
                number = tf.reshape(computed[0], [-1])[:1]
            with tf.device("CPU:0"):
                computed = [tf.identity(number)]
        with tf.control_dependencies(computed), tf.device("CPU:0"):
            return tf.timestamp()
