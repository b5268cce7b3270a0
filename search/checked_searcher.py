"""Checks that a user's searcher keeps the contract, and that its trials can be sent to slots."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.checks import plain
from search.errors import ExperimentError, InvalidArgument, shown
from search.searcher import (
    Dividing,
    Searcher,
    Selection,
    acquisition_of,
    ask_again,
    judge_of,
    selections_of,
    why_exhausted,
)
from search.stopping.rules import StoppingJudge
from search.trial import Outcome, Status, Trial
from search.values import check_size, plain_value


class SearcherFailed(ExperimentError):
    """A searcher raised an error or broke the contract; the message says which."""


class CheckedSearcher:
    """A `Searcher` that turns errors and invalid trials of another one into `SearcherFailed`.

    So with the errors of its judge. Each names the call and the line that raised.

    Args:
        searcher: The searcher to check; owned by this object from now on.
        grows: Whether trials are added while the search runs, so that `ask` may return None
            although no trial is in flight.
    """

    def __init__(self, searcher: Searcher, *, grows: bool = False) -> None:
        self._searcher = searcher
        self._grows = grows
        self._asked = 0
        self._in_flight = 0
        self._surplus: set[int] = set()  # trials beyond the searcher's own
        self._told = True  # whether the searcher got the last outcome
        self._name = type(searcher).__name__

    @property
    def total(self) -> int:
        """The searcher's `total`, with recorded trials that it would not propose."""
        with _failing(f"{self._name}.total"):
            return self._searcher.total + len(self._surplus)

    @property
    def finished(self) -> bool:
        """The searcher's `finished`."""
        with _failing(f"{self._name}.finished"):
            return self._searcher.finished

    @property
    def judge(self) -> StoppingJudge | None:
        """The searcher's judge, checked too; None where it has none."""
        with _failing(f"{self._name}.judge"):
            judge = judge_of(self._searcher)
        return None if judge is None else _CheckedJudge(judge, f"{self._name}.judge")

    def ask(self) -> Trial | None:
        """Return the searcher's next trial.

        Anything but a valid trial or None is an error, and a trial beyond `total`; so is None if no
        outcome is to come, since the search would wait for ever.
        """
        asked = f"{self._name}.ask()"
        with _failing(asked):
            trial = self._searcher.ask()
        with _failing(f"{self._name}.total"):
            total = self._searcher.total
            if trial is not None and self._asked >= total:  # else the search would never end
                expected = f"None, since {self._name}.total is {total}"
                raise InvalidArgument(asked, expected, shown(trial))
        waits = trial is None and not (self._in_flight or self._grows or self.finished)
        with _failing(asked):
            if waits:
                running = f"no trial is in flight and {self._name}.finished is False"
                raise InvalidArgument(asked, f"a trial, since {running}", shown(trial))
        return self._handed_out(trial)

    def ask_again(self, trial: Trial) -> Trial | None:
        """Ask for a trial again; raises as `ask` does.

        A run that was begun when a search went on after its space was used up has more trials than
        the searcher proposes: they are returned as recorded, and their outcomes not passed on.
        """
        with _failing(f"{self._name}.ask()"):
            again = ask_again(self._searcher, trial)
            if trial.id == self._asked and _equal(again, trial):  # it was checked when recorded
                return self._counted(trial)
            used_up = again is None and self._searcher.finished and why_exhausted(self._searcher)
        if used_up:
            self._surplus.add(trial.id)
        return self._handed_out(trial if used_up else again)

    def group_of(self, trial: int) -> str:
        """Return a trial's group; '' where the searcher has none."""
        with _failing(f"{self._name}.group_of()"):
            return self._searcher.group_of(trial) if isinstance(self._searcher, Dividing) else ""

    def acquisition_of(self, trial: int) -> float | None:
        """Return the searcher's acquisition at a trial in flight; None unless it is finite.

        Anything but a number or None is an error.
        """
        if trial in self._surplus:
            return None
        name = f"{self._name}.acquisition_of()"
        with _failing(name):
            value = plain(acquisition_of(self._searcher, trial))
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise InvalidArgument(name, "a number or None", shown(value))
            return float(value) if value is not None and math.isfinite(value) else None

    def tell(self, outcome: Outcome) -> None:
        """Pass an outcome to the searcher."""
        self._in_flight -= 1
        self._told = outcome.trial not in self._surplus
        if self._told:
            with _failing(f"{self._name}.tell()"):
                self._searcher.tell(outcome)

    @property
    def selections(self) -> Sequence[Selection]:
        """The searcher's selections; anything but a `Selection` is an error."""
        if not self._told:
            return []
        with _failing(f"{self._name}.selections"):
            return [self._selection(selection) for selection in selections_of(self._searcher)]

    def _selection(self, selection: Any) -> Selection:
        name = f"{self._name}.selections"
        if not isinstance(selection, Selection):
            raise InvalidArgument(name, "search.searcher.Selection", shown(selection))
        trial, holder = plain(selection.trial), plain(selection.holder)
        for number in (trial, *(() if holder is None else (holder,))):
            if type(number) is not int or not 0 <= number < self._asked:
                raise InvalidArgument(name, "trials that ask() returned", shown(selection))
        return Selection(trial, bool(selection.accepted), holder)

    def _handed_out(self, trial: Any) -> Trial | None:
        if trial is None:
            return None
        asked = f"{self._name}.ask()"
        with _failing(asked):
            if not isinstance(trial, Trial):
                raise InvalidArgument(asked, "a search.trial.Trial or None", shown(trial))
            try:
                checked = _checked(trial, self._asked)
            except InvalidArgument as error:
                part = f"{asked}: {error.name} of the trial"
                raise InvalidArgument(part, error.expected, error.got, error.hint) from None
        return self._counted(checked)

    def _counted(self, trial: Trial) -> Trial:
        self._asked += 1
        self._in_flight += 1
        return trial


