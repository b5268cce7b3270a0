"""The tree of exceptions. Users see it as `experiment.ExperimentError` and so on.

ExperimentError
 +-- InvalidArgument     bad input, found before any work starts (also a ValueError)
 |    +-- NothingAllowed a constraint that allows next to nothing
 |    +-- StorageFailed  in spark_jobs.storage.refusals: a folder whose storage fails
 +-- WrongCall           a call without an argument, or with an unknown one (also a TypeError)
 +-- SearchFailed        in experiment.results.result: a search that ended unfinished
 +-- CallFailed          in experiment.background.executor: a call that failed
 +-- ExecutorFailed      also there: an executor that ended before its calls (also a BrokenExecutor)
 +-- GangBroken          in spark_jobs.communicator.membership: a worker lost another one
 +-- MembersDisagree     also there: workers that make different calls (also a ValueError)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExperimentError(Exception):
    """The base of every error that this project raises on purpose."""


class _InputError(ExperimentError):
    """An error of input: its message is enough, our frames would say nothing more."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows: one, in the form that IPython expects."""
        return [f"{type(self).__name__}: {self}"]


class InvalidArgument(_InputError, ValueError):
    """An invalid argument.

    Args:
        name: The argument, in the user's words: "popsize", "bounds['dropout']".
        expected: The values that are valid.
        got: The value that was passed.
        hint: The remedy, where it is not obvious.
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
    """A call with a missing or an unknown argument."""


class NothingAllowed(InvalidArgument):
    """A constraint that allowed none of the configurations it was called with."""


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return "did you mean 'learning_rate'?" where one of the known words is close; else ''."""
    words = [item for item in known if isinstance(item, str)]
    found = difflib.get_close_matches(word, words, 1) if isinstance(word, str) else []
    return f"did you mean {found[0]!r}?" if found else ""


def prefixed(prefix: str, text: str) -> str:
    """Return the text after a prefix; '' for an empty text."""
    return prefix + text if text else ""


def one_line(error: BaseException) -> str:
    """Return an error's type and message in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def shown(value: object, limit: int = 120) -> str:
    """Return a value's repr for an error message, cut to `limit` characters."""
    if isinstance(value, str | bytes):  # it may have gigabytes
        value = value[: limit + 1]
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
