"""GPUs that get no more trials, while the search continues on others."""

from __future__ import annotations

from spark_jobs.messages import Hello

_OTHERS = 60.0  # seconds for further slots to start, while all present ones have such a GPU


class Gpus:
    """The GPUs that are set aside, and the slots that have them.

    A slot with such a GPU has to wait: if it ended, Spark would give the GPU to another task.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, tuple[str, ...]]] = {}  # slots: host, GPUs
        self._aside: dict[tuple[str, str], str] = {}  # host, GPU: why
        self._none_since: float | None = None

    def hear(self, message: Hello) -> list[str]:
        """Take a slot's hello; return a sentence for each GPU that it sets aside."""
        self._of[message.slot] = message.host, message.gpus
        new = {
            (message.host, gpu): f"{why} and gets no more trials"
            for gpu, why in message.set_aside.items()
            if (message.host, gpu) not in self._aside
        }
        self._aside |= new
        return list(new.values())

    def of(self, slot: str) -> tuple[str, tuple[str, ...]]:
        """Return the host and the GPUs of a slot."""
        return self._of.get(slot, ("", ()))

    def reasons(self, slot: str) -> list[str]:
        """Return why a slot gets no more trials; [] if it may get some."""
        host, gpus = self.of(slot)
        return [self._aside[host, gpu] for gpu in gpus if (host, gpu) in self._aside]

    def problem(self, slots: dict[str, str], running: int, wanted: int, now: float) -> str | None:
        """Return one sentence if all GPUs are set aside; None if the search can continue.

        Slots that were requested and are not present have a minute to start.

        Args:
            slots: The present slots, with their hosts.
            running: Number of trials in flight.
            wanted: Number of slots requested.
            now: Monotonic time in seconds.
        """
        if not slots or running or not all(map(self.reasons, slots)):
            self._none_since = None
            return None
        self._none_since = now if self._none_since is None else self._none_since
        if len(slots) < wanted and now - self._none_since < _OTHERS:
            return None
        return "; ".join(dict.fromkeys(why for slot in slots for why in self.reasons(slot)))
