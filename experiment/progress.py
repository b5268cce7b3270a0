"""A line that says how far a search is."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

from experiment.result import TrialResult
from search.direction import Direction

_EVERY = 10.0  # seconds between lines where they cannot be overwritten
_REFRESH = 0.1  # seconds between two states of the line in a terminal


class Progress:
    """Writes to a terminal one line that changes, to anything else a line now and then.

    An `Observer`; only called from one thread at a time.
    """

    def __init__(
        self, name: str, total: int, direction: Direction, stream: TextIO | None = None
    ) -> None:
        self._name, self._total, self._direction = name, total, direction
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._best: float | None = None
        self._done = self._failed = 0
        self._objective = ""
        self._shown = time.monotonic()

    def ended(self, result: TrialResult, objective: str | None) -> None:
        """See `Observer`."""
        self._done += 1
        self._failed += result.status == "failed"
        self._objective = objective or ""
        if self._direction.better(result.value, self._best):
            self._best = result.value
        if time.monotonic() - self._shown >= (_REFRESH if self._terminal else _EVERY):
            self._show()

    def close(self) -> None:
        """Write the last state."""
        self._show()
        if self._terminal:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\n")

    def _show(self) -> None:
        self._shown = time.monotonic()
        text = f"{self._name}: {self._done}/{self._total} trials"
        if self._failed:
            text += f", {self._failed} failed"
        if self._best is not None:
            text += f", best {self._objective} {self._best:.6g}"
        # The name and the objective are the user's text: no control characters to a terminal.
        text = "".join(character if character.isprintable() else "?" for character in text)
        with contextlib.suppress(OSError, ValueError):  # a stream that is closed stops no search
            self._stream.write(f"\r\x1b[K{text}" if self._terminal else text + "\n")
            self._stream.flush()
