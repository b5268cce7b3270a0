"""The arithmetic of training out of step: changes that a worker sends, weights that it takes."""

from __future__ import annotations

from typing import Protocol

from spark_jobs.strategies.settings import Downpour
from spark_jobs.strategies.weights import Vector

_BETA = 0.9  # the moving rate times the number of workers, as in the experiments of Zhang et al.


class Shared(Protocol):
    """The weights that the workers share; a `SharedVector` to which changes are added."""

    def fetch(self) -> Vector:
        """Return the shared weights."""

    def push(self, change: Vector) -> int:
        """Add a change; return how many changes others have made since the last fetch."""


def add(values: Vector, change: Vector) -> None:
    """Add a worker's change to a part of a shared vector, in place."""
    values += change


class Rule(Protocol):
    """A worker's part in the exchange of weights. It keeps the arrays that it gets and returns."""

    def exchange(self, weights: Vector, *, push: bool, fetch: bool) -> Vector:
        """Send to the others, or take from them, or both.

        Args:
            weights: The worker's weights.
            push: Whether it is time to send.
            fetch: Whether it is time to take.

        Returns:
            The weights with which the worker goes on.
        """


class Changes:
    """Downpour: a worker sends what its weights have changed by, and takes the shared weights.

    Dean et al.: Large scale distributed deep networks, NIPS 2012, section 4.1. There a worker sends
    its gradients, and servers apply them; here its own optimizer does. What it has not sent yet
    stays in its weights when it takes those of all.

    Args:
        shared: The shared weights.
        initial: The weights with which all workers begin.
    """

    def __init__(self, shared: Shared, initial: Vector) -> None:
        self._shared = shared
        self._sent = initial  # the weights of which the others know

    def exchange(self, weights: Vector, *, push: bool, fetch: bool) -> Vector:
        """See `Rule.exchange`."""
        if push:
            self._shared.push(weights - self._sent)
            self._sent = weights
        if fetch:
            taken = self._shared.fetch()
            weights, self._sent = taken + (weights - self._sent), taken
        return weights


class Elastic:
    """Elastic averaging: a worker and the shared weights, the centre, move towards each other.

    Zhang, Choromanska, LeCun: Deep learning with elastic averaging SGD, NIPS 2015, algorithm 1.

    Args:
        shared: The shared weights.
        moving_rate: The part of their difference by which both move.
    """

    def __init__(self, shared: Shared, moving_rate: float) -> None:
        self._shared = shared
        self._moving_rate = moving_rate

    def exchange(self, weights: Vector, *, push: bool, fetch: bool) -> Vector:
        """See `Rule.exchange`; both are due at the same steps."""
        if not (push or fetch):
            return weights
        pull = self._moving_rate * (weights - self._shared.fetch())
        self._shared.push(pull)
        return weights - pull


def rule_of(settings: Downpour, shared: Shared, initial: Vector, workers: int) -> Rule:
    """Return the rule of a worker.

    Args:
        settings: The strategy.
        shared: The shared weights.
        initial: The weights with which all workers begin.
        workers: The number of workers.
    """
    if settings.rule == "downpour":
        return Changes(shared, initial)
    rate = settings.moving_rate
    return Elastic(shared, _BETA / workers if rate is None else rate)
