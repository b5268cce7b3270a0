"""The base of all adapters: a `Searcher` whose trials another library's optimiser proposes."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec
import numpy as np

from search.counted import CountedSearch
from search.direction import Direction
from search.errors import InvalidArgument
from search.searcher import Problem
from search.space.sampling import TRIES, random_point
from search.trial import Evaluated, Outcome, Status, Trial

_PROPOSES_NO_MORE = "the searcher proposes no more configurations"

_LIBRARY_CALLS = threading.Lock()
"""Held while a search calls its library, which may change what is the process's: random numbers, or
the verbosity of Optuna. Another search may run in another thread."""

_DIGITS = 1e-9
"""Maximum relative difference of numbers that count as one, computed by two kinds of processors.

The last digits depend on the processor, for which numpy and linear algebra choose their code."""

# Drawn at random where the user gives none, so it may differ between processes.
_LEFT_OUT = ("seed",)


ScoreT_contra = TypeVar("ScoreT_contra", contravariant=True)


class Optimiser(Protocol[ScoreT_contra]):
    """Another library's optimiser, on the hyperparameters of our space.

    A proposal is any object that `learn` needs back with the value. A value is a finite number, or
    a tuple of them for several objectives; None for a failed trial.
    """

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to propose."""

    def propose(self) -> tuple[Any, dict[str, Any]] | None:
        """Return a proposal and its hyperparameters; None for a random configuration instead."""

    def learn(self, proposal: Any, value: ScoreT_contra | None) -> None:
        """Take in the value of a proposal."""

    def reject(self, proposal: Any) -> None:
        """Drop a proposal that the constraint does not allow."""

    def add(self, params: Mapping[str, Any], value: ScoreT_contra | None) -> bool:
        """Take in the value of a configuration from elsewhere; False where this is impossible."""


class Pruner(Protocol):
    """An optional part of an `Optimiser`: it decides which trials to stop early."""

    def report(self, proposal: Any, step: int, value: float) -> bool:
        """Take in a report of a running trial, and return whether to stop the trial.

        Steps ascend. The value is NaN where the trial reported no number.
        """

    def prune(self, proposal: Any) -> None:
        """Take in the end of a stopped trial; `learn` is not called for it."""


class AdaptedSearch(CountedSearch):
    """A `CountedSearch` whose trials an `Optimiser` proposes.

    The user's points are added to the optimiser in the same way as prior observations. A proposal
    that the constraint does not allow is rejected and the next one requested; after 20 of them the
    trial is a random configuration.

    The same `rng` and the same order of `ask` and `tell` give the same trials on processors of the
    same kind; a search that is resumed elsewhere keeps those whose last digits alone differ there.

    Args:
        problem: The problem to search. `samples` is required.
        begin: Creates the optimiser.
        most_in_flight: Maximum trials in flight; None for any number.
        pruner: The name of the optimiser's pruner, if it is a `Pruner` as well. The pruner
            receives the reports of the trials that the optimiser proposed.
        own_numbers: Whether the optimiser draws no global random numbers. Otherwise each call of it
            runs with such numbers of this search; other threads must not draw from `random` and
            `numpy.random` meanwhile.

    Attributes:
        judge: The pruner as a judge; None without a pruner.

    Raises:
        InvalidArgument: No `samples`, more points than `samples`, or prior observations for an
            optimiser that cannot learn them.
    """

    def __init__(
        self,
        problem: Problem,
        begin: Callable[[], Optimiser[Any]],
        most_in_flight: int | None = None,
        pruner: str | None = None,
        *,
        own_numbers: bool = False,
    ) -> None:
        super().__init__(problem)
        self.judge = None if pruner is None else _PrunerJudge(pruner, self._report)
        self._direction = problem.direction
        self._rng = problem.rng
        self._most_in_flight = math.inf if most_in_flight is None else most_in_flight
        self._in_flight: dict[int, tuple[Mapping[str, Any], Any]] = {}
        self._own_numbers = own_numbers
        seed = self._rng.getrandbits(32)
        self._globals = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        with self._library_call():
            self._optimiser = begin()
            for evaluated in problem.known:
                if not self._optimiser.add(evaluated.params, self._score(evaluated)):
                    expected = "none, since this optimiser learns from its own proposals only"
                    raise InvalidArgument("warm_start", expected, f"{len(problem.known)} trials")

    @property
    def exhausted(self) -> str | None:
        """Why there are fewer trials than `samples`; None if there are not."""
        return _PROPOSES_NO_MORE if self.total < self._budget else None

    def ask(self) -> Trial | None:
        """Return the next trial; None while `most_in_flight` trials are in flight."""
        return None if len(self._in_flight) >= self._most_in_flight else super().ask()

    def ask_again(self, trial: Trial) -> Trial | None:
        """Return the next trial, with the numbers of this one where only the last digits differ."""
        again = self.ask()
        if again is None:
            return None
        params = {
            name: _as_recorded(value, trial.params.get(name))
            for name, value in again.params.items()
        }
        return msgspec.structs.replace(again, params=params)

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        params, proposal = given, None
        if params is None:
            with self._library_call():
                proposal, params = self._allowed()
        if params is not None:
            self._in_flight[trial] = params, proposal
        return params

    def tell(self, outcome: Outcome) -> None:
        """Pass an outcome to the optimiser."""
        params, proposal = self._in_flight.pop(outcome.trial)
        with self._library_call():
            if proposal is None:
                self._optimiser.add(params, self._score(outcome))
            elif self.judge is not None and outcome.status == "stopped":
                self._pruner.prune(proposal)
            else:
                self._optimiser.learn(proposal, self._score(outcome))
        if self._optimiser.exhausted:
            self.total = self._asked

    @property
    def _pruner(self) -> Pruner:
        return cast(Pruner, self._optimiser)

    def _report(self, trial: int, step: int, value: float) -> bool:
        _, proposal = self._in_flight.get(trial, (None, None))
        if proposal is None:  # a point of the user, or a trial that has ended
            return False
        with self._library_call():
            return self._pruner.report(proposal, step, value)

    def _score(self, item: Outcome | Evaluated) -> float | tuple[float, ...] | None:
        scores = self._direction.scores(item)
        if scores is None or not all(map(math.isfinite, scores)):
            return None
        return scores[0] if isinstance(self._direction, Direction) else scores

    def _allowed(self) -> tuple[Any, dict[str, Any] | None]:
        """Return an allowed proposal and its hyperparameters, or None and random ones.

        None and None if there is nothing left to propose.
        """
        for _ in range(TRIES):
            proposed = self._optimiser.propose()
            if proposed is None:
                break
            proposal, params = proposed
            if self._space.allows_params(params):
                return proposal, params
            self._optimiser.reject(proposal)
            if self._optimiser.exhausted:
                return None, None
        return None, self._space.decode(random_point(self._space, self._rng))

    @contextlib.contextmanager
    def _library_call(self) -> Iterator[None]:
        """Let no other search call, and swap in this one's global random numbers for the time."""
        with _LIBRARY_CALLS:
            if self._own_numbers:
                yield
                return
            others = random.getstate(), np.random.get_state()
            random.setstate(self._globals[0])
            np.random.set_state(self._globals[1])
            try:
                yield
            finally:
                self._globals = random.getstate(), np.random.get_state()
                random.setstate(others[0])
                np.random.set_state(others[1])


