"""Bayesian optimisation: each trial is where a model of the objective expects the most.

Mockus, Tiesis, Zilinskas: The application of Bayesian methods for seeking the extremum (Towards
Global Optimisation 2, 1978); Jones, Schonlau, Welch: Efficient global optimization of expensive
black-box functions (Journal of Global Optimization 13, 1998). With several objectives each has a
model of its own.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from search.checks import check_flag, make_plain
from search.direction import merits_of
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher
from search.sequential.promising import Promising
from search.sequential.sequential_search import SequentialSearch
from search.space.domains import is_unordered
from search.space.sampling import latin_hypercube, random_point
from search.trial import Outcome, Trial
from search.values import identity

DESIGN = 8
"""Evaluated points, prior observations included, before there is a model."""

LEAST = 3
"""Minimum values for a model; it begins with so few when many trials are in flight."""

MOST_OBJECTIVES = 3
"""Maximum number of objectives: each more makes many times the boxes of `VolumeImprovement`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesianOptimization:
    """Settings of Bayesian optimisation with a Gaussian process; see `BayesianSearch`.

    Args:
        noisy: Whether evaluations of the same configuration differ. Then the best is the one of
            which the model expects the most, rather than the luckiest, and a configuration may be
            tried again.

    Raises:
        InvalidArgument: `noisy` is no bool.
    """

    noisy: bool = False

    def __post_init__(self) -> None:
        make_plain(self)
        check_flag("noisy", self.noisy)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        if len(problem.direction.each) > MOST_OBJECTIVES:
            expected = f"at most {MOST_OBJECTIVES} objectives"
            got = shown(problem.direction.to_json())
            hint = "`evolutionary_search` takes any number of them"
            raise InvalidArgument("direction", expected, got, hint)
        return BayesianSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "bayesian optimization", **asdict(self)}


