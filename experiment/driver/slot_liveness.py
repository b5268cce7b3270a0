"""Detects lost slots from their messages, where Spark tells nothing of its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from experiment.driver.coordinator import Coordinator
from spark_jobs import time_limits
from spark_jobs.messages import Answer, Heard, Hello, Next, Reports, SlotId


class SlotLiveness:
    """Hands the messages of slots to the coordinator, and tells it which slots are lost.

    Spark runs a task that it has lost again, as the task's next attempt: when that slot says hello,
    the one before is lost. Where Spark has no room for it, the lost slot is found by its silence
    while others speak. A slot that was taken for lost by mistake gets no more work, so nothing
    counts twice. Without speculation, which starts a second attempt beside the first.

    See `spark_jobs.channel.exchange.Handler`.

    Args:
        coordinator: Of the search.
        clock: Seconds that only grow.
    """

    def __init__(
        self, coordinator: Coordinator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._heard: dict[str, float] = {}  # slots, with the time below
        self._time = 0.0  # passes while slots speak
        self._last = clock()
        self._looked = 0.0

    def hello(self, message: Hello) -> None:
        """Take in a slot's first words."""
        now = SlotId.parse(message.slot)
        before = [
            slot
            for slot, it in ((slot, SlotId.parse(slot)) for slot in self._heard)
            if it.task == now.task and it.attempt < now.attempt
        ]
        self._lost(before)
        self._hear(message.slot)
        self._coordinator.hello(message)

    def next(self, message: Next) -> Answer:
        """Take in a slot's last outcome and return its next work."""
        self._hear(message.slot)
        return self._coordinator.next(message)

    def alike(self, slot: str) -> Hashable:
        """Return what a slot has in common with those that have to wait whenever it has to."""
        return self._coordinator.alike(slot)

    def report(self, message: Reports) -> Heard:
        """Take in what a slot's trial reported."""
        self._hear(message.slot)
        return self._coordinator.report(message)

    def _hear(self, slot: str) -> None:
        now = self._clock()
        self._time += min(now - self._last, time_limits.SLOT_GAP)
        self._last = now
        self._heard[slot] = self._time
        if self._time > self._looked + time_limits.SLOT_GAP:
            self._looked = self._time
            since = self._time - time_limits.SLOT_SILENCE
            self._lost([slot for slot, heard in self._heard.items() if heard < since])

    def _lost(self, slots: list[str]) -> None:
        for slot in slots:
            del self._heard[slot]
        self._coordinator.slots_lost(slots)
