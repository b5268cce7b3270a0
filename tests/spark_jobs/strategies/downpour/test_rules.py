"""The arithmetic of training out of step, without a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.strategies.downpour.rules import Changes, Elastic, rule_of
from spark_jobs.strategies.settings import Downpour
from tests.properties import examples
from tests.spark_jobs.communicator.gangs import results

LENGTH = 7
ORDERS = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=20)
"""Exchanges: the worker, and whether it sends and takes."""


def add(values, change):
    values += change


class Vector:
    """Shared weights within this process."""

    def __init__(self, initial):
        self.values = initial.copy()

    def fetch(self):
        return self.values.copy()

    def push(self, change):
        self.values += change
        return 0


def steps(seed):
    """Yield the changes of a worker's own steps."""
    numbers = np.random.default_rng(seed)
    while True:
        yield numbers.normal(size=LENGTH)


@examples(50)
@given(ORDERS)
def test_with_downpour_no_change_is_lost_and_none_counts_twice(order):
    initial = np.arange(LENGTH, dtype=float)
    shared, changes = Vector(initial), [steps(rank) for rank in range(3)]
    rules = [Changes(shared, initial) for _ in range(3)]
    weights = [initial.copy() for _ in range(3)]
    total = initial.copy()
    for worker, push, fetch in [*order, (0, True, False), (1, True, False), (2, True, True)]:
        change = next(changes[worker])
        total += change
        weights[worker] = weights[worker] + change
        weights[worker] = rules[worker].exchange(weights[worker], push=push, fetch=fetch)
    np.testing.assert_allclose(shared.values, total)
    np.testing.assert_allclose(weights[2], total)


def test_with_downpour_a_worker_keeps_what_it_has_not_sent():
    shared = Vector(np.zeros(2))
    rule, other = Changes(shared, np.zeros(2)), Changes(shared, np.zeros(2))
    other.exchange(np.array([10.0, 20.0]), push=True, fetch=False)
    taken = rule.exchange(np.array([1.0, 2.0]), push=False, fetch=True)
    np.testing.assert_array_equal(taken, [11, 22])
    np.testing.assert_array_equal(shared.values, [10, 20])
    np.testing.assert_array_equal(rule.exchange(taken, push=True, fetch=False), taken)
    np.testing.assert_array_equal(shared.values, [11, 22])


@examples(50)
@given(st.floats(0.01, 0.99), st.lists(st.integers(0, 2), max_size=20))
def test_elastic_averaging_is_that_of_the_paper(rate, order):
    """Algorithm 1: x <- x - a (x - c); c <- c + a (x - c), with the same x and c in both."""
    initial = np.arange(LENGTH, dtype=float)
    shared, changes = Vector(initial), [steps(rank) for rank in range(3)]
    rules = [Elastic(shared, rate) for _ in range(3)]
    weights, expected, centre = [initial] * 3, [initial] * 3, initial
    for worker in order:
        change = next(changes[worker])
        weights[worker] = rules[worker].exchange(weights[worker] + change, push=True, fetch=True)
        own = expected[worker] + change
        expected[worker], centre = own - rate * (own - centre), centre + rate * (own - centre)
    np.testing.assert_allclose(weights, expected)
    np.testing.assert_allclose(shared.values, centre)


def test_nothing_changes_between_two_exchanges():
    shared, weights = Vector(np.zeros(2)), np.ones(2)
    for rule in (Changes(shared, np.zeros(2)), Elastic(shared, 0.5)):
        assert rule.exchange(weights, push=False, fetch=False) is weights
    np.testing.assert_array_equal(shared.values, 0)


def test_the_moving_rate_is_by_default_that_of_the_paper():
    shared = Vector(np.zeros(1))
    for settings, expected in [
        (Downpour(rule="easgd"), 0.9 / 3),
        (Downpour(rule="easgd", moving_rate=0.25), 0.25),
    ]:
        rule = rule_of(settings, shared, np.zeros(1), 3)
        assert 1 - rule.exchange(np.ones(1), push=True, fetch=True)[0] == pytest.approx(expected)
        shared.values[:] = 0
    assert isinstance(rule_of(Downpour(), shared, np.zeros(1), 3), Changes)


@examples(20)
@given(st.integers(1, 4), st.integers(0, 9), st.sampled_from([np.float32, np.float64]))
def test_members_of_a_gang_cut_the_vector_among_them(size, length, dtype):
    """As in `fit`: each sends, all wait, each takes."""
    initial = np.arange(length, dtype=dtype)

    def body(communicator):
        vector = communicator.share(initial, add)
        rule = Changes(vector, initial)
        own = initial + dtype(communicator.rank + 1)
        rule.exchange(own, push=True, fetch=False)
        communicator.barrier()
        taken = rule.exchange(own, push=False, fetch=True)
        communicator.barrier()
        vector.close()
        return taken

    for taken in results(size, body):
        assert taken.dtype == dtype
        np.testing.assert_array_equal(taken, initial + size * (size + 1) / 2)
