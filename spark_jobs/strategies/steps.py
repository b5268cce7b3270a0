"""Counting the steps of `model.fit`, and those at which something is due."""

from __future__ import annotations


class Steps:
    """The steps of a `fit`, as a callback sees them."""

    def __init__(self) -> None:
        self._all = 0
        self._of_epoch = 0

    def begin_epoch(self) -> None:
        """Note that an epoch begins, in which Keras counts from 0."""
        self._of_epoch = 0

    def count(self, batch: int) -> tuple[int, int]:
        """Return the number of steps before and after those that end with a batch.

        Args:
            batch: The batch's number in its epoch. With `steps_per_execution` Keras calls after
                several steps, with the last of them.
        """
        before, self._all = self._all, self._all + batch + 1 - self._of_epoch
        self._of_epoch = batch + 1
        return before, self._all


def is_due(every: int, before: int, steps: int) -> bool:
    """Return whether a multiple of `every` was reached since the last check.

    Args:
        every: A number of steps.
        before: The number of steps at the last check.
        steps: The number of steps so far.
    """
    return steps // every > before // every
