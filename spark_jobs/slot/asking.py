"""A slot's requests for attempts, with ports held for those that run on several slots."""

from __future__ import annotations

from collections.abc import Callable

from search.trial import Outcome
from spark_jobs.channel.exchange import SlotChannel
from spark_jobs.messages import Attempt
from spark_jobs.slot.held_ports import HeldPorts


class Asking:
    """Asks the driver for attempts. Close it at the end.

    The ports of the next attempt are held before the present one starts, so that none is without
    ports once it has been given to its gang.

    Args:
        channel: The channel to the driver.
        hold: Returns held ports; None for attempts that need none.

    Raises:
        NoPort: No ports are free; from `next`, too.
    """

    def __init__(self, channel: SlotChannel, hold: Callable[[], HeldPorts] | None = None) -> None:
        self.channel = channel
        self._hold = hold
        self._held = None if hold is None else hold()

    def next(self, number: int = 0, outcome: Outcome | None = None) -> Attempt | None:
        """Send an attempt's outcome, if there is one, and wait for the next attempt, or None."""
        held = self._held
        if held is None or self._hold is None:
            return self.channel.next(number, outcome)
        attempt = self.channel.next(number, outcome, held.address)
        if attempt is not None:
            self._held = self._hold()
            held.release()
        return attempt

    def close(self) -> None:
        """Release the held ports."""
        if self._held is not None:
            self._held.release()
