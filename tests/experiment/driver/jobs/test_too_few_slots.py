"""Searches with too few slots for a trial, with a simulated clock and a model of a cluster."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.driver.jobs.too_few_slots import _PATIENCE, TooFewSlots
from tests.properties import examples


@pytest.fixture
def too_few():
    return TooFewSlots(600.0, random.Random(0))


def test_a_search_with_enough_slots_waits_for_its_trials(too_few):
    for now in range(0, 100_000, 1_000):
        assert too_few.decide(4, 0, float(now)) == "wait"


def test_slots_are_given_back_when_no_more_have_come_for_a_while(too_few):
    assert too_few.decide(1, 1, 0.0) == "wait"
    assert too_few.decide(1, 1, _PATIENCE - 1) == "wait"
    assert too_few.decide(1, 1, 2 * _PATIENCE + 1) == "give back"


def test_a_slot_that_comes_prolongs_the_wait(too_few):
    too_few.decide(1, 2, 0.0)
    too_few.decide(2, 1, _PATIENCE - 1)
    assert too_few.decide(2, 1, 2 * _PATIENCE - 2) == "wait"
    assert too_few.decide(2, 1, 3 * _PATIENCE) == "give back"


def test_a_search_without_any_slot_has_nothing_to_give_back(too_few):
    assert too_few.decide(0, 2, 0.0) == too_few.decide(0, 2, 599.0) == "wait"
    assert too_few.decide(0, 2, 601.0) == "give up"


def test_the_time_until_giving_up_counts_over_pauses_and_from_the_last_trial(too_few):
    too_few.decide(1, 1, 0.0)
    too_few.pause()
    assert too_few.decide(0, 2, 500.0) == "wait"
    assert too_few.decide(1, 1, 601.0) == "give up"
    too_few.decide(2, 0, 700.0)
    assert too_few.decide(1, 1, 1_200.0) == "wait"


def test_slots_that_are_requested_again_have_time_to_start(too_few):
    too_few.decide(2, 2, 0.0)
    assert too_few.decide(2, 2, 61.0) == "give back"
    too_few.pause()
    assert too_few.decide(0, 4, 700.0) == too_few.decide(1, 3, 700.0 + _PATIENCE) == "wait"
    assert too_few.decide(1, 3, 701.0 + _PATIENCE) == "give up"
    assert too_few.most == 2


def test_slots_that_were_there_before_the_last_trial_do_not_count(too_few):
    too_few.decide(3, 1, 0.0)
    too_few.decide(4, 0, 1.0)
    too_few.decide(0, 4, 2.0)
    assert too_few.most == 0


def test_the_time_until_giving_up_counts_from_the_end_of_a_killed_drivers_slots():
    too_few = TooFewSlots(60.0, random.Random(0), begin=120.0)
    assert too_few.decide(0, 2, 0.0) == too_few.decide(0, 2, 180.0) == "wait"
    assert too_few.decide(0, 2, 181.0) == "give up"


def test_a_search_without_a_limit_never_gives_up():
    too_few = TooFewSlots(None, random.Random(0))
    too_few.decide(0, 2, 0.0)
    assert too_few.decide(0, 2, 1e9) == "wait"


def test_pauses_get_longer_until_a_trial_runs(too_few):
    pauses = [too_few.pause() for _ in range(12)]
    assert all(5 * 2**n <= pause <= 10 * 2**n for n, pause in enumerate(pauses[:6]))
    assert max(pauses) <= 320
    too_few.decide(2, 0, 0.0)
    assert too_few.pause() <= 10


class Model:
    """A cluster on which searches hold slots until each has had all it needs once."""

    def __init__(self, slots, needs, seed):
        self.slots, self.needs = slots, needs
        self.held = dict.fromkeys(range(len(needs)), 0)
        self.policies = [TooFewSlots(None, random.Random(seed + n)) for n in range(len(needs))]
        self.asks_at = [0.0] * len(needs)
        self.left = set(self.held)
        self.rng = random.Random(seed)

    def step(self, now):
        free = self.slots - sum(self.held.values())
        asking = [n for n in self.left if self.asks_at[n] <= now]
        while free and (some := [n for n in asking if self.held[n] < self.needs[n]]):
            self.held[self.rng.choice(some)] += 1  # one by one, to any of them
            free -= 1
        for number in list(self.left):
            if self.asks_at[number] > now:
                continue
            held, missing = self.held[number], self.needs[number] - self.held[number]
            if not missing:
                self.left.discard(number)
                self.held[number] = 0
            elif self.policies[number].decide(held, missing, now) == "give back":
                self.held[number] = 0
                self.asks_at[number] = now + self.policies[number].pause()


@examples(60)
@given(st.integers(2, 6), st.lists(st.integers(2, 6), min_size=2, max_size=4), st.integers())
def test_searches_that_hold_parts_of_each_others_slots_all_run_in_the_end(slots, needs, seed):
    model, now = Model(slots, [min(need, slots) for need in needs], seed), 0.0
    while model.left:
        model.step(now)
        now += 1.0
        assert now < 40_000, f"{model.left} never ran"
