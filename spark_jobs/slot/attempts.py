"""The attempts that a slot gets from the driver, with ports for those that run on several slots."""

from __future__ import annotations

from search.trial import Outcome
from spark_jobs.channel.exchange import SlotChannel
from spark_jobs.messages import Attempt
from spark_jobs.slot.gang.held_ports import HeldPorts


class Attempts:
    """Gets attempts from the driver, one after the other.

    Args:
        channel: The channel to the driver.
        ports: The ports on which they may listen, one attempt after the other; None for attempts
            that need none.
    """

    def __init__(self, channel: SlotChannel, ports: HeldPorts | None = None) -> None:
        self.channel = channel
        self._ports = ports

    def next(self, number: int = 0, outcome: Outcome | None = None) -> Attempt | None:
        """Send an attempt's outcome, if there is one, and wait for the next attempt, or None."""
        if self._ports is None:
            return self.channel.next(number, outcome)
        self._ports.take_back()
        attempt = self.channel.next(number, outcome, self._ports.address)
        if attempt is not None:
            self._ports.lend()
        return attempt
