"""The random numbers that the workers of a trial share."""

from __future__ import annotations

import random

from spark_jobs.strategies.in_step.random_numbers import share_random_numbers
from tests.search.adapters.spaces import global_random_numbers
from tests.spark_jobs.strategies.gang import Star


def shuffles(repeats, draws=3):
    """Return the seeds of shuffles by repeat, in an attempt that makes these repeats."""
    running = [0]
    with global_random_numbers(0):
        random.seed(7)  # as of the trial, in each attempt
        numbers = share_random_numbers(Star(0, []), lambda: running[0])
        found = {}
        for running[0] in repeats:
            found[running[0]] = [numbers.getrandbits(31) for _ in range(draws)]
    return found


def test_a_repeat_shuffles_alike_in_every_attempt():
    first, again = shuffles([0, 1, 2]), shuffles([2])
    assert again[2] == first[2]
    assert len({tuple(drawn) for drawn in first.values()}) == 3


def test_a_repeat_that_was_left_early_does_not_change_the_next_one():
    assert shuffles([0, 1], draws=1)[1] == shuffles([0, 1])[1][:1]
