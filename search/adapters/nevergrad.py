"""Any optimizer of Nevergrad (Rapin, Teytaud, 2018): CMA, NGOpt, PSO, ..."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from search.adapters.adapted import AdaptedSearch, needed_by
from search.checks import check_integer, make_plain
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher
from search.space.domains import is_unordered
from search.space.spaces import Choice, Domain

MOST_CHOICES = 1000
"""Maximum values of a choice that Nevergrad gets as a list."""

_WORST = 4.9e20
"""Loss of a trial that failed; Nevergrad cuts losses off at 5e20, with a warning."""


@dataclass(frozen=True, slots=True)
class NevergradSearcher:
    """Settings of a search by an optimizer of Nevergrad.

    Needs `pip install nevergrad`.

    A choice becomes Nevergrad's `Choice`, an ordered one its `TransitionChoice`. A number becomes
    its `Scalar` on the unit interval, with the scale and the steps of the hyperparameter; so does a
    choice of more than 1,000 values. Failed trials, and configurations that the constraint does not
    allow, have a huge loss. With several objectives, which any optimizer takes, they have the
    largest loss so far in each: Nevergrad measures volumes by the largest of the first losses.
    `samples` is the optimizer's budget; an optimizer that plans by it cannot continue beyond it.
    The budget includes configurations that the constraint does not allow. An optimizer that has no
    points beyond its budget, such as 'LHSSearch', therefore has too few, and the last trials are
    random configurations.

    Many optimizers draw from `numpy.random`, and get random numbers of the search there during a
    call. Other threads that draw or seed them meanwhile change the trials, and lose their seed.

    Args:
        optimizer: The name of an optimizer, such as 'CMA', or a class or a configured optimizer of
            `nevergrad.optimizers`, such as `ParametrizedCMA(popsize=20)`.
        num_workers: Maximum trials in flight, however many slots there are. Optimizers adapt to it;
            some support only 1, and some would wait for ever with more in flight. Default: the
            number of slots when the search begins, or 1 for an optimizer that supports no more.

    Raises:
        InvalidArgument: Nevergrad is missing, there is no such optimizer, or it does not support
            `num_workers`.
    """

    optimizer: Any
    num_workers: int | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        made, workers = self._optimizer(), self.num_workers
        if workers is not None:
            check_integer("num_workers", workers, 1)
            if made.no_parallelization and workers > 1:
                raise InvalidArgument("num_workers", f"1 for {self._name}", shown(workers))

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        if all(domain.size == 1 for domain in problem.space.values()):
            expected = "at least one hyperparameter with several values"
            raise InvalidArgument("space", expected, shown(dict(problem.space)))
        seed, made = problem.rng.getrandbits(32), self._optimizer()
        workers = self.num_workers
        if workers is None:
            workers = 1 if made.no_parallelization else problem.slots()
        return AdaptedSearch(
            problem, lambda: _Optimizer(problem, made, workers, seed), most_in_flight=workers
        )

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "nevergrad", "optimizer": self._name, "num_workers": self.num_workers}

    @property
    def _name(self) -> str:
        if isinstance(self.optimizer, str):
            return self.optimizer
        return str(getattr(self.optimizer, "__name__", self.optimizer))

    def _optimizer(self) -> Any:
        """Return the class or the configured optimizer that creates optimizers."""
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
        self._space = problem.space
        self._weights = problem.direction.weights
        self._worst: tuple[float, ...] | None = None  # per objective; None before any loss
        self._unsaid: list[Any] = []  # candidates that failed before the first loss
        self._cannot = nevergrad.errors.TellNotAskedNotSupportedError
        self._infinite = nevergrad.errors.BadLossWarning
        self._evolves = isinstance(optimizer, nevergrad.families.DifferentialEvolution)
        parameters = [_parameter(nevergrad.p, domain) for domain in problem.space.values()]
        parametrization = nevergrad.p.Tuple(*parameters)
        parametrization.random_state = np.random.RandomState(seed)
        self._optimizer = optimizer(
            parametrization=parametrization, budget=problem.samples, num_workers=num_workers
        )

    def propose(self) -> tuple[Any, dict[str, Any]] | None:
        try:
            candidate = self._optimizer.ask()
        except AssertionError:  # also says that a sampler has no more points
            if self._optimizer.num_ask < self._optimizer.budget:
                raise
            return None
        pairs = zip(self._space.values(), candidate.value, strict=True)
        return candidate, self._space.decode([_unit(domain, value) for domain, value in pairs])

    def learn(self, proposal: Any, value: float | tuple[float, ...] | None) -> None:
        if value is None:
            self.reject(proposal)
        elif isinstance(value, tuple):
            self._learn_several(proposal, value)
        else:
            self._optimizer.tell(proposal, _loss(value, self._weights[0]))

    def _learn_several(self, candidate: Any, values: tuple[float, ...]) -> None:
        losses = tuple(map(_loss, values, self._weights))
        self._tell_several(candidate, losses)
        self._worst = tuple(map(max, self._worst or losses, losses))
        while self._unsaid:
            with contextlib.suppress(self._cannot):  # a point is none of its own candidates
                self.reject(self._unsaid.pop(0))

    def reject(self, proposal: Any) -> None:
        if len(self._weights) == 1:
            self._optimizer.tell(proposal, _WORST)
        elif self._worst is None:
            self._unsaid.append(proposal)
        else:
            self._tell_several(proposal, self._worst)

    def _tell_several(self, candidate: Any, losses: tuple[float, ...]) -> None:
        with warnings.catch_warnings():
            # Nevergrad itself gives an infinite loss to a candidate worse in all objectives.
            warnings.simplefilter("ignore", self._infinite)
            self._optimizer.tell(candidate, list(losses))

    def add(self, params: Mapping[str, Any], value: float | tuple[float, ...] | None) -> bool:
        pairs = zip(self._space.values(), self._space.encode(params), strict=True)
        values = tuple(_value(domain, unit) for domain, unit in pairs)
        candidate = self._optimizer.parametrization.spawn_child(new_value=values)
        if self._evolves:  # it looks its members up by their lineage, here its parent's
            candidate.heritage["lineage"] = candidate.uid
        try:
            self.learn(candidate, value)
        except self._cannot:
            return False
        return True


def _loss(value: float, weight: float) -> float:
    return min(-weight * value, _WORST)


def _listed(domain: Domain) -> int:
    """Return how many values Nevergrad gets as a list; 0 where it gets the unit interval."""
    return domain.size if isinstance(domain, Choice) and domain.size <= MOST_CHOICES else 0


def _parameter(p: Any, domain: Domain) -> Any:
    """Return Nevergrad's parameter for a hyperparameter: a position or a number of [0, 1]."""
    count = _listed(domain)
    if domain.size == 1:
        return _value(domain, 0.5)
    if not count:
        return p.Scalar(lower=0.0, upper=1.0)
    return (p.Choice if is_unordered(domain) else p.TransitionChoice)(range(count))


def _value(domain: Domain, unit: float) -> float:
    """Return the parameter's value for a coordinate of the unit cube."""
    count = _listed(domain)
    return min(int(unit * count), count - 1) if count else unit


def _unit(domain: Domain, value: float) -> float:
    """Return the coordinate of the unit cube for a parameter's value."""
    count = _listed(domain)
    return (value + 0.5) / count if count else min(max(float(value), 0.0), 1.0)


def _nevergrad() -> Any:
    with needed_by("NevergradSearcher", "nevergrad"):
        import nevergrad
    return nevergrad
