"""The slots that wait for work at the driver, and which of them to ask when there may be some."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Line(Generic[T]):
    key: Hashable
    waiting: dict[str, T] = field(default_factory=dict)  # by slot, in the order of their requests


class WaitingLines(Generic[T]):
    """Lines of waiting slots: those of one line wait for the same work.

    With a thousand slots that wait for the end of a generation, asking for each of them after each
    trial would take a whole processor. So of each line slots are asked until one has to wait on.

    Args:
        alike: Returns a key that is equal for slots that have to wait for the same work.
        alike_now: Returns a key that is equal for slots which would get the same answer now.
    """

    def __init__(
        self, alike: Callable[[str], Hashable], alike_now: Callable[[str], Hashable]
    ) -> None:
        self._alike = alike
        self._alike_now = alike_now
        self._lines: dict[Hashable, _Line[T]] = {}
        self._of: dict[str, _Line[T]] = {}  # the line of each slot

    def __len__(self) -> int:
        return len(self._of)

    def get(self, slot: str) -> T | None:
        """Return a slot's waiting call, or None."""
        line = self._of.get(slot)
        return None if line is None else line.waiting[slot]

    def join(self, slot: str, call: T) -> None:
        """Put a slot's call into its line, in place of an earlier one."""
        key = self._alike(slot)
        line = self._of.get(slot)
        if line is None or line.key != key:
            self._remove(slot)
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(key)
            self._of[slot] = line
        line.waiting[slot] = call

    def leave(self, slot: str, call: T) -> None:
        """Take a slot's call out of its line, unless another call of it waits there by now."""
        if self.get(slot) is call:
            self._remove(slot)

    def wake(self, ask: Callable[[str, T], bool]) -> None:
        """Ask for waiting slots: of those that are alike, one by one until one has to wait on.

        The longest line is the first: its slots are of one host, so a trial on several slots runs
        there. A slot whose key has changed moves to the line of its new key, and the next slot of
        its old line is asked.

        Args:
            ask: Returns False if the slot has to wait on. It changes no line.
        """
        in_vain: set[Hashable] = set()
        moved: dict[str, T] = {}
        for line in sorted(self._lines.values(), key=lambda line: len(line.waiting), reverse=True):
            for slot, call in line.waiting.items():
                kind = self._alike_now(slot)
                if kind not in in_vain and ask(slot, call):
                    continue
                in_vain.add(kind)
                if self._alike(slot) == line.key:
                    break
                moved[slot] = call
        for slot, call in moved.items():
            self.join(slot, call)

    def _remove(self, slot: str) -> None:
        line = self._of.pop(slot, None)
        if line is not None:
            del line.waiting[slot]
            if not line.waiting:
                del self._lines[line.key]
