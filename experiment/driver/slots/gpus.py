"""GPUs that get no more trials, while the search goes on with others."""

from __future__ import annotations

from spark_jobs.messages import Hello

_OTHERS = 60.0  # seconds that slots have to start while all that are there have such a GPU


class Gpus:
    """Knows which GPUs are set aside, and which slots have them.

    A slot that has one is told to wait: when it ended, Spark would give the GPU to another task.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, tuple[str, ...]]] = {}  # slots: host, GPUs
        self._aside: dict[tuple[str, str], str] = {}  # host, GPU: why
        self._none_since: float | None = None

    def hear(self, message: Hello) -> list[str]:
        """Take in what a slot says; return a sentence for each GPU that is set aside by that."""
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
        """Return why a slot gets no more trials; nothing where it does."""
        host, gpus = self.of(slot)
        return [self._aside[host, gpu] for gpu in gpus if (host, gpu) in self._aside]

    def problem(self, slots: dict[str, str], running: int, wanted: int, now: float) -> str | None:
        """Return in one sentence that all GPUs are set aside; None where it can go on.

        Slots that the search asked for and that are not there have a minute to start.

        Args:
            slots: Those that are there.
            running: How many trials are out.
            wanted: How many slots the search asked for.
            now: Seconds that only grow.
        """
        if not slots or running or not all(map(self.reasons, slots)):
            self._none_since = None
            return None
        self._none_since = now if self._none_since is None else self._none_since
        if len(slots) < wanted and now - self._none_since < _OTHERS:
            return None
        return "; ".join(dict.fromkeys(why for slot in slots for why in self.reasons(slot)))
