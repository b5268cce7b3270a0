"""A policy over sequences of choices, trained by policy gradients."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Step = tuple[int, int]
"""A position and the action taken there."""

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's, as in its paper


class Controller:
    """An autoregressive softmax policy: each action depends on all actions before it.

    The logits of a position are its biases plus, for each action taken before at another position,
    the weights between the two: p(a_i | a_1 ... a_i-1) = softmax(b_i + sum over j of W_ij[a_j]).
    So a sequence may leave positions out, and visit them in any order. At first all weights are
    zero and all actions equally likely.

    It replaces a recurrent network for short sequences: each action sees the actions before it
    directly, not through a hidden state, so it learns from a few hundred sequences.

    Args:
        sizes: The number of actions of each position.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts = np.concatenate(([0], np.cumsum(sizes))).astype(int)
        actions = int(self._starts[-1])
        # A row per action taken before, the last one for the bias; a column per action's logit.
        self.weights = np.zeros((actions + 1, actions))
        self._first = np.zeros_like(self.weights)
        self._second = np.zeros_like(self.weights)
        self._updates = 0

    def probabilities(self, position: int, before: Iterable[Step]) -> npt.NDArray[np.float64]:
        """Return the probabilities of a position's actions, given the actions before."""
        logits = self.weights[self._rows(before), self._columns(position)].sum(axis=0)
        exponentials = np.exp(logits - logits.max())
        probabilities: npt.NDArray[np.float64] = exponentials / exponentials.sum()
        return probabilities

    def draw(self, position: int, before: Iterable[Step], rng: random.Random) -> int:
        """Return an action drawn by these probabilities."""
        probabilities = self.probabilities(position, before).tolist()
        return rng.choices(range(len(probabilities)), probabilities)[0]

    def gradient(
        self, steps: Sequence[Step], advantage: float, entropy: float
    ) -> npt.NDArray[np.float64]:
        """Return the gradient of `advantage * log p(steps) + entropy * H` by the weights.

        H is the sum of the entropies, in nats, of the distributions from which the actions were
        drawn.
        """
        gradient = np.zeros_like(self.weights)
        for number, (position, action) in enumerate(steps):
            before = steps[:number]
            p = self.probabilities(position, before)
            log_p = np.log(np.maximum(p, np.finfo(float).tiny))
            by_logits = -advantage * p - entropy * p * (log_p - p @ log_p)
            by_logits[action] += advantage
            gradient[self._rows(before), self._columns(position)] = by_logits
        return gradient

    def ascend(self, gradient: npt.NDArray[np.float64], learning_rate: float) -> None:
        """Take a step up a gradient (Kingma, Ba: Adam, ICLR 2015, Algorithm 1)."""
        self._updates += 1
        self._first = _BETA1 * self._first + (1 - _BETA1) * gradient
        self._second = _BETA2 * self._second + (1 - _BETA2) * gradient**2
        first = self._first / (1 - _BETA1**self._updates)
        second = self._second / (1 - _BETA2**self._updates)
        self.weights += learning_rate * first / (np.sqrt(second) + _EPSILON)

    def _columns(self, position: int) -> slice:
        return slice(self._starts[position], self._starts[position + 1])

    def _rows(self, before: Iterable[Step]) -> list[int]:
        return [int(self._starts[position]) + action for position, action in before] + [-1]
