"""The tree of exceptions. Users see it as `experiment.ExperimentError` and so on.

ExperimentError
 +-- InvalidArgument     bad input, found before any work starts (also a ValueError)
 |    +-- NothingAllowed a constraint that allows next to nothing
 +-- SearchFailed        in experiment.result: a search that ended without being done
 +-- CallFailed          in experiment.executor: a call came to no value
 +-- ExecutorFailed      in experiment.executor: it ended before its calls (also a BrokenExecutor)
"""


class ExperimentError(Exception):
    """Every error that this project raises on purpose is one of these."""


class InvalidArgument(ExperimentError, ValueError):
    """An argument that cannot be used.

    Args:
        name: What was passed, in the user's words: "popsize", "bounds['dropout']".
        expected: What would have been right.
        got: What came instead.
        hint: What to do about it, where that is not obvious.
    """

    def __init__(self, name: str, expected: str, got: str, hint: str = "") -> None:
        self.name, self.expected, self.got, self.hint = name, expected, got, hint
        super().__init__(name, expected, got, hint)

    def __str__(self) -> str:
        message = f"{self.name}: expected {self.expected}, got {self.got}"
        return f"{message}; {self.hint}" if self.hint else message


class NothingAllowed(InvalidArgument):
    """A constraint that allowed none of many configurations drawn at random."""


def shown(value: object, limit: int = 120) -> str:
    """Return what an error message says about a value: its repr, cut to `limit` characters."""
    if isinstance(value, str | bytes):  # which may have gigabytes
        value = value[: limit + 1]
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