class BayesianSearch(SequentialSearch):
    """Bayesian optimisation with a Gaussian process, for tens to a few hundreds of costly trials.

    The first trials are `points`, then, with one objective, the middle of the space with a random
    value of each unordered choice, since bounds are put around what is expected to be good (so
    begin Ax and Vizier, too; Song et al. 2024), then a Latin hypercube, until there are `DESIGN`
    configurations, prior observations included. From then on a trial is the point of the largest
    expected improvement over the best under a Gaussian process: Matern 5/2, a length scale per
    hyperparameter, and a noise term.

    - Trials in flight count as if they had the value that the model expects ("kriging believer":
      Ginsbourger, Le Riche, Carraro 2010). Any number may be in flight; the latest 300 count.
    - With two or three objectives each has a model, and a trial is the point of the largest
      expected improvement of the volume that the trials dominate, above a point a tenth of the
      range below the worst value in each objective; see `VolumeImprovement`. For every second trial
      the search for that point follows the gradient over the real hyperparameters, of which there
      may be 50, in a space without a constraint; so it also reaches the bounds. For the others it
      only draws candidates, which spreads the trials.
    - The model sees each value at its decoded position in the space. Values of an unordered choice
      are all equally far apart.
    - A failed trial counts as the worst value so far, so points near it are avoided; a few failures
      are too few to fit a model of their own.
    - Bad values are moved closer to each other, so that a diverged trial does not hide how the good
      ones differ.
    - No configuration is tried twice, unless the objective is noisy.

    After 1,000 trials with one objective an `ask` takes about 0.04 s, and 0.3 s when it fits the
    model's hyperparameters anew, each time the trials have grown by a twentieth (printed by
    `make bench-search`). With several objectives and up to 100 trials it takes
    about 0.1 s (printed by `python -m tests.benchmarks.searches.pareto`).

    The same `rng` and the same order of `ask` and `tell` give the same trials on processors of the
    same kind; a search that is resumed elsewhere keeps the trials that it had.

    Args:
        problem: The problem to search, with at most three objectives.
        settings: The settings.
    """

    def __init__(self, problem: Problem, settings: BayesianOptimization) -> None:
        # Here, not with the first model: the import takes a second, too long for an ask.
        from search.sequential.evidence import Evidence

        # Seeded anew for each trial, since a resumed search gets its first ones by `ask_again`.
        super().__init__(problem, random.Random(), repeats=settings.noisy)
        self._noisy = settings.noisy
        self._seed = problem.rng.getrandbits(64)
        self._evidence = Evidence(list(self._space.values()), len(self._goal.each))
        self._promising = Promising(self._space, self._rng, self._may_try)
        count = max(DESIGN - len(self._points) - len(problem.known), 0)
        self._design = self._first_points(count, problem.rng)
        self._acquisitions: dict[int, float] = {}  # of trials in flight that the model proposed
        self._take_known(problem.known)

    def _first_points(self, count: int, rng: random.Random) -> list[list[float]]:
        """Return so many points of the design."""
        domains = self._space.values()
        if not count or len(self._goal.each) > 1:  # the middle of a space is seldom on a front
            return latin_hypercube(count, len(domains), rng)
        middle = [rng.random() if is_unordered(domain) else 0.5 for domain in domains]
        return [middle, *latin_hypercube(count - 1, len(domains), rng)]

    def ask(self) -> Trial | None:
        """Return the next trial: a design point, or the most promising one."""
        trial = super().ask()
        if trial is not None:
            self._in_flight[trial.id] = self._space.encode(trial.params)
        return trial

    def ask_again(self, trial: Trial) -> Trial | None:
        """Return the trial without fitting a model."""
        given = trial.id < len(self._points)
        if trial.id != self._asked:
            return None
        # Not by ==: a NaN that was read from the journal is not the point's own.
        if given and identity(dict(trial.params)) != identity(dict(self._points[trial.id])):
            return None
        point = self._space.encode(trial.params)
        if not given:
            if point in self._tried:
                if not self._noisy:
                    return None
                if not self._has_model():
                    self._tried.forget()  # as `ask` did: all were tried
            self._tried.add(point)
        self._in_flight[trial.id] = point
        self._asked += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """Take in the score of a trial."""
        super().tell(outcome)
        self._acquisitions.pop(outcome.trial, None)

    def acquisition_of(self, trial: int) -> float | None:
        """Return the logarithm of the expected improvement at a trial in flight.

        It is that of the normalised objective, whose standard deviation is 1; so the values of
        different trials can be compared. None for a trial that no model has proposed, for one of an
        earlier driver, and with several objectives, where it is no improvement over one value.
        """
        return self._acquisitions.get(trial)

    def _take(self, point: list[float], scores: tuple[float, ...] | None) -> None:
        missing = [None] * len(self._goal.each)
        self._evidence.add(point, *merits_of(self._goal, missing if scores is None else scores))

    def _may_try(self, snapped: tuple[float, ...]) -> bool:
        return self._noisy or not self._tried.has_snapped(snapped)

    def _has_model(self) -> bool:
        designed = self._asked >= len(self._points) + len(self._design)
        return designed and self._evidence.values >= LEAST

    def _new_point(self) -> list[float] | None:
        self._rng.seed(self._seed + self._asked)
        if not self._has_model():
            return super()._new_point()
        with self._evidence.one_thread():
            return self._most_promising() or self._tried.another()

    def _propose(self) -> list[float]:
        """Return a point of the design, or a random one while there are too few values."""
        number = self._asked - len(self._points)
        if number < len(self._design):
            return self._design[number]
        return random_point(self._space, self._rng)

    def _most_promising(self) -> list[float] | None:
        """Return the new point of the largest expected improvement; None without a new point."""
        model = self._evidence.model(list(self._in_flight.values()))
        values = model.predict(model.points)[0] if self._noisy else model.values
        several = len(self._goal.each) > 1
        found = self._promising.point(
            model.improvement(values),
            model.good(self._rng),
            climb=several and self._asked % 2 == 1,
        )
        if found is None:
            return None
        point, acquisition = found
        if not several:
            self._acquisitions[self._asked] = acquisition
        return point
