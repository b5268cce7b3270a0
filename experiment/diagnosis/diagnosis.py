"""The findings of `experiment.doctor`, as a value and as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from experiment.results import html
from experiment.results.text import count, printable

Level = Literal["ok", "warning", "red"]
DRIVER = "driver"
"""The host of findings about the driver, or about all hosts."""

_LEVELS: tuple[Level, ...] = ("red", "warning", "ok")
_MOST_NAMES = 3
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check on a host.

    Attributes:
        check: The check's name: 'software', 'tensorflow', 'train', 'driver', 'clock', 'logdir',
            'data', 'space', 'memory', 'out of memory', 'gpus', 'workers', 'shared import',
            'settings', 'authentication' or 'slots'.
        host: Spark's name of the host; 'driver' for the driver, or for all hosts.
        level: 'ok'; 'warning' if searches run, but not as well; 'red' if they fail.
        got: The state that the check found.
        expected: The expected state; '' if it is as expected.
        advice: The way to mend it; '' if nothing has to be done.
    """

    check: str
    host: str
    level: Level
    got: str
    expected: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of `experiment.doctor`. Printed, and in a notebook, it is a table.

    Attributes:
        findings: The worst finding of each check on each host; problems first.
    """

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether no finding is red."""
        return not self.red

    @property
    def red(self) -> list[Finding]:
        """The findings with which searches fail."""
        return [finding for finding in self.findings if finding.level == "red"]

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row per finding."""
        import pandas as pd

        names = Finding.__slots__
        rows = [{name: getattr(finding, name) for name in names} for finding in self.findings]
        return pd.DataFrame(rows, columns=list(names))

    def __str__(self) -> str:
        rows = _rows(self.findings)
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        lines = [self._summary]
        for *first, got, advice in rows:
            words = [word.ljust(width) for word, width in zip(first, widths, strict=True)]
            lines += _wrapped("  ".join([*words, ""]), got, "  " * 3 + " " * sum(widths))
            lines += _wrapped("    -> ", advice, "       ") if advice else []
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = ["", "check", "host", "found", "what to do"]
        return html.block(html.line(self._summary), html.table(head, _rows(self.findings)))

    @property
    def _summary(self) -> str:
        counts = {
            level: sum(finding.level == level for finding in self.findings) for level in _LEVELS
        }
        if not counts["red"] and not counts["warning"]:
            return "all is well"
        parts = [f"{counts['red']} red"] if counts["red"] else []
        if counts["warning"]:
            parts.append(count(counts["warning"], "warning"))
        return ", ".join(parts)


def diagnosis_of(findings: Iterable[Finding]) -> Diagnosis:
    """Return a diagnosis with the worst finding of each check on each host.

    Of the driver each problem is kept: one check may find several. Of another host it is not, since
    its executors find the same problem, each with its own figures.
    """
    worst: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        problem = finding.host == DRIVER and finding.level != "ok"
        each = (finding.got, finding.expected) if problem else ()
        key = finding.check, finding.host, *each
        known = worst.setdefault(key, finding)
        if _LEVELS.index(finding.level) < _LEVELS.index(known.level):
            worst[key] = finding
    bad = {(finding.check, finding.host) for finding in worst.values() if finding.level != "ok"}
    kept = [f for f in worst.values() if f.level != "ok" or (f.check, f.host) not in bad]
    return Diagnosis(sorted(kept, key=lambda finding: _LEVELS.index(finding.level)))


def _rows(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the table's rows: one for all hosts with the same finding, and for all 'ok' hosts."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        shown = () if finding.level == "ok" else (finding.got, finding.expected, finding.advice)
        own = "" if finding.host != DRIVER else DRIVER
        groups.setdefault((finding.level, finding.check, own, *shown), []).append(finding)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[Finding]) -> list[str]:
    first = group[0]
    got = "; ".join(_some(list(dict.fromkeys(finding.got for finding in group))))
    if first.expected:
        got = f"{got}; expected: {first.expected}"
    hosts = [finding.host for finding in group]
    names = ", ".join(_some(hosts))
    host = names if len(hosts) <= _MOST_NAMES else f"{len(hosts)} hosts: {names}"
    return [printable(text) for text in (first.level, first.check, host, got, first.advice)]


def _some(texts: list[str]) -> list[str]:
    return texts if len(texts) <= _MOST_NAMES else [*texts[:_MOST_NAMES], "..."]


def _wrapped(before: str, text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(_WIDTH, len(indent) + 30),
        initial_indent=before,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
