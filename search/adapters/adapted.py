"""What all adapters share: a `Searcher` whose trials the optimiser of another library proposes."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from search.algorithms import samples_of
from search.errors import InvalidArgument
from search.points import check_points
from search.sampling import random_point
from search.searcher import Problem
from search.space import Float, Integer
from search.trial import Outcome, Trial

TRIES = 20
"""Proposals for a trial at the most; the constraint may allow none of them."""

_GLOBAL_RANDOM_NUMBERS = threading.Lock()
"""There is one set of them in a process, and perhaps two searches, each in its thread."""

_UNTOLD = ("seed",)  # drawn at random where the user gives none, so it may differ by the process


class Optimiser(Protocol):
    """Another library's optimiser, on the hyperparameters of our space.

    A proposal is whatever it wants back with the value. A value is None where a trial failed, else
    a finite number.
    """

    @property
    def exhausted(self) -> bool:
        """Has it nothing to propose any more?"""

    def propose(self) -> tuple[Any, dict[str, Any]]:
        """Return a proposal, and its hyperparameters."""

    def learn(self, proposal: Any, value: float | None) -> None:
        """Take in the value of a proposal."""

    def reject(self, proposal: Any) -> None:
        """Take in that the constraint does not allow a proposal."""

    def add(self, params: Mapping[str, Any], value: float | None) -> bool:
        """Take in the value of hyperparameters that it did not propose; False where it cannot."""


class AdaptedSearch:
    """A `Searcher` of a number of trials, which an `Optimiser` proposes.

    The first trials are the points that the user gives; the optimiser learns of them as of what is
    known from elsewhere. A proposal that the constraint does not allow is rejected and another one
    asked for; after 20 of them a random configuration takes the trial's place.

    The same `rng` and the same order of asking and telling give the same trials.

    Args:
        problem: What to search. `samples` is required.
        begin: Makes the optimiser. Like every call of it, with global random numbers of its own:
            many of these libraries know no others.
        most_out: Trials that may be out at once; None: any number.

    Raises:
        InvalidArgument: No `samples`, more points than those, or something is known to an
            optimiser that cannot learn it.
    """

    def __init__(
        self, problem: Problem, begin: Callable[[], Optimiser], most_out: int | None = None
    ) -> None:
        self.total = samples_of(problem)
        check_points(problem.points, self.total, "samples")
        self._space, self._rng, self._points = problem.space, problem.rng, problem.points
        self._most_out = math.inf if most_out is None else most_out
        self._asked = 0  # trials handed out, in all
        self._out: dict[int, tuple[Mapping[str, Any], Any]] = {}
        seed = self._rng.getrandbits(32)
        self._globals = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        with self._random_numbers():
            self._optimiser = begin()
            for evaluated in problem.known:
                if not self._optimiser.add(evaluated.params, _number(evaluated.value)):
                    expected = "none, since this optimiser only learns from what it asked for"
                    raise InvalidArgument("warm_start", expected, f"{len(problem.known)} trials")

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._asked >= self.total

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished or len(self._out) >= self._most_out:
            return None
        if self._asked < len(self._points):
            proposal, params = None, dict(self._points[self._asked])
        else:
            with self._random_numbers():
                proposal, params = self._allowed()
        trial = Trial(self._asked, params)
        self._out[trial.id] = params, proposal
        self._asked += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        params, proposal = self._out.pop(outcome.trial)
        with self._random_numbers():
            if proposal is None:
                self._optimiser.add(params, _number(outcome.value))
            else:
                self._optimiser.learn(proposal, _number(outcome.value))
        if self._optimiser.exhausted:
            self.total = self._asked

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


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
