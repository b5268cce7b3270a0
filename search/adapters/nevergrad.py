"""Any optimizer of Nevergrad (Rapin, Teytaud, 2018): CMA, NGOpt, PSO, ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from search.adapters.adapted import AdaptedSearch, needed_by
from search.algorithms import one_direction
from search.checks import check_integer, make_plain
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher
from search.space import Choice, Domain

MOST_CHOICES = 1000
"""Values of a choice up to which Nevergrad gets a list of them."""

_WORST = 4.9e20
"""Loss of a trial that failed; Nevergrad cuts losses off at 5e20, with a warning."""


@dataclass(frozen=True, slots=True)
class NevergradSearcher:
    """Settings of a search by an optimizer of Nevergrad.

    Needs `pip install "spark-tf-experiment[nevergrad]"`.

    Choices are Nevergrad's `Choice`, ordered ones its `TransitionChoice`; numbers are its `Scalar`
    on the unit interval, on the scale and with the steps of the hyperparameter, and so are choices
    of more than 1,000 values. A trial that failed, and what the constraint does not allow, has
    a huge loss. `samples` is the optimizer's budget; one that plans by it cannot go on with more.

    Args:
        optimizer: The name of an optimizer, such as 'CMA', or a class or a configured optimizer of
            `nevergrad.optimizers`, such as `ParametrizedCMA(popsize=20)`.
        num_workers: Trials at once. Optimizers choose by it how they work, some know only 1, and
            some would wait for ever if there were more: no more are out than this, however many
            slots there are.

    Raises:
        InvalidArgument: Nevergrad is missing, there is no such optimizer, or it cannot have as many
            workers.
    """

    optimizer: Any
    num_workers: int = 1

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("num_workers", self.num_workers, 1)
        made = self._optimizer()
        if made.no_parallelization and self.num_workers > 1:
            raise InvalidArgument("num_workers", f"1 for {self._name}", shown(self.num_workers))

    def start(self, problem: Problem) -> Searcher:
        """See `search.Algorithm`."""
        if all(domain.size == 1 for domain in problem.space.values()):
            expected = "at least one hyperparameter with several values"
            raise InvalidArgument("space", expected, shown(dict(problem.space)))
        seed = problem.rng.getrandbits(32)
        return AdaptedSearch(
            problem,
            lambda: _Optimizer(problem, self._optimizer(), self.num_workers, seed),
            most_out=self.num_workers,
        )

    def to_json(self) -> dict[str, Any]:
        """See `search.Algorithm`."""
        return {"type": "nevergrad", "optimizer": self._name, "num_workers": self.num_workers}

    @property
    def _name(self) -> str:
        if isinstance(self.optimizer, str):
            return self.optimizer
        return str(getattr(self.optimizer, "__name__", self.optimizer))

    def _optimizer(self) -> Any:
        """Return what makes the optimizer."""
        optimizers = _nevergrad().optimizers
        if isinstance(self.optimizer, str) and self.optimizer in optimizers.registry:
            return optimizers.registry[self.optimizer]
        if hasattr(self.optimizer, "no_parallelization") and callable(self.optimizer):
            return self.optimizer
        hint = "such as 'CMA'; nevergrad.optimizers.registry has all names"
        raise InvalidArgument("optimizer", "one of Nevergrad", shown(self.optimizer), hint)


class _Optimizer:
    """An optimizer of Nevergrad as an `Optimiser`; proposals are its candidates."""

    exhausted = False

    def __init__(self, problem: Problem, optimizer: Any, num_workers: int, seed: int) -> None:
        nevergrad = _nevergrad()
        self._space, self._weight = problem.space, one_direction(problem).weight
        self._cannot = nevergrad.errors.TellNotAskedNotSupportedError
        parameters = [_parameter(nevergrad.p, domain) for domain in problem.space.values()]
        parametrization = nevergrad.p.Tuple(*parameters)
        parametrization.random_state = np.random.RandomState(seed)
        self._optimizer = optimizer(
            parametrization=parametrization, budget=problem.samples, num_workers=num_workers
        )

    def propose(self) -> tuple[Any, dict[str, Any]]:
        candidate = self._optimizer.ask()
        pairs = zip(self._space.values(), candidate.value, strict=True)
        return candidate, self._space.decode([_unit(domain, value) for domain, value in pairs])

    def learn(self, proposal: Any, value: float | None) -> None:
        self._optimizer.tell(proposal, self._loss(value))

    def reject(self, proposal: Any) -> None:
        self._optimizer.tell(proposal, _WORST)

    def add(self, params: Mapping[str, Any], value: float | None) -> bool:
        pairs = zip(self._space.values(), self._space.encode(params), strict=True)
        values = tuple(_value(domain, unit) for domain, unit in pairs)
        candidate = self._optimizer.parametrization.spawn_child(new_value=values)
        try:
            self._optimizer.tell(candidate, self._loss(value))
        except self._cannot:
            return False
        return True

    def _loss(self, value: float | None) -> float:
        return _WORST if value is None else min(-self._weight * value, _WORST)


def _listed(domain: Domain) -> int:
    """Return how many values Nevergrad gets a list of; 0 where it gets the unit interval."""
    return domain.size if isinstance(domain, Choice) and domain.size <= MOST_CHOICES else 0


def _parameter(p: Any, domain: Domain) -> Any:
    """Return what stands for a hyperparameter: the position of a choice, or a unit."""
    count = _listed(domain)
    if domain.size == 1:
        return _value(domain, 0.5)
    if not count:
        return p.Scalar(lower=0.0, upper=1.0)
    ordered = isinstance(domain, Choice) and domain.ordered
    return (p.TransitionChoice if ordered else p.Choice)(range(count))


def _value(domain: Domain, unit: float) -> float:
    """Return what stands for a coordinate of the unit cube."""
    count = _listed(domain)
    return min(int(unit * count), count - 1) if count else unit


def _unit(domain: Domain, value: float) -> float:
    """Return the coordinate of the unit cube for which a value stands."""
    count = _listed(domain)
    return (value + 0.5) / count if count else min(max(float(value), 0.0), 1.0)


def _nevergrad() -> Any:
    with needed_by("NevergradSearcher", "spark-tf-experiment[nevergrad]"):
        import nevergrad
    return nevergrad
