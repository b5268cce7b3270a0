"""How many slots are requested, and in jobs of which size, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiment.driver.jobs.requests import Requests
from experiment.driver.jobs.started_jobs import StartedJobs
from experiment.setup.workers import Workers


class Cluster:
    """A session that offers slots, whose jobs only are started."""

    def __init__(self, offered, most=100, workers=1):
        self.offered, self.started = offered, []
        self.requests = Requests(
            StartedJobs(self.make), self, most=most, workers=Workers(workers, workers)
        )

    def make(self, number, slots):
        return SimpleNamespace(start=lambda: self.started.append(slots))

    def task_slots(self):
        if self.offered is None:
            raise RuntimeError("the session was stopped")
        return self.offered


@pytest.mark.parametrize(
    ("offered", "most", "wanted", "further"),
    [
        (4, 100, 50, []),  # all that fit are requested
        (9, 100, 50, [5]),
        (9, 6, 50, [2]),
        (9, 4, 50, []),
        (9, 100, 3, [2]),  # one slot has not started yet, and may take one of three trials
        (9, 100, 1, []),
        (None, 100, 50, []),
    ],
)
def test_as_many_further_slots_are_requested_as_fit_and_get_trials(offered, most, wanted, further):
    cluster = Cluster(offered, most)
    cluster.requests.start(4)
    assert cluster.requests.grow(3, wanted) == bool(further)
    assert cluster.started == [4, *further]
    assert not cluster.requests.grow(3 + sum(further), 0)


def test_further_slots_are_enough_for_whole_trials():
    cluster = Cluster(9, workers=4)
    cluster.requests.start(4)
    assert cluster.requests.grow(4, 50)
    assert cluster.started == [4, 4]


def test_where_a_host_has_refused_slots_each_is_a_job_of_its_own_and_the_user_hears_once():
    cluster, warnings = Cluster(3), []
    requests = cluster.requests
    requests.start(3)
    job = SimpleNamespace(slots=3)
    assert requests.refuse(job, "host b, it has no folder")
    assert requests.grow(0, 50)
    assert cluster.started == [3, 1, 1, 1]
    assert not requests.refuse(SimpleNamespace(slots=1), "host b, it has no folder")
    assert requests.jobs.requested == 3, "it is requested again after a while"
    for _ in range(2):
        requests.tell_refusals(warnings.append)
    assert warnings == ["the search continues without host b, it has no folder"]
