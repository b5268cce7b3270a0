"""How long slots are busy, in trials: the arithmetic of a plan.

A batch is what is evaluated between two barriers: a generation, or a whole search without any.
"""

from __future__ import annotations

import math


def waves(trials: int, batch: int, slots: int) -> int:
    """Return how many trials one slot runs, one after the other, where all take equally long.

    Args:
        trials: Of the search.
        batch: Trials between two barriers.
        slots: That run them.
    """
    whole, rest = divmod(trials, batch)
    return whole * math.ceil(batch / slots) + math.ceil(rest / slots)


def idle_when_equal(batch: int, slots: int) -> float:
    """Return the share of the slots' time, of [0, 1), in which they wait for the end of a batch.

    All trials take equally long.
    """
    return 1 - batch / (slots * math.ceil(batch / slots))


def idle_when_exponential(batch: int, slots: int) -> float:
    """Return the same, where the times of trials are independent and exponentially distributed.

    While trials wait to be run, one of `slots` ends every `1 / slots` of their mean on average; of
    the last `k` that run together the longest ends after `1 + 1/2 + ... + 1/k` of it (A. Rényi: On
    the theory of order statistics, Acta Mathematica Academiae Scientiarum Hungaricae 4, 1953).
    """
    last = min(batch, slots)
    span = (batch - last) / slots + math.fsum(1 / k for k in range(1, last + 1))
    return 1 - batch / (slots * span)
