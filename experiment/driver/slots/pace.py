"""How often slots send messages, by their number: many slots must not keep the driver busy."""

from __future__ import annotations

from spark_jobs import time_limits

_REPORTING = 100  # messages a second with reports, of all slots: a small part of a processor
_JUDGED = 1_000  # the same for stopping rules, which need each report; a late stop costs slot time
_WAITING = 100  # calls a second, of all slots that wait
_LEAST = 1.0  # seconds; a shorter pause saves little


def report_pause(slots: int, *, judged: bool, in_gangs: bool) -> float:
    """Return the least seconds between two messages with reports of a slot; 0 for few slots.

    Args:
        slots: Number of slots.
        judged: Whether stopping rules need each report.
        in_gangs: Whether trials run on several slots, which have to hear soon of each other.
    """
    pause = min(slots / (_JUDGED if judged else _REPORTING), time_limits.SLOT_BEAT)
    if pause < _LEAST:
        return 0.0
    return min(pause, time_limits.GANG_BEAT) if in_gangs else pause


def longer_wait(slots: int) -> float:
    """Return the seconds that a slot waits for work, beyond those for few slots.

    Args:
        slots: Number of slots.
    """
    return min(max(slots / _WAITING - time_limits.WAIT, 0.0), time_limits.LONGER_WAIT)
