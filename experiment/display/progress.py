"""The progress of a search, in a terminal, in a notebook, or as lines of a log."""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TextIO

from experiment.results import html
from experiment.results.result import Result
from experiment.results.status import Output, Running, Status
from experiment.results.tables import best_in_words, front_in_words
from experiment.results.text import (
    command,
    count,
    duration,
    hyperparameter,
    number,
    printable,
)
from experiment.results.trial_result import TrialResult

_LINE_EVERY = 10.0  # seconds between lines that cannot be overwritten
_DRAW_EVERY = 0.2  # seconds between updates of a terminal
_TABLE_EVERY = 1.0  # seconds between updates of a notebook's table
_MOST_PIECES = 16  # pieces of the trials' output shown per update
_MOST_LINES = 200  # lines per piece
_MOST_ROWS = 10  # rows of a notebook's table
_MOST_METRICS = 3  # metrics shown per running trial
_LONGEST_LINE = 10_000  # characters of output without a line end before it is shown
_MOST_RUNNING = 4  # trials below the bar of a terminal
_BETWEEN_SLOTS = 1.0  # seconds without slots until this is shown
_MOST_FAILURES = 3  # failed trials named at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The content of a progress display at one moment.

    Attributes:
        name: The name of the search.
        status: The state of the search.
        seconds: Seconds since its start.
        waiting: Why the search waits, other than for its trials; '' if it does not.
        now: The time of `status`, on the clock of its `running`.
        ended: Whether the search has ended, early or not.
    """

    name: str
    status: Status
    seconds: float
    waiting: str
    now: float
    ended: bool = False

    @property
    def counts(self) -> str:
        """Trials done, running and failed, and the time left."""
        status = self.status
        parts = [f"{status.done}/{count(status.total, 'trial')}"]
        if status.running:
            parts.append(f"{len(status.running)} running")
        if status.failed:
            parts.append(f"{status.failed} failed")
        if status.generation is not None:
            parts.append(f"generation {status.generation}")
        if self.ended or status.done == status.total:
            parts.append(f"took {duration(self.seconds)}")
        elif status.left is not None:
            parts.append(f"about {duration(status.left)} left")
        return ", ".join(parts)

    @property
    def best(self) -> str:
        """The best value with its hyperparameters, or the front; '' before the first value."""
        best = best_in_words(self.status.best, self.status.objective)
        return best or front_in_words(self.status.front)

    @property
    def line(self) -> str:
        """The whole frame in one line."""
        return ", ".join(filter(None, [f"{self.name}: {self.counts}", self.waiting, self.best]))


class View(Protocol):
    """One way to show a search."""

    every: float
    """Seconds between two frames."""

    def show(self, frame: Frame) -> None:
        """Show a frame instead of the one before."""

    def write(self, line: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:
        """Stop updating, and leave the last frame; may be called more than once."""


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
        there: What Spark has for them, or does, while no slot has started; '' for nothing.
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


def show_line(line: str) -> None:
    """Show a line that belongs to no search: in a notebook's cell, else on stderr."""
    view = NotebookView() if _in_notebook() else LineView(sys.stderr)
    view.write(printable(line))


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")  # a terminal's IPython has none


def choose_view() -> View:
    """Return the view for the environment: a notebook, a terminal, or any other stream."""
    if _in_notebook():
        return NotebookView()
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.file_proxy import FileProxy

        # A dumb terminal cannot overwrite lines, and only one search can draw a bar at a time.
        if not Console(file=sys.stderr).is_dumb_terminal and not isinstance(sys.stderr, FileProxy):
            return TerminalView(sys.stderr)
    return LineView(sys.stderr)


@dataclass(slots=True)
class LineView:
    """Writes a line when the first slot has come, then every 10 s: for logs and spark-submit."""

    stream: TextIO | None
    every: float = _LINE_EVERY

    def show(self, frame: Frame) -> None:
        """Write a frame as a line."""
        self.write(frame.line)

    def write(self, line: str) -> None:
        """Show a line that stays."""
        if self.stream is not None:  # as under pythonw
            self.stream.write(line + "\n")
            self.stream.flush()

    def close(self) -> None:
        """Do nothing: all lines stay."""


class TerminalView:
    """Draws a bar, the best trial and the reason to wait at the bottom of a terminal."""

    every = _DRAW_EVERY

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,  # no thread of its own: it draws in `show`
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # never from a file
            vertical_overflow="crop",
        )
        self._live.start()

    def show(self, frame: Frame) -> None:
        """Show a frame instead of the one before."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, frame.status.total), completed=frame.status.done, width=30)
        head.add_row(Text(frame.name), bar, Text(frame.counts))
        reporting = [trial for trial in frame.status.running if trial.last is not None][
            :_MOST_RUNNING
        ]
        trials = [f"trial {r.attempt.trial.id} {running_in_words(r)}" for r in reporting]
        rows = [Text(printable(text)) for text in (frame.best, *trials, frame.waiting) if text]
        self._live.update(Group(head, *rows), refresh=True)

    def write(self, line: str) -> None:
        """Show a line that stays."""
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """Stop drawing, and leave the last frame."""
        self._live.stop()


@dataclass(slots=True)
class NotebookView:
    """Shows a table in the cell's output, updated in place."""

    every: float = _TABLE_EVERY
    _handle: Any = None

    def show(self, frame: Frame) -> None:
        """Show a frame instead of the one before."""
        from IPython.display import HTML, display

        shown = HTML(_frame_as_html(frame))  # type: ignore[no-untyped-call]  # IPython is untyped
        if self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)

    def write(self, line: str) -> None:
        """Show a line that stays."""
        print(line)

    def close(self) -> None:
        """Do nothing: all lines stay."""


def _frame_as_html(frame: Frame) -> str:
    """Return a bar, the best trial, and a table of running trials and of those that ended last."""
    status = frame.status
    entries = [_running_entry(trial, frame.now) for trial in status.running[:_MOST_ROWS]]
    room = _MOST_ROWS - len(entries)
    latest = status.results[-room:] if room else ()
    entries += [_ended_entry(trial) for trial in reversed(latest)]
    names = list(dict.fromkeys(name for params, _ in entries for name in params))
    rows = [
        [*cells, *(hyperparameter(params[n]) if n in params else "" for n in names)]
        for params, cells in entries
    ]
    head = ["trial", "status", status.objective or "value", "time", *names]
    counts = html.cell(f" {frame.name}: {frame.counts}")
    return html.block(
        f"<div>{html.bar(status.done, status.total)}{counts}</div>",
        *(html.line(text) for text in (frame.best, frame.waiting) if text),
        html.table(head, rows) if rows else "",
    )


_Entry = tuple[Mapping[str, Any], list[Any]]  # hyperparameters, and the cells before them


def _running_entry(running: Running, now: float) -> _Entry:
    trial, words = running.attempt.trial, running_in_words(running)
    return trial.params, [trial.id, words, "", duration(running.seconds(now))]


def _ended_entry(trial: TrialResult) -> _Entry:
    return trial.params, [trial.id, trial.ending, trial.score, duration(trial.seconds)]


def running_in_words(running: Running) -> str:
    """Return the state of a running trial: "running, step 3: loss=0.21, accuracy=0.9"."""
    if running.since is None:
        return "starting"
    if running.last is None:
        return "running"
    some = list(running.last.metrics)[:_MOST_METRICS]
    values = ", ".join(f"{name}={number(running.last.metrics[name])}" for name in some)
    return f"running, step {running.last.step}: {values}"
