"""Bayesian optimisation: each trial is where a model of the objective expects the most.

Mockus, Tiesis, Zilinskas: The application of Bayesian methods for seeking the extremum (Towards
Global Optimisation 2, 1978); Jones, Schonlau, Welch: Efficient global optimization of expensive
black-box functions (Journal of Global Optimization 13, 1998).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from search.checks import check_flag, make_plain
from search.searcher import Problem, Searcher
from search.sequential.sequential_search import SampledSearch
from search.space.sampling import latin_hypercube, random_point
from search.space.spaces import Choice
from search.trial import Trial

Array = npt.NDArray[np.float64]

DESIGN = 8
"""Evaluated points, prior observations included, before there is a model."""

LEAST = 3
"""Minimum values for a model; it begins with so few when many trials are in flight."""

MODELLED = 300
"""Maximum evaluated points in the model: half of them the latest, half the best of the others."""

RANDOM, NEAR = 500, 300
"""Candidates for a trial: random ones, and those near the best evaluated points."""

ROUNDS, REFINED = 4, 100
"""Rounds in which points near the best candidates are added, and how many per round."""

_BEST = 8  # points near which candidates are drawn
_DISTANCES = (0.3, 0.1, 0.03, 0.01)  # standard deviations of these draws, on an axis 1 long


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
        return BayesianSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "bayesian optimization", **asdict(self)}


class BayesianSearch(SampledSearch):
    """Bayesian optimisation with a Gaussian process, for tens to a few hundreds of costly trials.

    The first trials are `points`, then a Latin hypercube, until there are `DESIGN` configurations,
    prior observations included. From then on a trial is the point of the largest expected
    improvement over the best under a Gaussian process: Matern 5/2, a length scale per
    hyperparameter, and a noise term.

    - Trials in flight count as if they had the value that the model expects ("kriging believer":
      Ginsbourger, Le Riche, Carraro 2010), so any number may be in flight.
    - The model sees each value at its decoded position in the space. Values of an unordered choice
      are all equally far apart.
    - A failed trial counts as the worst value so far, so points near it are avoided; a few failures
      are too few to fit a model of their own.
    - Bad values are moved closer to each other, so that a diverged trial does not hide how the good
      ones differ.
    - No configuration is tried twice before all were, unless the objective is noisy.

    After 1,000 trials an `ask` takes about 0.04 s, and 0.3 s when it fits the model's
    hyperparameters anew, each time the trials have grown by a twentieth (printed by
    `make bench-search`).

    The same `rng` and the same order of `ask` and `tell` give the same trials on processors of the
    same kind; a search that is resumed elsewhere keeps the trials that it had.

    Args:
        problem: The problem to search, with one objective.
        settings: The settings.
    """

    def __init__(self, problem: Problem, settings: BayesianOptimization) -> None:
        # Here, not with the first model: the import takes a second, too long for an ask.
        from search.sequential import gaussian_process

        # Seeded anew for each trial, since a resumed search gets its first ones by `ask_again`.
        super().__init__(problem, random.Random())
        self._model = gaussian_process
        self._noisy = settings.noisy
        self._seed = problem.rng.getrandbits(64)
        self._categorical = tuple(
            isinstance(domain, Choice) and not domain.ordered for domain in self._space.values()
        )
        count = max(DESIGN - len(self._points) - len(problem.known), 0)
        self._design = latin_hypercube(count, len(self._space), problem.rng)
        self._evaluated: list[list[float]] = []
        self._merits: list[float] = []
        self._theta: tuple[int, Array] = 0, np.empty(0)  # number of evaluated points, fit to them
        self._take_known(problem.known)

    def ask(self) -> Trial | None:
        """Return the next trial: a design point, or the most promising one."""
        trial = super().ask()
        if trial is not None:
            self._in_flight[trial.id] = self._space.encode(trial.params)
        return trial

    def ask_again(self, trial: Trial) -> Trial | None:
        """Return the trial without fitting a model."""
        given = trial.id < len(self._points)
        if trial.id != self._asked or (given and trial.params != self._points[trial.id]):
            return None
        point = self._space.encode(trial.params)
        may_repeat = given or (self._noisy and self._has_model())
        if point in self._tried and not may_repeat:
            self._tried.forget()  # as `ask` did: all were tried
        self._tried.add(point)
        self._in_flight[trial.id] = point
        self._asked += 1
        return trial

    def _take(self, point: list[float], score: float | None) -> None:
        self._evaluated.append(point)
        self._merits.append(self._direction.merit(score))

    def _has_model(self) -> bool:
        designed = self._asked >= len(self._points) + len(self._design)
        return designed and sum(map(math.isfinite, self._merits)) >= LEAST

    def _new_point(self) -> list[float]:
        self._rng.seed(self._seed + self._asked)
        if not self._has_model():
            return super()._new_point()
        with self._model.one_thread():
            return self._most_promising() or self._tried.another()

    def _propose(self) -> list[float]:
        """Return a point of the design, or a random one while there are too few values."""
        number = self._asked - len(self._points)
        if number < len(self._design):
            return self._design[number]
        return random_point(self._space, self._rng)

    def _most_promising(self) -> list[float] | None:
        """Return the new point of the largest expected improvement; None without a new point."""
        points, values = self._data(len(self._evaluated))
        model, theta = self._model.GaussianProcess, self._fitted()
        process = model(points, values, theta, self._categorical)
        if self._in_flight:
            out = np.array(list(self._in_flight.values()))
            believed, _ = process.predict(out)
            points, values = np.vstack([points, out]), np.append(values, believed)
            process = model(points, values, theta, self._categorical)
        best = float(process.predict(points)[0].max() if self._noisy else values.max())
        good = points[np.argsort(-values, kind="stable")[:_BEST]]
        return self._maximized(
            lambda some: self._model.log_expected_improvement(*process.predict(some), best), good
        )

    def _maximized(self, score: Callable[[Array], Array], good: Array) -> list[float] | None:
        """Return the new point of the highest score, of random ones and ones near good points."""
        generator = np.random.default_rng(self._rng.getrandbits(64))
        distances = generator.choice(_DISTANCES, size=(NEAR, 1))
        candidates = [
            generator.random((RANDOM, len(self._space))),
            self._near(good[np.arange(NEAR) % len(good)], distances, generator),
        ]
        found, scores = np.empty((0, len(self._space))), np.empty(0)
        for number in range(1 + ROUNDS):
            new = self._new(np.vstack(candidates))
            if len(new):
                found, scores = np.vstack([found, new]), np.append(scores, score(new))
            if not len(found):
                return None
            order = np.argsort(-scores, kind="stable")[:_BEST]
            found, scores = found[order], scores[order]
            around = found[np.arange(REFINED) % len(found)]
            candidates = [self._near(around, 0.1 * 0.4**number, generator)]
        point: list[float] = found[0].tolist()
        return point

    def _near(
        self, points: Array, distances: Array | float, generator: np.random.Generator
    ) -> Array:
        """Return points with about a third of the coordinates, and at least one, moved."""
        count, dimensions = points.shape
        moved = points + distances * generator.normal(size=points.shape)
        moved = np.clip(np.where(moved < 0, -moved, np.where(moved > 1, 2 - moved, moved)), 0, 1)
        moved = np.where(self._categorical, generator.random(points.shape), moved)
        chosen = generator.random(points.shape) < max(0.3, 1.5 / dimensions)
        chosen[np.arange(count), generator.integers(dimensions, size=count)] = True
        return np.where(chosen, moved, points)

    def _new(self, points: Array) -> Array:
        """Return the snapped positions of points that may be tried, each once."""
        space = self._space
        snapped = dict.fromkeys(
            space.snap(point) for point in points.tolist() if space.allows(point)
        )
        return np.array(
            [point for point in snapped if self._noisy or not self._tried.has_snapped(point)]
        )

    def _fitted(self) -> Array:
        """Return the model's hyperparameters, fitted anew whenever the points grow by a twentieth.

        They depend on the outcomes alone, not on when this is called.
        """
        count = len(self._evaluated)
        count -= count % (1 + count // 20)
        if self._theta[0] != count:
            self._theta = count, self._model.fit(*self._data(count), self._categorical)
        return self._theta[1]

    def _data(self, count: int) -> tuple[Array, Array]:
        """Return the first evaluated points and their values, of which the highest is the best."""
        points, merits = np.array(self._evaluated[:count]), np.array(self._merits[:count])
        finite = np.isfinite(merits)
        merits[~finite] = merits[finite].min() if finite.any() else 0.0
        if count > MODELLED:
            earlier, half = count - MODELLED // 2, MODELLED - MODELLED // 2
            best = np.argsort(-merits[:earlier], kind="stable")[:half]
            kept = np.append(np.sort(best), np.arange(earlier, count))
            points, merits = points[kept], merits[kept]
        return points, self._model.normalized(merits)
