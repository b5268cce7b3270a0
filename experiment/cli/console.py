"""Output of the command lines: tables, to a terminal or a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiment.results.result import Result
from experiment.results.tables import table_of
from experiment.results.text import printable

_BEST = 10  # trials


def print_facts(facts: dict[str, str]) -> None:
    """Print names with their values, without empty values."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            grid.add_row(Text(printable(name), "bold"), Text(printable(value, keep="\n")))
    _console().print(grid)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table with a head, and a title above it unless it is empty."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in head:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = _console()
    if title:
        console.print(f"\n{title}", style="bold", markup=False, highlight=False)
    console.print(table)


def print_best(result: Result) -> None:
    """Print the best trials of a search, or its Pareto front; nothing without a value."""
    if result.objectives and result.front:
        more = len(result.front) - _BEST
        title = "Front" + (f", {more} more not shown" if more > 0 else "")
        print_table(*table_of(result, result.front[:_BEST]), title)
    elif result.front:
        best = [trial for trial in result.ranking if trial.value is not None][:_BEST]
        print_table(*table_of(result, best), "Best trials")


def write_any_text() -> None:
    """Let both streams write every character, also with an ASCII encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_error(message: str) -> None:
    """Print a message to the standard error; nothing if that is closed or full."""
    if sys.stderr is None:
        return
    try:
        print(printable(message, keep="\n\t"), file=sys.stderr)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO) -> None:
    """Drop the rest of the output to a stream, which Python's exit would fail to write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`; rich would exit with status 1."""
        raise BrokenPipeError


def _console() -> Console:
    """Return a console that wraps lines at a terminal's width, but not in a file or pipe."""
    return _Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
