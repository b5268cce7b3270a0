"""The settings of the built-in algorithms; `start` makes a searcher of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from search.errors import InvalidArgument
from search.evolution.generational import DifferentialEvolution
from search.evolution.settings import EvolutionSettings
from search.evolution.steady_state import SteadyStateEvolution
from search.grid import GridSearch
from search.random_search import RandomSearch
from search.searcher import Problem, Searcher, check_own_budget


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of the values of a space; see `GridSearch`."""

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        check_own_budget(problem)
        if problem.points or problem.known:
            name = "points" if problem.points else "warm_start"
            raise InvalidArgument(name, "none for a grid, which tries every point", "some")
        return GridSearch(problem.space)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "grid"}


@dataclass(frozen=True, slots=True)
class Random:
    """Random points, none of them twice; see `RandomSearch`."""

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        return RandomSearch(problem)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(EvolutionSettings):
    """Differential evolution; see `SteadyStateEvolution` and `DifferentialEvolution`."""

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        check_own_budget(problem)
        kind = DifferentialEvolution if self.generational else SteadyStateEvolution
        return kind(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        arguments = asdict(self)
        if isinstance(self.mutation, tuple):
            arguments["mutation"] = list(self.mutation)
        if self.generational:
            del arguments["candidates"]
        return {"type": "differential evolution", **arguments}
