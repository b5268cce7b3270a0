"""A searcher of anybody, held to the contract: what it asks for may travel to a trial."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.checks import plain
from search.errors import ExperimentError, InvalidArgument, shown
from search.searcher import Searcher, Selection, ask_again, judge_of, selections_of
from search.stopping import StoppingJudge
from search.trial import Outcome, Status, Trial
from search.values import check_size, plain_value


class SearcherFailed(ExperimentError):
    """A searcher cannot go on; the message says why."""


class CheckedSearcher:
    """A `Searcher` whose errors, and whose trials that are none, are all a `SearcherFailed`.

    So are the errors of its judge. Each says what was asked for, and where it was raised.

    Args:
        searcher: Owned by this one from now on.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._asked = 0
        self._name = type(searcher).__name__

    @property
    def total(self) -> int:
        """See `Searcher`."""
        with _failing(f"{self._name}.total"):
            return self._searcher.total

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        with _failing(f"{self._name}.finished"):
            return self._searcher.finished

    @property
    def judge(self) -> StoppingJudge | None:
        """See `search.searcher.Judging`."""
        with _failing(f"{self._name}.judge"):
            judge = judge_of(self._searcher)
        return None if judge is None else _CheckedJudge(judge, f"{self._name}.judge")

    def ask(self) -> Trial | None:
        """See `Searcher`; where what it returns is no trial, that is an error too."""
        with _failing(f"{self._name}.ask()"):
            trial = self._searcher.ask()
        return self._handed_out(trial)

    def ask_again(self, trial: Trial) -> Trial | None:
        """See `search.searcher.ask_again`; raises as `ask`."""
        with _failing(f"{self._name}.ask()"):
            again = ask_again(self._searcher, trial)
        return self._handed_out(again)

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        with _failing(f"{self._name}.tell()"):
            self._searcher.tell(outcome)

    @property
    def selections(self) -> Sequence[Selection]:
        """See `search.searcher.Selecting`; where one is none, that is an error too."""
        with _failing(f"{self._name}.selections"):
            return [self._selection(selection) for selection in selections_of(self._searcher)]

    def _selection(self, selection: Any) -> Selection:
        name = f"{self._name}.selections"
        if not isinstance(selection, Selection):
            raise InvalidArgument(name, "search.searcher.Selection", shown(selection))
        trial, holder = plain(selection.trial), plain(selection.holder)
        for number in (trial, *(() if holder is None else (holder,))):
            if type(number) is not int or not 0 <= number < self._asked:
                raise InvalidArgument(name, "trials that were asked for", shown(selection))
        return Selection(trial, bool(selection.accepted), holder)

    def _handed_out(self, trial: Any) -> Trial | None:
        if trial is None:
            return None
        asked = f"{self._name}.ask()"
        if not isinstance(trial, Trial):
            said = InvalidArgument(asked, "a search.trial.Trial or None", shown(trial))
            raise SearcherFailed(str(said))
        try:
            checked = _checked(trial, self._asked)
        except InvalidArgument as error:
            part = f"{asked}: {error.name} of the trial"
            said = InvalidArgument(part, error.expected, error.got, error.hint)
            raise SearcherFailed(str(said)) from None
        self._asked += 1
        return checked


class _CheckedJudge:
    """A `StoppingJudge` whose errors are all a `SearcherFailed`."""

    def __init__(self, judge: StoppingJudge, name: str) -> None:
        self._judge = judge
        self._name = name

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """See `StoppingJudge`."""
        with _failing(f"{self._name}.report()"):
            return self._judge.report(trial, step, value)

    def ended(self, trial: int, status: Status = "finished") -> None:
        """See `StoppingJudge`."""
        with _failing(f"{self._name}.ended()"):
            self._judge.ended(trial, status)


@contextlib.contextmanager
def _failing(asked: str) -> Iterator[None]:
    """Raise `SearcherFailed` for whatever is raised where that is asked for."""
    try:
        yield
    except InvalidArgument as error:  # as of a constraint, with the configuration
        raise SearcherFailed(str(error)) from error
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{line.filename}, line {line.lineno}"
        said = f"{asked} raised {type(error).__name__}: {error} ({where})"
        raise SearcherFailed(said) from error


def _checked(trial: Trial, number: int) -> Trial:
    """Return a trial with plain values; `InvalidArgument` where a part of it is wrong."""
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
    return Trial(number, params, generation=generation, parent=parent)


def _check_number(name: str, value: Any, below: int | None) -> None:
    if value is None or (type(value) is int and value >= 0 and (below is None or value < below)):
        return
    expected = "an integer of at least 0, or None" if below is None else "an earlier trial, or None"
    raise InvalidArgument(name, expected, shown(value))
