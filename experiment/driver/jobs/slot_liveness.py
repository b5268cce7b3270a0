"""Detects lost slots from their messages, for sessions in which Spark does not report tasks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable

from experiment.driver.coordinator import Coordinator
from spark_jobs import time_limits
from spark_jobs.messages import Answer, Heard, Hello, Next, Reports, SlotId


class SlotLiveness:
    """Forwards the messages of slots to the coordinator, and reports lost slots to it.

    Spark runs a lost task again, as its next attempt: when that slot says hello, the last one is
    lost. If Spark has no room for it, the lost slot is found by its silence while others send
    messages. A slot that was presumed lost by mistake gets no more trials, so nothing counts twice.
    It does not work with speculation, which starts a second attempt beside the first.

    See `spark_jobs.channel.exchange.Handler`.

    Args:
        coordinator: The search's coordinator.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self, coordinator: Coordinator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._heard: dict[str, float] = {}  # slots, with the time of their last message
        self._of_task: defaultdict[tuple[int, int], set[str]] = defaultdict(set)  # these slots
        self._time = 0.0  # seconds in which there were messages
        self._last = clock()
        self._looked = 0.0

    def hello(self, message: Hello) -> None:
        """Take a slot's hello."""
        now = SlotId.parse(message.slot)
        slots = self._of_task[now.task]
        self._lost([slot for slot in slots if SlotId.parse(slot).attempt < now.attempt])
        self._hear(message.slot)
        self._coordinator.hello(message)

    def next(self, message: Next) -> Answer:
        """Take a slot's last outcome, and return its next trial."""
        self._hear(message.slot)
        return self._coordinator.next(message)

    def alike(self, slot: str) -> Hashable:
        """Return a key that is equal for slots which may run the same trials."""
        return self._coordinator.alike(slot)

    def alike_now(self, slot: str) -> Hashable:
        """Return a key that is equal for slots which would get the same answer now."""
        return self._coordinator.alike_now(slot)

    def assigned(self) -> list[str]:
        """Return the slots that got a trial because another one asked."""
        return self._coordinator.assigned()

    def report(self, message: Reports) -> Heard:
        """Take the reports of a slot's trial."""
        self._hear(message.slot)
        return self._coordinator.report(message)

    def _hear(self, slot: str) -> None:
        now = self._clock()
        self._time += min(now - self._last, time_limits.SLOT_GAP)
        self._last = now
        if slot not in self._heard:
            self._of_task[SlotId.parse(slot).task].add(slot)
        self._heard[slot] = self._time
        if self._time > self._looked + time_limits.SLOT_GAP:
            self._looked = self._time
            since = self._time - time_limits.SLOT_SILENCE
            self._lost([slot for slot, heard in self._heard.items() if heard < since])

    def _lost(self, slots: list[str]) -> None:
        for slot in slots:
            del self._heard[slot]
            self._of_task[SlotId.parse(slot).task].discard(slot)
        self._coordinator.ends.slots_lost(slots)
