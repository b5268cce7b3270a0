"""The progress of a search: what is shown of it, and when."""

from __future__ import annotations

import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from experiment.display.frames import Frame, View
from experiment.display.views import choose_view
from experiment.results.result import Result
from experiment.results.status import Output, Status
from experiment.results.text import command, count, duration, printable

_MOST_PIECES = 16  # pieces of the trials' output shown per update
_MOST_LINES = 200  # lines per piece
_LONGEST_LINE = 10_000  # characters of output without a line end before it is shown
_BETWEEN_SLOTS = 1.0  # seconds without slots until this is shown
_MOST_FAILURES = 3  # failed trials named at the end


class Progress:
    """Shows the progress of a search. Only for the thread that called the search.

    A context manager, which restores the terminal.

    Args:
        name: The name of the search.
        verbose: 0 shows nothing, 1 the progress, 2 also a line per trial and the trials' output.
        view: The view; None for the one that fits the environment.
        warn: A function that warns the user if a view fails. Nothing more is shown then, since a
            failed display must not end the search.
        clock: The coordinator's monotonic clock, in seconds.

    Attributes:
        asked: The slots requested from Spark, once known: "4 slots of 1 core and 1 GPU".
        there: Spark's executors and tasks in words, while no slot has started; '' for nothing.
        leaving: A function that returns which slots of another driver still block the search; ''
            for none.
    """

    def __init__(
        self,
        name: str,
        *,
        verbose: int = 1,
        view: View | None = None,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked = ""
        self.there = ""
        self.leaving: Callable[[], str] = str
        self._name = printable(name)
        self._folder = ""
        self._verbose = verbose
        self._warn = warn
        self._clock = clock
        self._view: View | None = None
        if verbose:
            try:
                self._view = choose_view() if view is None else view
            except Exception as error:
                self._give_up(error)
        self._started = clock()
        self._shown = self._started
        self._without_slots_since: float | None = (
            self._started
        )  # time of the last slot; None with slots
        self._seen_slots = False
        self._reported = 0
        # The last line of output, while it has no end, of each trial and worker.
        self._open: dict[tuple[int, int], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._draw(lambda view: view.close())

    def announce(self, folder: str) -> None:
        """Show the run's folder, and how to watch the run."""
        self._folder = printable(folder)
        self._write(f"{self._name}: writes to {self._folder}")
        self._write(f"watch it: {command('tensorboard', self._folder)}")

    def resume(self, status: Status) -> None:
        """Show how many trials of a resumed run have ended before."""
        if status.ended:
            ended = f"{status.ended} of {count(status.total, 'trial')}"
            self._write(f"{self._name}: resumed, {ended} had ended before")
            self._reported = status.ended

    def refresh(self, status: Status, trouble: str | None = None) -> None:
        """Show the state of the search, if the last update is long enough ago.

        Args:
            status: The state of the search.
            trouble: Why the run's files cannot be uploaded at present; None if they can.
        """
        now = self._clock()
        first = bool(status.slots) and not self._seen_slots  # news that no view waits for
        if status.slots or (self._seen_slots and status.done == status.total):
            self._without_slots_since = None
            self._seen_slots = True
        elif self._without_slots_since is None:
            self._without_slots_since = now
        self._show_notes(status.notes)
        if self._verbose > 1:
            self._show_output(status.output)
            self._report(status)
        if self._view is not None and (first or now - self._shown >= self._view.every):
            self._shown = now
            frame = self._frame(status, now, trouble=trouble)
            self._draw(lambda view: view.show(frame))

    def _show_notes(self, notes: deque[str]) -> None:
        """Show the notes about slots, and remove them from the queue."""
        while notes:
            self._write(f"{self._name}: {printable(notes.popleft())}")

    def _show_output(self, output: deque[Output]) -> None:
        """Show the output of trials line by line, and remove it from the queue.

        At most 16 pieces per call, since the same thread runs the search.
        """
        for _ in range(_MOST_PIECES):
            if not output:
                return
            trial, text, worker = output.popleft()
            source = trial, worker
            whole = re.sub("\r\n?", "\n", self._open.pop(source, "") + text)  # as in progress bars
            *lines, self._open[source] = whole.split("\n")
            if len(self._open[source]) > _LONGEST_LINE:
                lines.append(self._open.pop(source))
            self._write_output(source, lines)

    def _write_output(self, source: tuple[int, int], lines: Sequence[str]) -> None:
        trial, worker = source
        name, option = (f", worker {worker}", f" --worker {worker}") if worker else ("", "")
        for line in lines[:_MOST_LINES]:
            text = printable(line, keep="\t")
            self._write(f"[trial {trial}{name}] {text}")
        if len(lines) > _MOST_LINES:
            more = count(len(lines) - _MOST_LINES, "more line")
            logs = f"{command('logs', self._folder)} {trial}{option}"
            self._write(f"[trial {trial}{name}] ... {more}: {logs}")

    def close(self, status: Status, result: Result) -> None:
        """Show the end of the search."""
        self._without_slots_since = None
        frame = self._frame(status, self._clock(), ended=True)
        self._show_notes(status.notes)
        if self._verbose > 1:
            while status.output:
                self._show_output(status.output)
            for source, line in self._open.items():
                self._write_output(source, [line] if line else [])
            self._report(status)
        self._draw(lambda view: view.show(frame))
        self._draw(lambda view: view.close())
        if self._verbose > 1:  # each was named when it failed
            return
        for trial in result.failed[:_MOST_FAILURES]:
            self._write(str(trial))
        if len(result.failed) > _MOST_FAILURES:
            more = count(len(result.failed) - _MOST_FAILURES, "more failed trial")
            self._write(f"and {more}: {command('show', self._folder)}")

    def _frame(
        self, status: Status, now: float, *, trouble: str | None = None, ended: bool = False
    ) -> Frame:
        waiting = printable(trouble or "")
        # Slots that have just ended may have done so because nothing is left to do.
        patience = _BETWEEN_SLOTS if self._seen_slots else 0.0
        if self._without_slots_since is not None and now - self._without_slots_since >= patience:
            waiting = "no slot" if self.there or self._seen_slots else "no executor"
            waiting += "" if self._seen_slots else " yet"
            waiting += f", {duration(now - self._without_slots_since)}"
            asked = f"asked for {self.asked}" if self.asked else ""
            known = [self.there, asked, self.leaving()]
            waiting += f": {'; '.join(filter(None, known))}" if any(known) else ""
        return Frame(
            name=self._name,
            status=status,
            seconds=now - self._started,
            waiting=waiting,
            now=now,
            ended=ended,
        )

    def _report(self, status: Status) -> None:
        """Write a line for each trial that has ended since the last call."""
        for trial in status.results[self._reported :]:
            self._reported += 1
            self._write(str(trial))

    def _write(self, line: str) -> None:
        self._draw(lambda view: view.write(line))

    def _draw(self, show: Callable[[View], None]) -> None:
        if self._view is None:
            return
        try:
            show(self._view)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._view = None
        self._warn(f"the progress of the search cannot be shown: {error!r}")
