"""Differential evolution by generation, with DEAP's toolbox, statistics, logbook, hall of fame.

Storn, Price: Differential Evolution (Journal of Global Optimization 11, 1997), rand/1/bin.
DEAP has no operators of differential evolution, and those that it has draw from the global
`random`; so the operators here are our own, take a generator, and are registered under DEAP's
usual names.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from deap import base, tools

from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.sampling import latin_hypercube
from search.space import Space
from search.trial import Outcome, Trial


class _Maximize(base.Fitness):  # type: ignore[misc]  # deap has no types
    weights = (Direction.MAX.weight,)


class _Minimize(base.Fitness):  # type: ignore[misc]  # deap has no types
    weights = (Direction.MIN.weight,)


class Individual(list[float]):
    """A point of the unit cube with its fitness; the fitness is invalid until it was evaluated.

    Not made by `deap.creator`, which writes classes into a global module.
    """

    def __init__(self, point: Sequence[float], direction: Direction) -> None:
        super().__init__(point)
        self.fitness = _Maximize() if direction is Direction.MAX else _Minimize()

    @property
    def score(self) -> float | None:
        """The objective, or None where the trial failed or is not done."""
        return self.fitness.values[0] if self.fitness.valid else None


class DifferentialEvolution:
    """Differential evolution, one generation after the other.

    Generation 0 is a Latin hypercube; then every individual of the population meets one trial
    vector per generation and is replaced by it unless it is better. `popsize * (generations + 1)`
    trials in all. `ask` returns None while the last trials of a generation are out.

    The same `rng` gives the same trials whatever the order in which outcomes are told. A failed
    trial never replaces an individual that has a value.

    Args:
        space: What to search.
        direction: 'max' or 'min' of the objective.
        popsize: Individuals, at least 4, since rand/1 takes three parents beside the individual.
        generations: After the initial one, at least 1.
        crossover: Crossover rate CR of [0, 1]: the share of coordinates taken from the mutant.
        mutation: Differential weight F of (0, 2].
        rng: Owned by the searcher from now on.

    Attributes:
        toolbox: DEAP's, with `population`, `select`, `mutate`, `mate`, `repair` registered; swap
            one by registering another function of the same signature before the first `ask`.
        logbook: DEAP's, one record per generation: gen, evals, best, mean, std, diversity (the mean
            over the axes of the population's standard deviation in the unit cube), acceptance (the
            share of trial vectors that took their individual's place; None for generation 0).
        hall_of_fame: DEAP's, the best individual so far.
    """

    def __init__(
        self,
        space: Space,
        *,
        rng: random.Random,
        direction: Direction = Direction.MAX,
        popsize: int = 10,
        generations: int = 3,
        crossover: float = 0.7,
        mutation: float = 0.5,
    ) -> None:
        _check_integer("popsize", popsize, 4)
        _check_integer("generations", generations, 1)
        _check_number("crossover", crossover, "[0, 1]", lambda rate: 0 <= rate <= 1)
        _check_number("mutation", mutation, "(0, 2]", lambda weight: 0 < weight <= 2)
        self._space, self._direction = space, direction
        self.popsize, self.generations = popsize, generations
        self.total = popsize * (generations + 1)
        self.toolbox = _toolbox(len(space), popsize, crossover, mutation, rng)
        self._statistics = tools.Statistics()
        self._statistics.register("best", _over_scores(self._best))
        self._statistics.register("mean", _over_scores(np.mean))
        self._statistics.register("std", _over_scores(np.std))
        self._statistics.register(
            "diversity", lambda population: float(np.std(population, axis=0).mean())
        )
        self.logbook = tools.Logbook()
        self.logbook.header = ["gen", "evals", *self._statistics.fields, "acceptance"]
        self.hall_of_fame = tools.HallOfFame(1)
        self._population: list[Individual] = []
        self._candidates: list[Individual] = []  # of the generation that is being evaluated
        self._asked = 0  # trials handed out, in all
        self._out: dict[int, Individual] = {}

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._asked >= self.total

    @property
    def population(self) -> list[dict[str, Any]]:
        """The hyperparameters of each individual after the last generation that is done."""
        return [self._space.decode(member) for member in self._population]

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        generation, index = divmod(self._asked, self.popsize)
        if index == 0:
            if self._out:
                return None
            self._candidates = self._breed()
        candidate = self._candidates[index]
        trial = Trial(self._asked, self._space.decode(candidate), generation)
        self._out[trial.id] = candidate
        self._asked += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        candidate = self._out.pop(outcome.trial)
        if self._direction.better(outcome.value, None):  # a number, whatever the direction
            candidate.fitness.values = (outcome.value,)
        if not self._out and self._asked % self.popsize == 0:
            self._select_survivors()

    def _breed(self) -> list[Individual]:
        if not self._population:
            points = self.toolbox.population()
        else:
            points = [self._trial_vector(index) for index in range(self.popsize)]
        return [Individual(point, self._direction) for point in points]

    def _trial_vector(self, index: int) -> list[float]:
        target = self._population[index]
        mutant = self.toolbox.mutate(*self.toolbox.select(self._population, index))
        vector: list[float] = self.toolbox.repair(self.toolbox.mate(target, mutant), target)
        return vector

    def _select_survivors(self) -> None:
        acceptance = None
        if not self._population:
            self._population = self._candidates
        else:
            pairs = list(zip(self._population, self._candidates, strict=True))
            accepted = [not self._direction.better(p.score, child.score) for p, child in pairs]
            self._population = [
                child if taken else parent
                for (parent, child), taken in zip(pairs, accepted, strict=True)
            ]
            acceptance = sum(accepted) / self.popsize
        self.hall_of_fame.update([member for member in self._candidates if member.fitness.valid])
        generation = self._asked // self.popsize - 1
        record = self._statistics.compile(self._population)
        self.logbook.record(gen=generation, evals=self.popsize, **record, acceptance=acceptance)

    def _best(self, scores: Sequence[float]) -> float | None:
        return self._direction.best(scores, lambda score: score)


def _over_scores(function: Callable[[Any], Any]) -> Callable[[list[Individual]], float | None]:
    def apply(population: list[Individual]) -> float | None:
        scores = [member.score for member in population if member.score is not None]
        if not scores:
            return None
        with np.errstate(all="ignore"):  # the mean of huge scores overflows
            value = float(function(scores))
        return value if math.isfinite(value) else None

    return apply


def _toolbox(
    dimensions: int, popsize: int, crossover: float, mutation: float, rng: random.Random
) -> Any:
    toolbox = base.Toolbox()
    toolbox.register("population", latin_hypercube, popsize, dimensions, rng)
    toolbox.register("select", select_rand1, rng=rng)
    toolbox.register("mutate", mutate_rand1, weight=mutation)
    toolbox.register("mate", mate_binomial, rate=crossover, rng=rng)
    toolbox.register("repair", repair_between, rng=rng)
    return toolbox


def select_rand1(
    population: Sequence[list[float]], index: int, *, rng: random.Random
) -> list[list[float]]:
    """Return three different individuals, none of them number `index`."""
    others = [number for number in range(len(population)) if number != index]
    return [population[number] for number in rng.sample(others, 3)]


def mutate_rand1(
    base_vector: list[float], plus: list[float], minus: list[float], *, weight: float
) -> list[float]:
    """Return base + F * (plus - minus), equation (1) of Storn and Price 1997."""
    vectors = zip(base_vector, plus, minus, strict=True)
    return [x + weight * (a - b) for x, a, b in vectors]


def mate_binomial(
    target: list[float], mutant: list[float], *, rate: float, rng: random.Random
) -> list[float]:
    """Return the target with each coordinate, and one for sure, taken from the mutant at `rate`."""
    forced = rng.randrange(len(target))
    return [
        m if rng.random() < rate or index == forced else t
        for index, (t, m) in enumerate(zip(target, mutant, strict=True))
    ]


def repair_between(vector: list[float], target: list[float], *, rng: random.Random) -> list[float]:
    """Draw each coordinate that left the unit cube anew, between the target and the bound crossed.

    Clipping instead would heap points up on the bounds ("bounce-back": Price, Storn, Lampinen:
    Differential Evolution, 2005, section 4.3.1).
    """
    return [
        x if 0 <= x <= 1 else t + rng.random() * ((0.0 if x < 0 else 1.0) - t)
        for x, t in zip(vector, target, strict=True)
    ]


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgument(name, f"an integer of at least {least}", shown(value))


def _check_number(name: str, value: object, interval: str, inside: Callable[[float], bool]) -> None:
    if type(value) not in (int, float) or not inside(value):  # type: ignore[arg-type]  # a number by now
        raise InvalidArgument(name, f"a number of {interval}", shown(value))
