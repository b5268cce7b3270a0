"""How far a search is, in a terminal, in a notebook, or line by line in a log."""

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
from experiment.results.status import Running, Status
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

_LINE_EVERY = 10.0  # seconds between lines where they cannot be overwritten
_DRAW_EVERY = 0.2  # seconds between two states in a terminal
_TABLE_EVERY = 1.0  # seconds between two states of a notebook's table
_MOST_PIECES = 16  # of what trials printed that are shown at once
_MOST_LINES = 200  # of each piece
_MOST_ROWS = 10  # of that table
_MOST_METRICS = 3  # of those that a running trial reported
_LONGEST_LINE = 10_000  # characters that a trial may print before it ends the line
_MOST_RUNNING = 4  # trials below the bar of a terminal
_BETWEEN_SLOTS = 1.0  # seconds that a search may be without slots before it is said
_MOST_FAILURES = 3  # that are named at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What people are shown of a search at one moment.

    Attributes:
        name: Of the search.
        status: How far it is.
        seconds: Since when it runs.
        waiting: What it waits for; '' where it waits for nothing but its trials.
        now: The time of `status`, on the clock of its `running`.
        ended: Has the search ended, early or not?
    """

    name: str
    status: Status
    seconds: float
    waiting: str
    now: float
    ended: bool = False

    @property
    def counts(self) -> str:
        """Trials done, running and failed, and the time that is left."""
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
        """All of it in a line."""
        return ", ".join(filter(None, [f"{self.name}: {self.counts}", self.waiting, self.best]))


class View(Protocol):
    """One way to show a search."""

    every: float
    """Seconds between two frames."""

    def show(self, frame: Frame) -> None:
        """Show a frame in the place of the one before."""

    def write(self, line: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:
        """Leave what was shown last; called more than once."""


class Progress:
    """Shows a search while it runs. Only called from the thread that called the search.

    A context manager, which leaves the terminal as it was.

    Args:
        name: Of the search.
        verbose: 0 shows nothing, 1 the progress, 2 also a line per trial and what trials print.
        view: How to show it; chosen by where this runs when left out.
        warn: Shows the user a sentence, where a view fails; it is left out from then on, since what
            people see must not cost what they wait for.
        clock: Seconds that only grow; the one of the coordinator.

    Attributes:
        asked: What the search asked of Spark, once known: "4 slots of 1 core and 1 GPU".
        there: What Spark has of it, where there is no slot yet; '' where there is nothing.
        leaving: Returns what slots of another driver are in the way by now; '' where none are.
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
        self._started = self._shown = clock()
        self._alone_since: float | None = self._started  # since when there is no slot
        self._seen_slots = False
        self._reported = 0
        self._open: dict[int, str] = {}  # the last line of each trial's output, without its end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell(lambda view: view.close())

    def announce(self, folder: str) -> None:
        """Show where the run is, and how to watch it."""
        self._folder = printable(folder)
        self._write(f"{self._name}: writes to {self._folder}")
        self._write(f"watch it: {command('tensorboard', self._folder)}")

    def resume(self, status: Status) -> None:
        """Show what a run has done before, if it is resumed."""
        if status.ended:
            ended = f"{status.ended} of {count(status.total, 'trial')}"
            self._write(f"{self._name}: resumed, {ended} had ended before")
            self._reported = status.ended

    def refresh(self, status: Status, trouble: str | None = None) -> None:
        """Show how far the search is, where it is time to.

        Args:
            status: How far it is.
            trouble: What keeps its files from where they belong for now.
        """
        now = self._clock()
        if status.slots or (self._seen_slots and status.done == status.total):
            self._alone_since = None
            self._seen_slots = True
        elif self._alone_since is None:
            self._alone_since = now
        self._show_notes(status.notes)
        if self._verbose > 1:
            self._show_output(status.output)
            self._report(status)
        if self._view is not None and now - self._shown >= self._view.every:
            self._shown = now
            frame = self._frame(status, now, trouble=trouble)
            self._tell(lambda view: view.show(frame))

    def _show_notes(self, notes: deque[str]) -> None:
        """Show what people should know of the slots, and take it out."""
        while notes:
            self._write(f"{self._name}: {printable(notes.popleft())}")

    def _show_output(self, output: deque[tuple[int, str]]) -> None:
        """Show what trials printed, line by line, and take it out.

        Only so much at a time: the search is watched by the same thread.
        """
        for _ in range(_MOST_PIECES):
            if not output:
                return
            trial, text = output.popleft()
            whole = re.sub("\r\n?", "\n", self._open.pop(trial, "") + text)  # as in progress bars
            *lines, self._open[trial] = whole.split("\n")
            if len(self._open[trial]) > _LONGEST_LINE:
                lines.append(self._open.pop(trial))
            self._write_output(trial, lines)

    def _write_output(self, trial: int, lines: Sequence[str]) -> None:
        for line in lines[:_MOST_LINES]:
            text = printable(line, keep="\t")
            self._write(f"[trial {trial}] {text}")
        if len(lines) > _MOST_LINES:
            more = count(len(lines) - _MOST_LINES, "more line")
            self._write(f"[trial {trial}] ... {more}: {command('logs', self._folder)} {trial}")

    def close(self, status: Status, result: Result) -> None:
        """Show how the search ended."""
        self._alone_since = None
        frame = self._frame(status, self._clock(), ended=True)
        self._show_notes(status.notes)
        if self._verbose > 1:
            self._show_output(status.output)
            for source, line in self._open.items():
                self._write_output(source, [line] if line else [])
            self._report(status)
        self._tell(lambda view: view.show(frame))
        self._tell(lambda view: view.close())
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
        # Slots that have just left may have done so since nothing is left to do.
        patience = _BETWEEN_SLOTS if self._seen_slots else 0.0
        if self._alone_since is not None and now - self._alone_since >= patience:
            waiting = "no slot" if self.there else "no executor"
            waiting += "" if self._seen_slots else " yet"
            waiting += f", {duration(now - self._alone_since)}"
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
        """Write a line for each trial that ended since the last time."""
        for trial in status.results[self._reported :]:
            self._reported += 1
            self._write(str(trial))

    def _write(self, line: str) -> None:
        self._tell(lambda view: view.write(line))

    def _tell(self, show: Callable[[View], None]) -> None:
        if self._view is None:
            return
        try:
            show(self._view)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._view = None
        self._warn(f"how far the search is cannot be shown: {error!r}")


