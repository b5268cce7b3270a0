"""Rings visit all members, and differ as much as they can."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_jobs.communicator.in_step.ring_orders import ring_orders


def hops(order):
    """The pairs of a sender and a receiver."""
    return set(pairwise([*order, order[0]]))


@pytest.mark.parametrize("size", range(2, 18))
def test_each_ring_visits_all_members_once_in_another_order(size):
    orders = ring_orders(size, size - 1)
    assert len({frozenset(hops(order)) for order in orders}) == size - 1
    for order in orders:
        assert sorted(order) == list(range(size))


@pytest.mark.parametrize("size", range(3, 18))
def test_no_two_rings_share_a_hop_but_the_last_one_of_an_even_number(size):
    orders = ring_orders(size, size - 1)
    disjoint = orders if size % 2 else orders[:-1]
    assert len(set.union(*map(hops, disjoint))) == size * len(disjoint)


def test_the_first_ring_has_the_order_of_the_ranks_and_the_second_one_its_reverse():
    assert ring_orders(5, 1) == [(0, 1, 2, 3, 4)]
    assert ring_orders(5, 2) == [(0, 1, 2, 3, 4), (0, 4, 3, 2, 1)]


@pytest.mark.parametrize("size", range(2, 10))
def test_fewer_rings_are_the_first_of_more(size):
    for rings in range(1, size):
        assert ring_orders(size, rings) == ring_orders(size, size - 1)[:rings]
