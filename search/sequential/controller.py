"""A policy over sequences of choices that policy gradients train."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Step = tuple[int, int]
"""A position and the action taken there."""

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # of Adam, as its paper has them


class Controller:
    """An autoregressive softmax policy: each action depends on all that were taken before it.

    The logits of a position are its biases plus, for each action taken before at another position,
    the weights between the two: p(a_i | a_1 ... a_i-1) = softmax(b_i + sum over j of W_ij[a_j]).
    So a sequence may leave positions out, and visit them in any order. At first all weights are
    zero, all actions equally likely.

    It is what is left of a recurrent network where sequences are short: each action sees those
    before it without a state to carry them, so a few hundred sequences teach it something.

    Args:
        sizes: How many actions each position has.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts = np.concatenate(([0], np.cumsum(sizes))).astype(int)
        actions = int(self._starts[-1])
        # Row: an action taken before; the last one: the bias. Column: the action whose logit it is.
        self.weights = np.zeros((actions + 1, actions))
        self._first, self._second = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self._updates = 0

    def probabilities(self, position: int, before: Iterable[Step]) -> npt.NDArray[np.float64]:
        """Return how likely each action of a position is after others."""
        logits = self.weights[self._rows(before), self._columns(position)].sum(axis=0)
        exponentials = np.exp(logits - logits.max())
        probabilities: npt.NDArray[np.float64] = exponentials / exponentials.sum()
        return probabilities

    def draw(self, position: int, before: Iterable[Step], rng: random.Random) -> int:
        """Return an action drawn by its probability."""
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
