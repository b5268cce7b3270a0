"""The worker that the others wait for is named, and no other one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from spark_jobs.strategies.in_step.slow_worker import Lags, Slow, slow_worker, warning_of
from tests.spark_jobs.strategies.mirrored import train_functions as functions

MEMBERS = ("10.0.0.5:20000", "10.0.0.6:20000", "10.0.0.7:20000")


def judged(work, transfer=0.01):
    """Return the verdict on seconds of work by rank, each a number or one for each of 8 parts."""
    rows = np.array([np.broadcast_to(row, 8) for row in work], float)
    return slow_worker(rows, np.broadcast_to(rows.max(axis=0) + transfer, rows.shape))


@pytest.mark.parametrize(
    ("work", "rank"),
    [([0.6, 0.2], 0), ([0.2, 0.6], 1), ([0.2, 0.2, 0.6, 0.21], 2), ([0.1] * 63 + [0.3], 63)],
)
def test_a_worker_slowed_three_times_is_named(work, rank):
    found = judged(work)
    assert found.rank == rank
    assert found.work / found.others == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(
    "work",
    [
        [0.2, 0.2],
        [0.2, 0.35],  # less than twice
        [0.004, 0.012],  # three times, but nobody waits for long
        [[0.2] * 8, [0.2] * 3 + [9] + [0.2] * 4],  # one long pause
        [[0.6, 0.2] * 4, [0.2, 0.6] * 4],  # each in turn, on a busy host
        [0.6, 0.6, 0.2],  # the others are as slow
    ],
    ids=str,
)
def test_equal_workers_and_chance_name_nobody(work):
    assert judged(work) is None


def test_a_lag_that_the_transfer_hides_names_nobody():
    assert judged([0.02, 0.06], transfer=0.05) is not None
    assert judged([0.02, 0.06], transfer=1) is None


@pytest.mark.parametrize("seed", range(20))
def test_equal_workers_whose_steps_vary_name_nobody(seed):
    numbers = np.random.default_rng(seed)
    assert judged(0.1 * numbers.lognormal(0, 0.5, (4, 8))) is None


def test_the_warning_has_rank_host_ratio_and_advice():
    text = warning_of(Slow(2, 0.6, 0.2), MEMBERS)
    assert text.startswith("worker 2 on host 10.0.0.7 is 3.0 times slower than the other workers")
    assert "computes for 600 ms, they for 200 ms" in text
    assert "look for other programs or slow storage on this host" in text


class Fit:
    """Runs epochs of equally long steps in workers that are simulated, one after the other."""

    def __init__(self, work):
        self._work = work
        self._now = 0.0
        self._waits = [0.0] * len(work)
        self.lags = []
        for rank in range(len(work)):
            waited = type("", (), {"seconds": lambda _, rank=rank: self._waits[rank]})()
            self.lags.append(Lags(rank, MEMBERS, waited, lambda: self._now))

    def epoch(self, steps):
        """Return the warnings by rank."""
        for each in self.lags:
            each.begin_epoch()
        for _ in range(steps):
            longest = max(self._work)
            self._now += longest
            for rank, own in enumerate(self._work):
                self._waits[rank] += longest - own
                self.lags[rank].end_step()
        figures = np.max([each.figures() for each in self.lags], axis=0)
        found = []
        for each in self.lags:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                each.judge(figures)
            found.append([str(warning.message) for warning in seen])
        return found


def test_worker_0_warns_once_of_a_slow_worker():
    fit = Fit([0.1, 0.1, 0.3])
    first, *others = fit.epoch(steps=20)
    assert len(first) == 1
    assert first[0].startswith("worker 2 on host 10.0.0.7 is 3.0 times slower")
    assert others == [[], []]
    assert fit.epoch(steps=20) == [[], [], []]


def test_short_epochs_are_judged_together():
    fit = Fit([0.1, 0.1, 0.3])
    found = [len(fit.epoch(steps=2)[0]) for _ in range(10)]
    assert found == [0] * 8 + [1, 0]  # after 16 steps, without the first one of all


def test_a_second_is_too_short_to_judge():
    assert Fit([0.01, 0.01, 0.03]).epoch(steps=40) == [[], [], []]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("slow_in", ["data", "computing"])
def test_a_worker_that_is_slow_in_its_data_or_computing_is_named(gangs, slow_in):
    first, second = gangs.values(functions.warnings_of_slow, 2, slow_in, 0.01, 0.2, 20)
    assert len(first) == 1
    assert first[0].startswith("worker 1 on host 127.0.0.1 is ")
    assert second == []


@pytest.mark.slow
@pytest.mark.contract
def test_equal_workers_are_not_warned_of(gangs):
    assert gangs.values(functions.warnings_of_slow, 2, "computing", 0.05, 0.05) == [[], []]
