"""Calls that are made again while what they need is in trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_again(
    call: Callable[[], T],
    *,
    after: Callable[[BaseException], bool],
    outage: float,
    pause: float = 1.0,
    longest_pause: float | None = None,
    tell: Callable[[BaseException, float], None] = lambda error, seconds: None,
    hurry: Callable[[], bool] = lambda: False,
) -> T:
    """Return what a call returns, which is made again after errors that may pass.

    Args:
        call: Is made at least once.
        after: Says of an error of the call whether it may pass. Others are raised at once.
        outage: Seconds from the first such error, not from the first call, which may take long;
            the first one after that is raised.
        pause: Seconds between two calls.
        longest_pause: If given, pauses are random, of up to `pause` at first, then of up to twice
            as long each, and of this many seconds at the most.
        tell: Told each error after which the call is made again, and how many seconds ago the first
            one was.
        hurry: Is there no time for another call?
    """
    import tenacity  # late: it imports asyncio, and tornado where that is installed

    since: float | None = None

    def failing_for() -> float:
        nonlocal since
        now = time.monotonic()
        since = now if since is None else since
        return now - since

    def say(state: tenacity.RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        assert error is not None, "tenacity sleeps after errors only"
        tell(error, failing_for())

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(after),
        stop=lambda _: failing_for() >= outage or hurry(),
        wait=tenacity.wait_fixed(pause)
        if longest_pause is None
        else tenacity.wait_random_exponential(multiplier=pause, max=longest_pause),
        before_sleep=say,
        reraise=True,
    )(call)
