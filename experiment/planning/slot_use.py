"""The arithmetic of a plan: trials per slot, and idle time.

A batch is the trials between two barriers: a generation, or the whole search without barriers.
"""

from __future__ import annotations

import math


def trials_per_slot(trials: int, batch: int, slots: int) -> int:
    """Return how many trials a slot runs, one after the other, if all take equally long.

    Args:
        trials: Number of trials of the search.
        batch: Number of trials between two barriers.
        slots: Number of slots.
    """
    whole, rest = divmod(trials, batch)
    return whole * -(-batch // slots) - (-rest // slots)


def idle_when_equal(batch: int, slots: int) -> float:
    """Return the share of [0, 1) of the slots' time that they wait for the end of a batch.

    All trials take equally long.
    """
    return 1 - batch / (slots * -(-batch // slots))


def idle_when_exponential(batch: int, slots: int) -> float:
    """Return the same share for independent, exponentially distributed times of trials.

    While trials wait, one ends every `1 / slots` of the mean time on average; the longest of the
    last `k` ends after `1 + 1/2 + ... + 1/k` of the mean time (A. Rényi: On the theory of order
    statistics, Acta Mathematica Academiae Scientiarum Hungaricae 4, 1953).
    """
    if batch > slots * 2**53:  # larger numbers may be no floats
        return 0.0
    last = min(batch, slots)
    span = (batch - last) / slots + math.fsum(1 / k for k in range(1, last + 1))
    return 1 - batch / (slots * span)