def show_line(line: str) -> None:
    """Show a line about something that is no search: in a notebook's cell, else on stderr."""
    view = NotebookView() if _in_notebook() else LineView(sys.stderr)
    view.write(printable(line))


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")  # a terminal's IPython has none


def choose_view() -> View:
    """Return the view for where this runs: a notebook, a terminal, or anything else."""
    if _in_notebook():
        return NotebookView()
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.file_proxy import FileProxy

        # A dumb terminal cannot overwrite; and where another search draws, its bar stays below.
        if not Console(file=sys.stderr).is_dumb_terminal and not isinstance(sys.stderr, FileProxy):
            return TerminalView(sys.stderr)
    return LineView(sys.stderr)


@dataclass(slots=True)
class LineView:
    """Writes a line now and then: for logs and spark-submit."""

    stream: TextIO | None
    every: float = _LINE_EVERY

    def show(self, frame: Frame) -> None:
        """See `View`."""
        self.write(frame.line)

    def write(self, line: str) -> None:
        """See `View`."""
        if self.stream is not None:  # as under pythonw
            self.stream.write(line + "\n")
            self.stream.flush()

    def close(self) -> None:
        """See `View`."""


class TerminalView:
    """Draws a bar, the best trial and what is waited for at the bottom of a terminal."""

    every = _DRAW_EVERY

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,  # no thread of its own: it draws when it is told to
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # not out of a file
            vertical_overflow="crop",
        )
        self._live.start()

    def show(self, frame: Frame) -> None:
        """See `View`."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, frame.status.total), completed=frame.status.done, width=30)
        head.add_row(Text(frame.name), bar, Text(frame.counts))
        reporting = [out for out in frame.status.running if out.last is not None][:_MOST_RUNNING]
        trials = [f"trial {out.attempt.trial.id} {running_in_words(out)}" for out in reporting]
        rows = [Text(printable(text)) for text in (frame.best, *trials, frame.waiting) if text]
        self._live.update(Group(head, *rows), refresh=True)

    def write(self, line: str) -> None:
        """See `View`."""
        self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        """See `View`."""
        self._live.stop()


@dataclass(slots=True)
class NotebookView:
    """Shows a table in the cell's output that is updated in place."""

    every: float = _TABLE_EVERY
    _handle: Any = None

    def show(self, frame: Frame) -> None:
        """See `View`."""
        from IPython.display import HTML, display

        shown = HTML(_frame_as_html(frame))  # type: ignore[no-untyped-call]  # IPython is untyped
        if self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)

    def write(self, line: str) -> None:
        """See `View`."""
        print(line)

    def close(self) -> None:
        """See `View`."""


def _frame_as_html(frame: Frame) -> str:
    """Return a bar, the best trial, and a table of what runs and what ended last."""
    status = frame.status
    entries = [_running_entry(out, frame.now) for out in status.running[:_MOST_ROWS]]
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


def _running_entry(out: Running, now: float) -> _Entry:
    trial = out.attempt.trial
    return trial.params, [trial.id, running_in_words(out), "", duration(out.seconds(now))]


def _ended_entry(trial: TrialResult) -> _Entry:
    return trial.params, [trial.id, trial.ending, trial.score, duration(trial.seconds)]


def running_in_words(out: Running) -> str:
    """Return how far a trial is: "running, step 3: loss=0.21, accuracy=0.9"."""
    if out.since is None:
        return "starting"
    if out.last is None:
        return "running"
    some = list(out.last.metrics)[:_MOST_METRICS]
    values = ", ".join(f"{name}={number(out.last.metrics[name])}" for name in some)
    return f"running, step {out.last.step}: {values}"
