"""New configurations for the brackets of Hyperband, by what their trials have shown so far."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from search.direction import Direction
from search.evolution.operators import breed, make_toolbox
from search.evolution.population_search import Individual
from search.evolution.screening import Screen
from search.evolution.settings import EvolutionSettings
from search.evolution.steady_state import COLLAPSED
from search.sequential.bayesian import DESIGN, LEAST
from search.sequential.promising import Promising
from search.space.sampling import TRIES, latin_hypercube
from search.space.spaces import Float, Space
from search.space.tried import Tried

_CANDIDATES = 5
"""Trial vectors per screened configuration, of which the most promising one is proposed."""


class Proposals(Protocol):
    """Proposes configurations, and learns from trials of different lengths."""

    def propose(
        self, number: int, in_flight: Sequence[tuple[list[float], int]]
    ) -> list[float] | None:
        """Return a point that the constraint allows and that was not tried; None if none is left.

        It depends on the points that were taken, not on earlier proposals.

        Args:
            number: The number of configurations before it.
            in_flight: The point and the rung of each trial in flight.
        """

    def take(self, point: list[float], rung: int, score: float | None) -> None:
        """Take in a point's score at a rung; None for a failed trial."""


class Evolved:
    """Configurations by differential evolution, from the best of the highest rung with enough.

    As in DEHB (Awad, Mallik, Hutter: DEHB: Evolutionary Hyperband for Scalable, Robust and
    Efficient Hyperparameter Optimization, IJCAI 2021) each rung has a population, and information
    goes from short trials to long ones. Here it is always the best `popsize` points of the rung,
    and the configurations that they breed begin in the lowest rung of a bracket, so that a trial
    keeps its configuration, and can resume from its checkpoint, when it is promoted. Operators
    and defaults are those of `SteadyStateEvolution`, and so is the screening, of fewer vectors.

    Args:
        space: The search space.
        direction: Direction of the objective.
        rungs: The number of rungs.
        tried: The tried configurations.
        rng: The generator; whoever owns it may seed it before each proposal.
    """

    def __init__(
        self, space: Space, direction: Direction, *, rungs: int, tried: Tried, rng: random.Random
    ) -> None:
        settings = EvolutionSettings()
        self._space = space
        self._direction = direction
        self._tried = tried
        self._rng = rng
        self._popsize = settings.popsize
        self._toolbox = make_toolbox(len(space), settings, direction=direction, rng=rng)
        self._design = latin_hypercube(settings.popsize, len(space), rng)
        # The best `popsize` of each rung, the best first, and of equal ones the earliest.
        self._best: list[list[Individual]] = [[] for _ in range(rungs)]
        self._screens = [Screen(space, direction) for _ in range(rungs)]

    def propose(
        self, number: int, in_flight: Sequence[tuple[list[float], int]]
    ) -> list[float] | None:
        """Return a screened trial vector, or a design point before there is a population."""
        enough = [rung for rung, some in enumerate(self._best) if len(some) >= self._popsize]
        point = None
        if enough:
            point = self._trial_vector(enough[-1])
        elif number < len(self._design) and self._tried.is_new(self._design[number]):
            point = self._design[number]
        return self._tried.another() if point is None else point

    def take(self, point: list[float], rung: int, score: float | None) -> None:
        """Add a point to its rung."""
        self._screens[rung].add(point, score)
        if score is not None:
            individual = Individual(point, self._direction)
            individual.fitness.values = (score,)
            best = self._best[rung]
            best.append(individual)
            best.sort(key=lambda member: -self._direction.merit(member.score))
            del best[self._popsize :]

    def _trial_vector(self, rung: int) -> list[float] | None:
        screen, population = self._screens[rung], self._best[rung]
        if np.std([self._space.snap(member) for member in population], axis=0).max() < COLLAPSED:
            return None

        def vectors() -> Iterator[list[float]]:
            index = self._rng.randrange(self._popsize)
            for _ in range(TRIES):
                yield breed(self._toolbox, population, index)

        return screen.choose(filter(self._tried.is_new, vectors()), _CANDIDATES, self._rng)


class Modelled:
    """Configurations where a Gaussian process over points and rungs expects the most.

    After MOBSTER (Klein, Tiao, Lienart, Archambeau, Seeger: Model-based Asynchronous Hyperparameter
    and Neural Architecture Search, arXiv:2003.10865, 2020): one process for all rungs, of which the
    rung is one more coordinate, and expected improvement at the highest rung with some values. With
    more than 300 points the process keeps the latest and the best; if it keeps fewer than three of
    that rung, the next lower rung with three takes its place.
    The latest 300 trials in flight count as if they had the value that the model expects.
    Otherwise it is the model of `BayesianSearch`.

    Arguments as for `Evolved`.
    """

    def __init__(
        self, space: Space, direction: Direction, *, rungs: int, tried: Tried, rng: random.Random
    ) -> None:
        from search.sequential.evidence import Evidence  # late: scikit-learn takes a second

        self._direction = direction
        self._tried = tried
        self._last = max(rungs - 1, 1)
        self._counts = [0] * rungs  # values of each rung
        self._design = latin_hypercube(DESIGN, len(space), rng)
        self._evidence = Evidence([*space.values(), Float(0.0, 1.0)])  # the last: the rung
        self._promising = Promising(space, rng, lambda snapped: not tried.has_snapped(snapped))

    def propose(
        self, number: int, in_flight: Sequence[tuple[list[float], int]]
    ) -> list[float] | None:
        """Return the most promising point, or a design point before there is a model."""
        enough = [rung for rung, count in enumerate(self._counts) if count >= LEAST]
        point = None
        if number < len(self._design):
            design = self._design[number]
            if self._tried.is_new(design):
                point = design
        elif enough:
            point = self._most_promising(enough[-1], in_flight)
        return self._tried.another() if point is None else point

    def take(self, point: list[float], rung: int, score: float | None) -> None:
        """Add a point with its rung to the model's data."""
        self._counts[rung] += score is not None
        self._evidence.add([*point, rung / self._last], self._direction.merit(score))

    def _most_promising(
        self, highest: int, in_flight: Sequence[tuple[list[float], int]]
    ) -> list[float] | None:
        with self._evidence.one_thread():
            model = self._evidence.model([[*point, out / self._last] for point, out in in_flight])
            points, values = model.points, model.values
            rungs = np.rint(points[:, -1] * self._last).astype(int)
            counts = np.bincount(rungs)[: highest + 1]
            enough = np.flatnonzero(counts >= LEAST)
            rung = int(enough[-1] if len(enough) else rungs.max())
            at = rung / self._last
            there = rungs == rung
            points, values = points[there, :-1], values[there]
            good = points[np.argsort(-values[:, 0], kind="stable")]
            expected = model.improvement(values)
            found = self._promising.point(
                lambda some: expected(np.column_stack([some, np.full(len(some), at)])), good
            )
            return None if found is None else found[0]
