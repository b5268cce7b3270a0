"""Random numbers that all workers of a trial share, so that they split and shuffle data alike."""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.replacing import replaced


class SharedNumbers:
    """Random numbers that depend on the workers' seed and on the repeat that runs.

    So a repeat shuffles alike in every attempt of a trial, also in one that begins with it.

    Args:
        seed: The seed that all workers share.
        repeat: Returns the number of the repeat that runs, from 0.
    """

    def __init__(self, seed: int, repeat: Callable[[], int]) -> None:
        self._seed = seed
        self._repeat = repeat
        self._of: int | None = None

    def getrandbits(self, bits: int) -> int:
        """Return the repeat's next number."""
        if (repeat := self._repeat()) != self._of:
            self._of = repeat
            self._numbers = random.Random(f"shuffles {self._seed} {repeat}")
        return self._numbers.getrandbits(bits)


def share_random_numbers(communicator: Communicator, repeat: Callable[[], int]) -> SharedNumbers:
    """Seed `random` and numpy alike in all workers; return a further source of equal numbers.

    Args:
        communicator: The connections of this worker to the others.
        repeat: Returns the number of the repeat that runs, from 0.
    """
    (drawn,) = communicator.broadcast([np.array([random.getrandbits(31)])])
    seed = int(drawn[0])
    random.seed(seed)
    np.random.seed(seed)
    return SharedNumbers(seed, repeat)


@contextlib.contextmanager
def drawn_alike(tf: Any, numbers: SharedNumbers) -> Iterator[None]:
    """Give each data set of the block that draws without a seed one that all workers share.

    Each worker reads the whole data set and cuts its parts out of each batch. If each shuffled in
    its own order, an epoch would have some samples several times and others never. A seed of all of
    TensorFlow would do, too, but repeats a data set's random augmentations in each epoch; if the
    train function sets it, it is left to do so.

    Args:
        tf: The module tensorflow.
        numbers: The shared random numbers.
    """
    kind = tf.data.Dataset
    with contextlib.ExitStack() as entered:
        for name in ("shuffle", "random", "sample_from_datasets", "rejection_resample"):
            function: Any = _seeded(getattr(kind, name), numbers)
            if isinstance(inspect.getattr_static(kind, name), staticmethod):
                function = staticmethod(function)
            entered.enter_context(replaced(kind, name, function))
        yield


def _seeded(original: Callable[..., Any], numbers: SharedNumbers) -> Callable[..., Any]:
    """Return a function that gets a shared seed, unless it is given one."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if given.arguments.get("seed") is None and not is_seeded():
            given.arguments["seed"] = numbers.getrandbits(31)
        return original(*given.args, **given.kwargs)

    return seeded


def is_seeded() -> bool:
    """Return whether the train function has seeded TensorFlow: `keras.utils.set_random_seed`."""
    from tensorflow.python.eager import context  # public functions would draw a number

    return context.global_seed() is not None
