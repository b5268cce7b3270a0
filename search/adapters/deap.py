"""Any strategy of DEAP that generates individuals and is updated with them, such as CMA-ES.

Collette et al.: On object-oriented programming of optimizers (2010).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deap import tools

from search.adapters.adapted import AdaptedSearch, described
from search.errors import InvalidArgument, shown
from search.evolution.population_search import Individual
from search.searcher import Problem, Searcher, one_direction

_EXPECTED = "a strategy of DEAP, or a function of the number of hyperparameters that makes one"
_HINT = "such as lambda n: deap.cma.Strategy(centroid=[0.5] * n, sigma=0.3)"


@dataclass(frozen=True, slots=True)
class DeapSearcher:
    """Settings of a search by a strategy of DEAP, in the unit cube.

    A strategy has `generate(ind_init)`, which returns a generation of individuals, and
    `update(population)`. Each search works on a copy of it.

    There is no barrier: the strategy is updated as soon as there are outcomes for as many trials as
    a generation has, whichever they are, with the best of them if there are more. It generates
    again then, and when all individuals were handed out. The user's points and prior observations
    count as outcomes, too. Individuals outside the unit cube are reflected at its bounds. Failed
    trials, and configurations that the constraint does not allow, rank last.

    Strategies draw from `numpy.random`, and get random numbers of the search there during a call.
    Other threads that draw or seed them meanwhile change the trials, and lose their seed.

    Args:
        strategy: A strategy with one dimension per hyperparameter, or a function that is called
            with their number and returns the strategy: `lambda n: deap.cma.Strategy(centroid=
            [0.5] * n, sigma=0.3)`.

    Raises:
        InvalidArgument: `strategy` is neither.
    """

    strategy: Any

    def __post_init__(self) -> None:
        made = _is_strategy(self.strategy)
        if isinstance(self.strategy, type) or not (made or callable(self.strategy)):
            raise InvalidArgument("strategy", _EXPECTED, shown(self.strategy), _HINT)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        return AdaptedSearch(problem, lambda: _Generations(problem, self.strategy))

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        strategy = self.strategy
        if not _is_strategy(strategy):
            name = str(getattr(strategy, "__qualname__", type(strategy).__name__))
            return {"type": "deap", "strategy": name}
        return {"type": "deap", "strategy": described(strategy, type(strategy))}


class _Generations:
    """A strategy of DEAP as an `Optimiser`; proposals are individuals."""

    exhausted = False

    def __init__(self, problem: Problem, strategy: Any) -> None:
        self._space = problem.space
        self._direction = one_direction(problem)
        self._strategy = _made(strategy, len(problem.space))
        self._received: list[Individual] = []
        self._generated = self._generate()
        self._size = len(self._generated)
        if {len(individual) for individual in self._generated} != {len(problem.space)}:
            expected = f"one that generates points of {len(problem.space)} dimensions"
            raise InvalidArgument("strategy", expected, shown(self._generated), _HINT)

    def propose(self) -> tuple[Individual, dict[str, Any]]:
        if len(self._received) >= self._size:
            self._strategy.update(tools.selBest(self._received, self._size))
            self._received = []
            self._generated = []
        if not self._generated:
            self._generated = self._generate()
        individual = self._generated.pop(0)
        return individual, self._space.decode([_reflected(float(number)) for number in individual])

    def learn(self, proposal: Individual, value: float | None) -> None:
        worst = -math.inf * self._direction.weight
        proposal.fitness.values = (worst if value is None else value,)
        self._received.append(proposal)

    def reject(self, proposal: Individual) -> None:
        self.learn(proposal, None)

    def add(self, params: Mapping[str, Any], value: float | None) -> bool:
        self.learn(Individual(self._space.encode(params), self._direction), value)
        return True

    def _generate(self) -> list[Individual]:
        return list(self._strategy.generate(lambda point: Individual(point, self._direction)))


def _made(strategy: Any, dimensions: int) -> Any:
    if _is_strategy(strategy):
        return copy.deepcopy(strategy)
    made = strategy(dimensions)
    if not _is_strategy(made):
        raise InvalidArgument("strategy", _EXPECTED, f"one that makes {shown(made)}", _HINT)
    return made


def _is_strategy(thing: object) -> bool:
    methods = (getattr(thing, name, None) for name in ("generate", "update"))
    return not isinstance(thing, type) and all(callable(method) for method in methods)


def _reflected(number: float) -> float:
    """Return a number reflected at 0 and 1 until it lies between them."""
    number %= 2.0
    return 2.0 - number if number > 1.0 else number
