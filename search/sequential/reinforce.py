"""Search by reinforcement learning: a controller that learns which choices are rewarded.

Zoph, Le: Neural Architecture Search with Reinforcement Learning (ICLR 2017), with the policy
gradient of Williams: Simple Statistical Gradient-Following Algorithms for Connectionist
Reinforcement Learning (Machine Learning 8, 1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

import numpy as np

from search.checks import check_integer, check_number, make_plain
from search.errors import InvalidArgument
from search.searcher import Problem, Searcher, one_direction
from search.sequential.controller import Controller, Step
from search.sequential.sequential_search import SequentialSearch
from search.space.spaces import Choice, Domain, Integer

MOST_ACTIONS = 1000
"""Maximum actions of all positions together; the controller has a weight for each pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforce:
    """Settings of a search by reinforcement learning; see `ReinforceSearch`.

    Args:
        learning_rate: Adam's learning rate of (0, 1]: about how far one trial moves a weight.
        entropy: Weight of the entropy bonus of [0, 100], with rewards of standard deviation 1: the
            higher, the later the controller converges.
        decay: Decay of the baseline of [0, 1): the share of the last baseline in the next.
        bins: Maximum actions of a number, at least 2. All hyperparameters together have at most
            1,000 actions; a choice has one for each value.

    Raises:
        InvalidArgument: A number is out of its range.
    """

    learning_rate: float = 0.05
    entropy: float = 0.1
    decay: float = 0.9
    bins: int = 8

    def __post_init__(self) -> None:
        make_plain(self)
        rate, bonus, decay = self.learning_rate, self.entropy, self.decay
        check_number("learning_rate", rate, "a number of (0, 1]", lambda rate: 0 < rate <= 1)
        check_number("entropy", bonus, "a number of [0, 100]", lambda bonus: 0 <= bonus <= 100)
        check_number("decay", decay, "a number of [0, 1)", lambda decay: 0 <= decay < 1)
        check_integer("bins", self.bins, 2)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        return ReinforceSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "reinforce", **asdict(self)}


class ReinforceSearch(SequentialSearch):
    """REINFORCE with a baseline over sequences of choices (Williams 1992; Zoph and Le 2017).

    A configuration is a sequence of actions, one per active hyperparameter, parents before the
    hyperparameters that depend on them: the controller draws each with a probability that depends
    on those before. An inactive hyperparameter is not in the sequence. An action is a value of a
    choice, or of a number with at most `bins` values; a number with more has `bins` actions, equal
    parts of the unit interval, and its value is drawn evenly from the part.

    Each outcome moves the controller one step of Adam up the gradient of
    `(reward - baseline) * log p + entropy * H`, where p and H are the configuration's under the
    current parameters, not under those it was proposed with: with K trials in flight they are K
    updates apart, which is not corrected for. A reward is the rank of an objective among all so
    far, scaled to a mean of 0 and a standard deviation of 1, so neither the objective's scale nor
    an outlier, such as a diverged training, matters. The baseline is the exponential moving average
    of the rewards. A failed trial has the reward of the worst value so far, and none before the
    first value.

    A configuration that was tried, prior observations included, is drawn again up to 20 times, then
    replaced by a random one: none is tried twice, and a space with fewer of them than trials ends
    the search early. So a controller that has converged keeps exploring nearby. The user's points
    are tried literally. There is always another trial, whatever is in flight.

    The same `rng` and the same order of `ask` and `tell` give the same trials.

    Args:
        problem: The problem to search, with one objective and at most 1,000 actions in all. Each of
            its prior observations is one update, before the first trial.
        settings: The settings.

    Raises:
        InvalidArgument: The space has too many actions.
    """

    def __init__(self, problem: Problem, settings: Reinforce) -> None:
        self._direction = one_direction(problem)
        super().__init__(problem)
        self._settings = settings
        self._sizes = [_actions(domain, settings.bins) for domain in self._space.values()]
        if sum(self._sizes) > MOST_ACTIONS:
            raise InvalidArgument(
                "space",
                f"at most {MOST_ACTIONS:,} actions, all hyperparameters together",
                f"{sum(self._sizes):,}",
                "use RegularizedEvolution, or Integer for a long range",
            )
        self._positions = {name: position for position, name in enumerate(self._space)}
        self._controller = Controller(self._sizes)
        self._merits: list[float] = []  # one per value so far
        self._baseline: float | None = None
        self._take_known(problem.known)

    def _propose(self) -> list[float]:
        point, domains = [0.5] * len(self._space), list(self._space.values())

        def drawn(position: int, before: Sequence[Step]) -> float:
            action = self._controller.draw(position, before, self._rng)
            domain, size = domains[position], self._sizes[position]
            if _is_log_of_few(domain, size):
                point[position] = domain.encode(domain.low + action)
            else:
                point[position] = (action + self._rng.random()) / size
            return point[position]

        self._steps(drawn)
        return point

    def _steps(self, unit_of: Callable[[int, Sequence[Step]], float]) -> list[Step]:
        """Return the actions of a configuration in their order.

        Args:
            unit_of: Returns the coordinate of a position in [0, 1], given the actions before.
        """
        steps: list[Step] = []

        def value_of(name: str) -> Any:
            position, domain = self._positions[name], self._space[name]
            unit = unit_of(position, steps)
            steps.append((position, _action_at(unit, domain, self._sizes[position])))
            return domain.decode(unit)

        self._space.assemble(value_of)
        return steps

    def _take(self, point: list[float], scores: tuple[float, ...] | None) -> None:
        if scores is not None:
            self._merits.append(self._direction.merit(scores[0]))
        if not self._merits:
            return
        reward = self._reward(min(self._merits) if scores is None else self._merits[-1])
        baseline = reward if self._baseline is None else self._baseline
        settings = self._settings
        self._baseline = settings.decay * baseline + (1 - settings.decay) * reward
        steps = self._steps(lambda position, _: point[position])
        gradient = self._controller.gradient(steps, reward - baseline, settings.entropy)
        self._controller.ascend(gradient, settings.learning_rate)

    def _reward(self, merit: float) -> float:
        """Return the rank of a merit among all so far, scaled to mean 0 and deviation 1."""
        merits = np.array(self._merits)
        share = ((merits < merit).mean() + (merits <= merit).mean()) / 2
        return float(math.sqrt(3) * (2 * share - 1))  # uniform numbers have deviation 1 / sqrt(3)


def _is_log_of_few(domain: Domain, actions: int) -> TypeGuard[Integer]:
    """Whether an action is a value, although the values are no equal parts of the unit interval."""
    return isinstance(domain, Integer) and domain.log and domain.size == actions


def _action_at(unit: float, domain: Domain, actions: int) -> int:
    """Return the action to which a coordinate of [0, 1] belongs."""
    if _is_log_of_few(domain, actions):
        return domain.decode(unit) - domain.low
    return min(int(unit * actions), actions - 1)


def _actions(domain: Domain, bins: int) -> int:
    if isinstance(domain, Choice):
        return domain.size
    return bins if domain.size is None else min(domain.size, bins)
