"""Slots that come one after the other: whether a trial waits for more of them than it needs."""

from __future__ import annotations

import math

_QUIET = 5.0  # seconds
_PREPARING = 60.0  # seconds


class Arrivals:
    """The slots that have come and not asked for work yet, and when the last one came.

    A trial that may run on more slots than are free starts without them if none has come for
    `_QUIET` seconds. Slots ask for work only when they have imported what trials need, so those
    that do so are waited for, for at most `_PREPARING` seconds.
    """

    def __init__(self) -> None:
        self._preparing: set[str] = set()
        self._last = -math.inf

    def come(self, slot: str, now: float) -> None:
        """Record that a slot has come, at a monotonic time in seconds."""
        self._preparing.add(slot)
        self._last = now

    def ask(self, slot: str, now: float) -> None:
        """Record that a slot asks for work; only its first time counts."""
        if slot in self._preparing:
            self._preparing.remove(slot)
            self._last = now

    def leave(self, slot: str) -> None:
        """Forget a slot."""
        self._preparing.discard(slot)

    def are_over(self, now: float) -> bool:
        """Return whether no further slot is expected to ask for work soon."""
        return now > self._last + (_PREPARING if self._preparing else _QUIET)
