"""The state of the global random numbers with which a train function is called."""

from __future__ import annotations

import random
import sys
from typing import Any


def seed_random_numbers(seed: int | None, trial: int) -> None:
    """Seed `random`, numpy and PyTorch for this trial; otherwise forked processes share one state.

    Spark's Python workers are forked, too, so this is so for slots as for trials of their own.
    """
    _seed(random.SystemRandom().getrandbits(32) if seed is None else (seed * 1_000_003 + trial))


def seed_repeat(seed: int | None, trial: int, repeat: int) -> None:
    """Seed these generators for a repeat above 0; the first one has the state of the trial.

    So a repeat draws the same numbers in every attempt: an attempt that began with a later repeat
    would draw those of repeat 0 again, and count one result twice.

    Args:
        seed: The search's seed; None leaves the random numbers as they are.
        trial: The trial's id.
        repeat: The number of the repeat, from 0.
    """
    if seed is not None and repeat:
        _seed(random.Random(f"{seed} {trial} {repeat}").getrandbits(32))


def _seed(state: int) -> None:
    random.seed(state)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(state % 2**32)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(state % 2**32)