def _as_recorded(value: Any, recorded: Any) -> Any:
    """Return the recorded number instead of a value that equals it but for the last digits."""
    both = isinstance(value, float) and isinstance(recorded, float)
    return recorded if both and math.isclose(value, recorded, rel_tol=_DIGITS) else value


class _PrunerJudge:
    """A pruner of another library as a `StoppingJudge`.

    Args:
        name: The pruner's name.
        report: Called with trial, step and value; returns whether to stop the trial.
    """

    def __init__(self, name: str, report: Callable[[int, int, float], bool]) -> None:
        self._name = name
        self._report = report
        self._last: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Pass a report to the pruner; return the reason to stop the trial, or None."""
        if trial not in self._reasons and step > self._last.get(trial, -1):
            self._last[trial] = step
            if self._report(trial, step, math.nan if value is None else value):
                self._reasons[trial] = f"step {step}: {self._name} has pruned it"
        return self._reasons.get(trial)

    def ended(self, trial: int, status: Status) -> None:
        """Ignore the end of a trial: the optimiser learns of its outcome."""
        self._last.pop(trial, None)
        self._reasons.pop(trial, None)


@contextlib.contextmanager
def needed_by(searcher: str, package: str) -> Iterator[None]:
    """Turn a failed import in this context into an error that says how to install the package.

    Args:
        searcher: The name of the searcher that needs the package.
        package: The name of the package, as pip takes it.

    Raises:
        InvalidArgument: The import failed; the message has the command that installs the package.
    """
    try:
        yield
    except ImportError as error:
        expected, hint = f"the packages that {searcher} needs", f"type: pip install {package}"
        raise InvalidArgument("searcher", expected, str(error), hint) from error


def described(thing: object, kind: type) -> dict[str, Any]:
    """Describe an object as JSON: its class and its plain attributes.

    Attributes of type `kind` are described in the same way, all others are left out.
    """
    found: dict[str, Any] = {"class": type(thing).__name__}
    for name, value in sorted(getattr(thing, "__dict__", {}).items()):
        key = name.lstrip("_")
        if isinstance(value, kind):
            found[key] = described(value, kind)
        elif key not in _LEFT_OUT and (value is None or type(value) in (bool, int, float, str)):
            found[key] = (
                str(value) if isinstance(value, float) and not math.isfinite(value) else value
            )
    return found
