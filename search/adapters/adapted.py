"""What all adapters share: a `Searcher` whose trials the optimiser of another library proposes."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from search.counted import CountedSearch
from search.direction import Direction
from search.errors import InvalidArgument
from search.searcher import Problem
from search.space.sampling import random_point
from search.space.spaces import Float, Integer
from search.trial import Evaluated, Outcome, Status, Trial

TRIES = 20
"""Proposals for a trial at the most; the constraint may allow none of them."""

_GLOBAL_RANDOM_NUMBERS = threading.Lock()
"""There is one set of them in a process, and perhaps two searches, each in its thread."""

_UNTOLD = ("seed",)  # drawn at random where the user gives none, so it may differ by the process


ScoreT_contra = TypeVar("ScoreT_contra", contravariant=True)


class Optimiser(Protocol[ScoreT_contra]):
    """Another library's optimiser, on the hyperparameters of our space.

    A proposal is whatever it wants back with the value. A value is None where a trial failed, else
    a finite number; of several objectives, a tuple of them.
    """

    @property
    def exhausted(self) -> bool:
        """Has it nothing to propose any more?"""

    def propose(self) -> tuple[Any, dict[str, Any]]:
        """Return a proposal, and its hyperparameters."""

    def learn(self, proposal: Any, value: ScoreT_contra | None) -> None:
        """Take in the value of a proposal."""

    def reject(self, proposal: Any) -> None:
        """Take in that the constraint does not allow a proposal."""

    def add(self, params: Mapping[str, Any], value: ScoreT_contra | None) -> bool:
        """Take in the value of hyperparameters that it did not propose; False where it cannot."""


class Pruner(Protocol):
    """What an `Optimiser` may bring along: it says which trials to end early."""

    def report(self, proposal: Any, step: int, value: float) -> bool:
        """Take in what a trial reports on its way, NaN where that is no number; is it to stop?

        Steps ascend.
        """

    def prune(self, proposal: Any) -> None:
        """Take in that a trial was stopped, instead of its value."""


class AdaptedSearch(CountedSearch):
    """A `CountedSearch` whose trials an `Optimiser` proposes.

    The optimiser learns of the points that the user gives as of what is known from elsewhere. A
    proposal that the constraint does not allow is rejected and another one asked for; after 20 of
    them a random configuration takes the trial's place.

    The same `rng` and the same order of asking and telling give the same trials.

    Args:
        problem: What to search. `samples` is required.
        begin: Makes the optimiser. Like every call of it, with global random numbers of its own:
            many of these libraries know no others.
        most_out: Trials that may be out at once; None: any number.
        pruner: What the optimiser's pruner is called, if it is a `Pruner`, too. It hears of the
            trials that the optimiser proposed.

    Attributes:
        judge: See `search.searcher.Judging`.

    Raises:
        InvalidArgument: No `samples`, more points than those, or something is known to an
            optimiser that cannot learn it.
    """

    def __init__(
        self,
        problem: Problem,
        begin: Callable[[], Optimiser[Any]],
        most_out: int | None = None,
        pruner: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.judge = None if pruner is None else _PrunerJudge(pruner, self._report)
        self._direction = problem.direction
        self._rng = problem.rng
        self._most_out = math.inf if most_out is None else most_out
        self._out: dict[int, tuple[Mapping[str, Any], Any]] = {}
        seed = self._rng.getrandbits(32)
        self._globals = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        with self._random_numbers():
            self._optimiser = begin()
            for evaluated in problem.known:
                if not self._optimiser.add(evaluated.params, self._score(evaluated)):
                    expected = "none, since this optimiser only learns from what it asked for"
                    raise InvalidArgument("warm_start", expected, f"{len(problem.known)} trials")

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        return None if len(self._out) >= self._most_out else super().ask()

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        params, proposal = given, None
        if params is None:
            with self._random_numbers():
                proposal, params = self._allowed()
        self._out[trial] = params, proposal
        return params

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        params, proposal = self._out.pop(outcome.trial)
        with self._random_numbers():
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
        _, proposal = self._out.get(trial, (None, None))
        if proposal is None:  # of the user, or one that has ended
            return False
        with self._random_numbers():
            return self._pruner.report(proposal, step, value)

    def _score(self, item: Outcome | Evaluated) -> float | tuple[float, ...] | None:
        scores = self._direction.scores(item)
        if scores is None or not all(map(math.isfinite, scores)):
            return None
        return scores[0] if isinstance(self._direction, Direction) else scores

    def _allowed(self) -> tuple[Any, dict[str, Any]]:
        """Return a proposal that the constraint allows; None with a random configuration."""
        for _ in range(TRIES):
            proposal, params = self._optimiser.propose()
            if self._space.allows_params(params):
                return proposal, params
            self._optimiser.reject(proposal)
        return None, self._space.decode(random_point(self._space, self._rng))

    @contextlib.contextmanager
    def _random_numbers(self) -> Iterator[None]:
        """Let global random numbers be this searcher's own, and afterwards what they were."""
        with _GLOBAL_RANDOM_NUMBERS:
            others = random.getstate(), np.random.get_state()
            random.setstate(self._globals[0])
            np.random.set_state(self._globals[1])
            try:
                yield
            finally:
                self._globals = random.getstate(), np.random.get_state()
                random.setstate(others[0])
                np.random.set_state(others[1])


