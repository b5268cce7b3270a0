"""Measuring in a trial: the first steps of a training, and the exchange of gradients."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiment.setup.function.train_function import signature_of
from search.errors import InvalidArgument
from spark_jobs.strategies.fits import Around, around_fits

FEWEST_STEPS = 5
"""The fewest steps that tell how long one takes: the first ones trace the model."""

_EXCHANGES = 15
_BATCH_OF_KERAS = 32  # `model.fit` takes as many samples of arrays if it is not told


class _Measured(BaseException):
    """Ends a train function. Not an Exception, so that its `except Exception` lets it pass."""


class FirstSteps:
    """A train function that measures the first steps of another one's `model.fit`, and then ends.

    A `fit` with too few steps to tell is passed over.

    It returns, by name: 'step_seconds', 'gradient_bytes', 'adaptive' (1 if the optimizer divides by
    the size of the gradients, 0 for SGD), and 'batch_size' and 'learning_rate' if they are known.

    Args:
        train: The train function, which fits a Keras model.
        steps: The number of steps after which it ends.
    """

    def __init__(self, train: Callable[..., Any], steps: int) -> None:
        self._train = train
        self._steps = steps
        self.__name__ = getattr(train, "__name__", type(train).__name__)
        self.__signature__ = signature_of(train)

    def __call__(self, **params: Any) -> dict[str, float]:
        """Call the train function with its arguments, and return what was measured.

        Raises:
            InvalidArgument: It fits no model of Keras, or too few steps.
        """
        found: dict[str, float] = {}
        with contextlib.suppress(_Measured), around_fits(_measuring(self._steps, found)):
            self._train(**params)
        if "step_seconds" not in found:
            raise InvalidArgument(
                "train",
                f"a function whose model.fit has at least {FEWEST_STEPS} batches in an epoch",
                "one without",
                "only the steps of model.fit of Keras can be measured",
            )
        return found


def _measuring(steps: int, found: dict[str, float]) -> Around:
    """Return what runs around a `fit`: a clock, which ends it and fills `found`."""

    @contextlib.contextmanager
    def around(
        keras: Any, model: Any, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        batch = _batch_size(keras, arguments)
        clock, ended = _clock(keras, steps), False
        try:
            yield [], [clock]
        except _Measured:
            ended = True
        seconds = step_seconds(clock.ends)
        if seconds is not None:
            known = {
                "step_seconds": seconds,
                "gradient_bytes": _bytes_of(model.trainable_variables),
                "batch_size": batch,
                "learning_rate": clock.rate,
                "adaptive": float(clock.adaptive),
            }
            found.update({name: value for name, value in known.items() if value is not None})
        if ended or found:
            raise _Measured

    return around


def _clock(keras: Any, steps: int) -> Any:
    """Return a callback that notes when each step ends, and then ends the train function."""

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.ends: list[tuple[float, int]] = []  # seconds, and the batch's number
            self.rate: float | None = None
            self.adaptive = False

        def on_train_begin(self, logs: Any = None) -> None:
            optimizer = self.model.optimizer
            optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a scaled loss
            self.rate = _learning_rate(keras, optimizer)
            self.adaptive = not isinstance(optimizer, keras.optimizers.SGD)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for value in (logs or {}).values():
                np.asarray(value)  # waits for the step, which a GPU may still compute
            self.ends.append((time.perf_counter(), batch))
            if len(self.ends) > steps:
                raise _Measured

    return Clock()


def _learning_rate(keras: Any, optimizer: Any) -> float | None:
    """Return the learning rate of the first step after a warm-up; None if it is not known.

    That of the first step of all would be 0 in most warm-ups.
    """
    # Late: trials without Keras are measured, too, though in vain.
    from experiment.large_batches.schedules import WarmedUp

    schedule: Any = getattr(optimizer, "_learning_rate", None)
    own = isinstance(schedule, WarmedUp)
    warm = schedule.steps if own else getattr(schedule, "warmup_steps", 0)  # as Keras calls them
    rate = schedule(warm) if warm else getattr(optimizer, "learning_rate", None)
    if rate is None:
        return None
    # Another schedule may begin with 0, too.
    return float(keras.ops.convert_to_numpy(rate)) or None


def step_seconds(ends: Sequence[tuple[float, int]]) -> float | None:
    """Return the median seconds of a step; None if there are too few steps in an epoch.

    The first fifth of the steps is left out, which trace the model, and so is what lies between two
    epochs.

    Args:
        ends: Of each execution of steps, when it ended, in seconds, and the number of its last
            batch, from 0 in each epoch.
    """
    later = ends[max(1, len(ends) // 5) :]
    taken = [
        (end - before) / (batch - last)
        for (before, last), (end, batch) in itertools.pairwise(later)
        if batch > last
    ]
    return statistics.median(taken) if len(taken) >= FEWEST_STEPS - 2 else None


def _bytes_of(variables: Sequence[Any]) -> int:
    return sum(math.prod(v.shape) * np.dtype(str(v.dtype)).itemsize for v in variables)


def _batch_size(keras: Any, arguments: Mapping[str, Any]) -> int | None:
    """Return the samples of a batch of `model.fit`; None if only reading the data would tell."""
    x: Any = arguments.get("x")
    if hasattr(x, "element_spec"):  # a data set of TensorFlow, which can be read more than once
        x = next(iter(x.take(1)), None)
    elif isinstance(x, keras.utils.PyDataset):
        x = x[0]
    elif isinstance(x, (list, tuple, dict)) or hasattr(x, "shape"):
        return arguments.get("batch_size") or _batch_of_arrays(keras, arguments)
    else:  # a generator, which yields no batch twice
        return None
    arrays = keras.tree.flatten(x)
    return int(arrays[0].shape[0]) if arrays and arrays[0].shape else None


def _batch_of_arrays(keras: Any, arguments: Mapping[str, Any]) -> int:
    """Return the samples of a batch of `model.fit` that Keras chooses for arrays."""
    steps: int | None = arguments.get("steps_per_epoch")
    if not steps:
        return _BATCH_OF_KERAS
    samples: int = keras.tree.flatten(arguments["x"])[0].shape[0]
    split = arguments.get("validation_split") if arguments.get("validation_data") is None else 0.0
    return math.ceil(math.floor(samples * (1.0 - (split or 0.0))) / steps)


def seconds_of_exchange(gradient_bytes: int) -> dict[str, float]:
    """Return the seconds of an exchange between the workers of this trial.

    Args:
        gradient_bytes: Bytes of the gradients.

    Returns:
        'nothing': the median of exchanges of a number, 'gradients': that of all gradients.
    """
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()

    def median(length: int) -> float:
        def reduced() -> Any:  # as a gradient, the vector is made on the worker's device
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.zeros(length))

        exchanged = tf.function(lambda: strategy.experimental_local_results(strategy.run(reduced)))
        exchanged()  # traces it
        taken = []
        for _ in range(_EXCHANGES):
            begun = time.perf_counter()
            exchanged()[0][0].numpy()
            taken.append(time.perf_counter() - begun)
        return statistics.median(taken)

    return {"nothing": median(1), "gradients": median(max(1, gradient_bytes // 4))}
