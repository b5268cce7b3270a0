"""Staleness and waiting, by a clock of the test."""

from __future__ import annotations

import numpy as np

from spark_jobs.strategies.downpour.measured import Measured


class Slow:
    """Shared weights whose exchanges take time on a clock of their own."""

    def __init__(self):
        self.now = 0.0
        self.staleness = 0

    def clock(self):
        return self.now

    def fetch(self):
        self.now += 1
        return np.zeros(3)

    def push(self, change):
        self.now += 2
        self.staleness += 1
        return self.staleness


def test_staleness_and_waiting_are_those_of_a_period():
    slow = Slow()
    measured = Measured(slow, slow.clock)
    assert measured.figures() == {"downpour/staleness": 0, "downpour/waiting": 0}
    measured.begin()
    measured.fetch()
    assert [measured.push(np.zeros(3)) for _ in range(2)] == [1, 2]
    slow.now += 5
    assert measured.figures() == {"downpour/staleness": 1.5, "downpour/waiting": 0.5}
    measured.begin()
    slow.now += 1
    assert measured.figures() == {"downpour/staleness": 2, "downpour/waiting": 0}
