"""Objectives of sequences of choices, like architectures: eight positions, five operations each."""

import itertools
import random

import numpy as np

from search.space.spaces import Choice, Space
from search.trial import Outcome

LENGTH, OPERATIONS = 8, ("identity", "conv3", "conv5", "pool", "none")
ARCHITECTURES = Space({f"layer{number}": Choice(OPERATIONS) for number in range(LENGTH)})


def operations_in_pairs(seed, alone=1.0):
    """Return a function whose terms are operations at positions, and pairs of neighbours.

    Args:
        seed: Of its coefficients, normal numbers.
        alone: Weight of the terms of one operation; at 0 an operation is good only beside another.
    """
    rng = np.random.default_rng(seed)
    single = alone * rng.normal(size=(LENGTH, len(OPERATIONS)))
    pairs = rng.normal(size=(LENGTH - 1, len(OPERATIONS), len(OPERATIONS)))
    pairs -= pairs.mean(axis=1, keepdims=True) + pairs.mean(axis=2, keepdims=True)

    def score(params):
        codes = [OPERATIONS.index(operation) for operation in params.values()]
        alone = sum(single[number, code] for number, code in enumerate(codes))
        steps = enumerate(itertools.pairwise(codes))
        return float(alone + sum(pairs[(number, *step)] for number, step in steps))

    return score


def best_found(searcher, score, in_flight=1, seed=0):
    """Return the best score of a search with some trials in flight, which end in any order."""
    rng, out, scores = random.Random(seed), [], []
    while out or not searcher.finished:
        trial = searcher.ask() if len(out) < in_flight else None
        if trial is not None:
            out.append(trial)
            continue
        ended = out.pop(rng.randrange(len(out)))
        scores.append(score(ended.params))
        searcher.tell(Outcome(ended.id, "finished", scores[-1]))
    return max(scores)
