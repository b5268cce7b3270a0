"""Functions that are passed to Spark without accumulators.

PySpark's driver unpickles the accumulators that come back from workers, and a train function in a
slot's own process could forge them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class WithoutAccumulators:
    """A SparkContext for one RDD, whose function gets no accumulators.

    Args:
        context: The SparkContext.
    """

    _javaAccumulator = None  # noqa: N815  # PySpark's name

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


@contextlib.contextmanager
def without_accumulators(context: Any) -> Iterator[None]:
    """Let the functions that are passed to Spark SQL inside the block have no accumulators.

    Functions that other threads pass meanwhile have none either, so the slots of searches are an
    RDD, see `WithoutAccumulators`.

    Args:
        context: The SparkContext.
    """
    of_context = vars(context)
    with of_context.setdefault("_experiment_accumulators", threading.Lock()):
        accumulator, of_context["_javaAccumulator"] = of_context["_javaAccumulator"], None
        try:
            yield
        finally:
            of_context["_javaAccumulator"] = accumulator
