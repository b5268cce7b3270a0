"""Calls that are retried during an outage."""

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
    """Return the result of a call, which is retried after transient errors.

    Args:
        call: The function to call, at least once.
        after: Returns whether an error of the call is transient. Other errors are raised at once.
        outage: Seconds from the first transient error (not from the first call, which may take
            long) after which the next one is raised.
        pause: Seconds between two calls.
        longest_pause: If given, pauses are random: of up to `pause` at first, each then up to twice
            as long, and of at most this many seconds.
        tell: Called before each retry with the error and the seconds since the first one.
        hurry: Returns whether there is no time for another call.
    """
    try:
        return call()  # nearly always all that is needed: tenacity costs a tenth of a short trial
    except BaseException as error:
        if not after(error):
            raise
        first: BaseException | None = error

    import tenacity  # late: it imports asyncio, and tornado if installed

    since: float | None = None

    def again() -> T:
        nonlocal first
        if first is not None:
            failed, first = first, None
            raise failed
        return call()

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
    )(again)
