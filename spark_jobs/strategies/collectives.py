"""The collective calls of the workers of a trial that strategies need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy.typing as npt


class Collectives(Protocol):
    """Calls that all workers make in the same order; `spark_jobs.communicator` has them."""

    def all_reduce(
        self, arrays: Sequence[npt.ArrayLike], op: Literal["mean", "sum", "min", "max"] = "mean"
    ) -> list[npt.NDArray[Any]]:
        """Return the mean, sum, minimum or maximum of each array over all workers."""

    def broadcast(self, arrays: Sequence[npt.ArrayLike], root: int = 0) -> list[npt.NDArray[Any]]:
        """Return one worker's arrays to all workers."""

    def meet(self) -> None:
        """Wait for all workers, however late they come; raises an error if one never will."""

    def begin_step(self) -> None:
        """Note that this worker begins a step that ends when all workers have made it."""
