"""The tree of exceptions. Users see it as `experiment.ExperimentError` and so on.

ExperimentError
 +-- InvalidArgument     bad input, found before any work starts (also a ValueError)
 |    +-- NothingAllowed a constraint that allows next to nothing
 +-- WrongCall           a call without an argument, or with an unknown one (also a TypeError)
 +-- SearchFailed        in experiment.results.result: a search that ended without being done
 +-- CallFailed          in experiment.background.executor: a call of an executor failed
 +-- ExecutorFailed      there, too: it ended before its calls (also a BrokenExecutor)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExperimentError(Exception):
    """Every error that this project raises on purpose is one of these."""


class _InputError(ExperimentError):
    """An error of input: its message says all, frames of ours say nothing."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: one line, as IPython asks for it."""
        return [f"{type(self).__name__}: {self}"]


class InvalidArgument(_InputError, ValueError):
    """An argument that cannot be used.

    Args:
        name: What was passed, in the user's words: "popsize", "bounds['dropout']".
        expected: What would have been right.
        got: What came instead.
        hint: What to do about it, where that is not obvious.
    """

    def __init__(self, name: str, expected: str, got: str, hint: str = "") -> None:
        self.name = name
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(name, expected, got, hint)

    def __str__(self) -> str:
        message = f"{self.name}: expected {self.expected}, got {self.got}"
        return f"{message}; {self.hint}" if self.hint else message


class WrongCall(_InputError, TypeError):
    """A call that lacks an argument, or has one that it does not know."""


class NothingAllowed(InvalidArgument):
    """A constraint that allowed none of many configurations drawn at random."""


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return "did you mean 'learning_rate'?" where one of the known words is close; else ''."""
    words = [item for item in known if isinstance(item, str)]
    found = difflib.get_close_matches(word, words, 1) if isinstance(word, str) else []
    return f"did you mean {found[0]!r}?" if found else ""


def prefixed(prefix: str, text: str) -> str:
    """Return a text with what separates it from the one before; '' where there is none."""
    return prefix + text if text else ""


def shown(value: object, limit: int = 120) -> str:
    """Return what an error message says about a value: its repr, cut to `limit` characters."""
    if isinstance(value, str | bytes):  # which may have gigabytes
        value = value[: limit + 1]
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
