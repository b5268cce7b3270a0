"""HTML for notebooks. All text is escaped by `cell`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from experiment.results.text import printable

# Jupyter would show text between dollar signs as a formula.
_BLOCK = '<div class="tex2jax_ignore mathjax_ignore">{}</div>'

_LEFT = 'style="text-align: left"'  # some cells are sentences, which pandas' style aligns right


def cell(text: object) -> str:
    """Return text as HTML that shows it literally."""
    return html.escape(printable(str(text), keep="\n\t"))


def block(*parts: str) -> str:
    """Return parts, which are HTML, as one output of a notebook's cell."""
    return _BLOCK.format("\n".join(part for part in parts if part))


def line(text: object) -> str:
    """Return a line of text."""
    return f"<div>{cell(text)}</div>"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in the style of pandas' tables in notebooks."""
    columns = "".join(f"<th {_LEFT}>{cell(name)}</th>" for name in head)
    lines = ("".join(f"<td {_LEFT}>{cell(value)}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{cells}</tr>" for cells in lines)
    return (
        f'<table border="0" class="dataframe"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def bar(done: int, total: int) -> str:
    """Return a progress bar."""
    return f'<progress value="{done:d}" max="{total:d}" style="width: 20em"></progress>'


def folded(title: object, text: object) -> str:
    """Return a title that shows a text when it is clicked."""
    return f"<details><summary>{cell(title)}</summary><pre>{cell(text)}</pre></details>"