class _CheckedJudge:
    """A `StoppingJudge` that turns the errors of another one into `SearcherFailed`."""

    def __init__(self, judge: StoppingJudge, name: str) -> None:
        self._judge = judge
        self._name = name

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Return the judge's reason to stop a trial, or None."""
        with _failing(f"{self._name}.report()"):
            return self._judge.report(trial, step, value)

    def ended(self, trial: int, status: Status) -> None:
        """Pass the end of a trial to the judge."""
        with _failing(f"{self._name}.ended()"):
            self._judge.ended(trial, status)


@contextlib.contextmanager
def _failing(asked: str) -> Iterator[None]:
    """Turn every error in this context into `SearcherFailed`, naming the call."""
    try:
        yield
    except InvalidArgument as error:  # such as a constraint's, which shows the configuration
        raise SearcherFailed(str(error)) from error
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{line.filename}, line {line.lineno}"
        message = f"{asked} raised {type(error).__name__}: {error} ({where})"
        raise SearcherFailed(message) from error


def _equal(proposed: Any, recorded: Trial) -> bool:
    """Return whether a proposed trial is the recorded one; False if they cannot be compared."""
    try:
        return bool(proposed == recorded)
    except ValueError:  # an array of numpy
        return False


def _checked(trial: Trial, number: int) -> Trial:
    """Return a trial with plain values; `InvalidArgument` where a part of it is wrong."""
    if type(plain(trial.id)) is not int or trial.id != number:
        raise InvalidArgument("id", f"{number}, the number of trials before it", shown(trial.id))
    generation, parent = plain(trial.generation), plain(trial.parent)
    _check_number("generation", generation, None)
    _check_number("parent", parent, number)
    steps = plain(trial.max_steps)
    if steps is not None and (type(steps) is not int or steps < 1):
        raise InvalidArgument("max_steps", "an integer of at least 1, or None", shown(steps))
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
    return Trial(number, params, generation=generation, parent=parent, max_steps=steps)


def _check_number(name: str, value: Any, below: int | None) -> None:
    if value is None or (type(value) is int and value >= 0 and (below is None or value < below)):
        return
    expected = "an integer of at least 0, or None" if below is None else "an earlier trial, or None"
    raise InvalidArgument(name, expected, shown(value))
