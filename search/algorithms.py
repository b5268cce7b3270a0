"""The algorithms of the calls, as settings from which their searchers are started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from search.checks import check_flag, make_plain, plain
from search.errors import InvalidArgument
from search.evolution.generational import DifferentialEvolution
from search.evolution.operators import Mutation
from search.evolution.population_based import PopulationBasedTraining
from search.evolution.steady_state import SteadyStateEvolution
from search.grid import GridSearch
from search.random_search import RandomSearch
from search.searcher import Problem, Searcher, check_own_budget, one_direction, samples_of


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of the values of a space; see `GridSearch`."""

    def start(self, problem: Problem) -> Searcher:
        """See `Algorithm`."""
        check_own_budget(problem)
        if problem.points or problem.known:
            name = "points" if problem.points else "warm_start"
            raise InvalidArgument(name, "nothing for a grid, which tries every point", "some")
        return GridSearch(problem.space)

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"type": "grid"}


@dataclass(frozen=True, slots=True)
class Random:
    """Independent random points; see `RandomSearch`."""

    def start(self, problem: Problem) -> Searcher:
        """See `Algorithm`."""
        return RandomSearch(
            problem.space,
            samples=samples_of(problem),
            rng=problem.rng,
            points=problem.points,
            known=problem.known,
        )

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"type": "random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """Differential evolution; see `SteadyStateEvolution` and `DifferentialEvolution`.

    `popsize * (generations + 1)` trials.

    Args:
        popsize: Individuals, at least 4.
        generations: After the initial population, at least 1.
        crossover: Crossover rate CR of [0, 1].
        mutation: Differential weight F of (0, 2], or two of them to draw it from; None chooses 0.5
            by generation, otherwise (0.5, 1.0).
        strategy: 'rand1bin' or 'current-to-pbest1bin'; None chooses the first by generation,
            otherwise the second.
        generational: Does each generation wait for the end of the last trial of the one before?
        noisy: Does the objective differ from one evaluation of a configuration to the next? Not
            by generation.
    """

    popsize: int = 10
    generations: int = 3
    crossover: float = 0.7
    mutation: Mutation | None = None
    strategy: str | None = None
    generational: bool = False
    noisy: bool = False

    def __post_init__(self) -> None:
        make_plain(self)
        if isinstance(self.mutation, tuple):
            object.__setattr__(self, "mutation", tuple(map(plain, self.mutation)))
        check_flag("generational", self.generational)
        check_flag("noisy", self.noisy)
        if self.noisy and self.generational:
            hint = "by generation no trial is repeated"
            raise InvalidArgument("noisy", "False with generational=True", "True", hint)
        defaults = ("rand1bin", 0.5) if self.generational else ("current-to-pbest1bin", (0.5, 1.0))
        for name, default in zip(("strategy", "mutation"), defaults, strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    def start(self, problem: Problem) -> Searcher:
        """See `Algorithm`."""
        check_own_budget(problem)
        arguments = asdict(self) | {"points": problem.points, "known": problem.known}
        if arguments.pop("generational"):
            kind: Callable[..., Searcher] = DifferentialEvolution
            del arguments["noisy"]
        else:
            kind = SteadyStateEvolution
        direction = one_direction(problem)
        return kind(problem.space, rng=problem.rng, direction=direction, **arguments)

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        arguments = asdict(self)
        if isinstance(self.mutation, tuple):
            arguments["mutation"] = list(self.mutation)
        if not self.noisy:  # a run of before that could be said goes on
            del arguments["noisy"]
        return {"type": "differential evolution", **arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationTraining:
    """Population based training; see `PopulationBasedTraining`.

    `popsize * (generations + 1)` trials.

    Args:
        popsize: Members, at least 2.
        generations: After the initial one, at least 1.
        quantile: Share of the members, of [0, 0.5], that are replaced by copies of as many best.
        resample_probability: That a hyperparameter of a copy is drawn anew rather than perturbed.
    """

    popsize: int = 10
    generations: int = 10
    quantile: float = 0.25
    resample_probability: float = 0.25

    def __post_init__(self) -> None:
        make_plain(self)

    def start(self, problem: Problem) -> Searcher:
        """See `Algorithm`."""
        check_own_budget(problem)
        if problem.known:
            expected = "nothing for population based training"
            hint = "its members go on from checkpoints of the same run; say points="
            raise InvalidArgument("warm_start", expected, "some", hint)
        return PopulationBasedTraining(
            problem.space,
            rng=problem.rng,
            direction=one_direction(problem),
            points=problem.points,
            **asdict(self),
        )

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"type": "population based training", **asdict(self)}
