"""Views of a search: in a terminal, in a notebook, or as lines of a log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from experiment.display.frames import Frame, View, running_in_words
from experiment.results import html
from experiment.results.status import Running
from experiment.results.text import duration, hyperparameter, printable
from experiment.results.trial_result import TrialResult

_LINE_EVERY = 10.0  # seconds between lines that cannot be overwritten
_DRAW_EVERY = 0.2  # seconds between updates of a terminal
_TABLE_EVERY = 1.0  # seconds between updates of a notebook's table
_MOST_ROWS = 10  # rows of a notebook's table
_MOST_RUNNING = 4  # trials below the bar of a terminal


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
        from IPython.display import display

        # The line is for consoles with a kernel, such as Spyder's, which show no HTML.
        forms = {"text/html": _frame_as_html(frame), "text/plain": printable(frame.line)}
        if self._handle is None:
            self._handle = display(forms, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(forms, raw=True)

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
