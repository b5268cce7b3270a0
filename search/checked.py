"""A searcher of anybody, held to the contract: what it asks for may travel to a trial."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from search.checks import plain
from search.errors import ExperimentError, InvalidArgument, shown
from search.searcher import Searcher, ask_again
from search.trial import Outcome, Trial
from search.values import check_size, plain_value


class SearcherFailed(ExperimentError):
    """A searcher cannot go on; the message says why."""


class CheckedSearcher:
    """A `Searcher` whose errors, and whose trials that are none, are all a `SearcherFailed`.

    Args:
        searcher: Owned by this one from now on.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher, self._asked = searcher, 0

    @property
    def total(self) -> int:
        """See `Searcher`."""
        return self._searcher.total

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._searcher.finished

    def ask(self) -> Trial | None:
        """See `Searcher`.

        Raises:
            SearcherFailed: It raised, or what it returned is no trial.
        """
        try:
            trial = self._searcher.ask()
        except Exception as error:
            raise self._failed("ask", error) from error
        return self._handed_out(trial)

    def ask_again(self, trial: Trial) -> Trial | None:
        """See `search.searcher.ask_again`; raises as `ask`."""
        try:
            again = ask_again(self._searcher, trial)
        except Exception as error:
            raise self._failed("ask", error) from error
        return self._handed_out(again)

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`.

        Raises:
            SearcherFailed: It raised.
        """
        try:
            self._searcher.tell(outcome)
        except Exception as error:
            raise self._failed("tell", error) from error

    def _handed_out(self, trial: Any) -> Trial | None:
        if trial is None:
            return None
        try:
            checked = _checked(trial, self._asked)
        except InvalidArgument as error:
            raise SearcherFailed(f"{self._name}.ask() returned {error}") from None
        self._asked += 1
        return checked

    @property
    def _name(self) -> str:
        return type(self._searcher).__name__

    def _failed(self, method: str, error: Exception) -> SearcherFailed:
        if isinstance(error, InvalidArgument):  # as of a constraint, with the configuration
            return SearcherFailed(str(error))
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{line.filename}, line {line.lineno}"
        return SearcherFailed(
            f"{self._name}.{method}() raised {type(error).__name__}: {error} ({where})"
        )


def _checked(trial: Any, number: int) -> Trial:
    """Return a trial with plain values; `InvalidArgument` where it is none."""
    if not isinstance(trial, Trial):
        raise InvalidArgument("a trial", "a search.Trial, or None", shown(trial))
    if type(plain(trial.id)) is not int or trial.id != number:
        raise InvalidArgument("id", f"{number}, the number of trials before it", shown(trial.id))
    generation, parent = plain(trial.generation), plain(trial.parent)
    _check_number("generation", generation, None)
    _check_number("parent", parent, number)
    if not isinstance(trial.params, Mapping):
        raise InvalidArgument("params", "a dict of hyperparameters", shown(trial.params))
    for name in trial.params:
        if not isinstance(name, str):
            raise InvalidArgument("params", "names of hyperparameters", shown(name))
    params = {
        plain_value("params", name): plain_value(f"params[{shown(name)}]", value)
        for name, value in trial.params.items()
    }
    check_size("params", params)
    return Trial(number, params, generation, parent)


def _check_number(name: str, value: Any, below: int | None) -> None:
    if value is None or (type(value) is int and value >= 0 and (below is None or value < below)):
        return
    expected = "an integer of at least 0, or None" if below is None else "an earlier trial, or None"
    raise InvalidArgument(name, expected, shown(value))