class _PrunerJudge:
    """A pruner of another library as a `StoppingJudge`.

    Args:
        name: What it is called.
        report: Takes in trial, step and value; says whether the trial is to stop.
    """

    def __init__(self, name: str, report: Callable[[int, int, float], bool]) -> None:
        self._name = name
        self._report = report
        self._last: dict[int, int] = {}
        self._reasons: dict[int, str] = {}

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """See `StoppingJudge`."""
        if trial not in self._reasons and step > self._last.get(trial, -1):
            self._last[trial] = step
            if self._report(trial, step, math.nan if value is None else value):
                self._reasons[trial] = f"step {step}: {self._name} has pruned it"
        return self._reasons.get(trial)

    def ended(self, trial: int, status: Status = "finished") -> None:
        """See `StoppingJudge`. What became of the trial, the optimiser is told."""
        self._last.pop(trial, None)
        self._reasons.pop(trial, None)


@contextlib.contextmanager
def needed_by(searcher: str, package: str) -> Iterator[None]:
    """Say, where an import in this context fails, what is missing and how to get it.

    Args:
        searcher: Who needs it.
        package: What pip installs it by.

    Raises:
        InvalidArgument: It cannot be imported; the message has the command that installs it.
    """
    try:
        yield
    except ImportError as error:
        expected, hint = f"the packages that {searcher} needs", f'type: pip install "{package}"'
        raise InvalidArgument("searcher", expected, str(error), hint) from error


def nearest(domain: Float | Integer, value: float) -> float:
    """Return the value of a domain that is nearest to a number."""
    if domain.step is None:
        return min(max(float(value), domain.low), domain.high)
    if domain.step == 1 and isinstance(domain, Integer):  # exact, however far apart the bounds are
        return min(max(round(value), domain.low), domain.high)
    return domain.decode(domain.encode(min(max(value, domain.low), domain.high)))


def described(thing: object, kind: type) -> dict[str, Any]:
    """Return as JSON what can be said of an object: its class, and its attributes that are plain.

    Attributes of the class `kind` are described in the same way, all others left out.
    """
    told: dict[str, Any] = {"class": type(thing).__name__}
    for name, value in sorted(getattr(thing, "__dict__", {}).items()):
        key = name.lstrip("_")
        if isinstance(value, kind):
            told[key] = described(value, kind)
        elif key not in _UNTOLD and (value is None or type(value) in (bool, int, float, str)):
            told[key] = (
                str(value) if isinstance(value, float) and not math.isfinite(value) else value
            )
    return told
