import threading
from collections import deque
from types import SimpleNamespace

import pytest

from experiment.driver.jobs import slot_jobs, too_few_slots
from experiment.driver.jobs.started_jobs import StartedJobs
from experiment.setup.settings import Settings
from spark_jobs.cluster.cluster import ClusterExecutor
from spark_jobs.session.slot_job import LostTask, SlotJob
from spark_jobs.slot.closure import Shared
from spark_jobs.slot.problems import PROBLEM
from spark_jobs.storage.locations import Location


def executors(*running):
    """Return executors with the given numbers of running tasks."""
    return [
        ClusterExecutor(
            name=str(n), host=f"h{n}", cores=1, memory=1 << 30, resources={}, running=tasks
        )
        for n, tasks in enumerate(running)
    ]


@pytest.mark.parametrize(
    ("there", "tasks", "said"),
    [
        (None, 0, ""),
        (None, 2, ""),
        ([], 0, ""),
        (executors(0), 0, "1 executor, no task of the search started"),
        (executors(1, 2), 0, "2 executors, which run 3 other tasks, no task of the search started"),
        (executors(1), 1, "1 executor runs 1 task of the search, whose Python is starting"),
        (executors(1, 1), 2, "2 executors run 2 tasks of the search, whose Python is starting"),
    ],
)
def test_without_slots_the_executors_and_their_tasks_are_named(there, tasks, said):
    assert too_few_slots.without_slots(there, tasks) == said


class RecordingCoordinator:
    """A coordinator that records its calls."""

    def __init__(self):
        self.calls = []
        self.roster = SimpleNamespace(has_started=True, let_go=deque(), has_come=lambda job: True)
        self.trials = SimpleNamespace(
            problem=None,
            done=False,
            target_reached=False,
            overview=SimpleNamespace(slots=0),
            left=0,
        )
        self.gangs = SimpleNamespace(are_ending=False)
        self.ends = self

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.calls.append((name, *args, *kwargs.values()))


LOST = [
    LostTask(partition=0, attempt=0, host="a", failed=True),
    LostTask(partition=1, attempt=0, host="b", failed=False),
]


def jobs_of(session, *, warn=print, **prepared):
    """Return the jobs of a search of which only these parts are used."""
    return slot_jobs.SlotJobs(
        prepared=SimpleNamespace(session=session, **prepared),
        opened=None,
        slots=2,
        control=SimpleNamespace(reason=None),
        leaving=None,
        warn=warn,
        grown=None,
        there=None,
    )


def look(run, coordinator, *, tells=True, seconds=60.0):
    """Check a job with the lost tasks above once, at its end or after some seconds."""
    session = SimpleNamespace(
        stopped=False, tells_lost_tasks=tells, on_this_host=True, task_slots=lambda: 2
    )
    jobs = jobs_of(session, spec=SimpleNamespace(settings=Settings()))
    server = SimpleNamespace(error=None, call=lambda step: step())
    started = StartedJobs(
        lambda number, count: SlotJob(run, lambda: None, lambda: LOST, list, lambda: 0)
    )
    started.start(2)
    started.wait(seconds)
    jobs._look(jobs._requests(started), server, coordinator)


def test_failed_tasks_are_lost_slots_and_tasks_killed_by_spark_ended_slots():
    coordinator, end = RecordingCoordinator(), threading.Event()
    look(end.wait, coordinator, seconds=0.0)
    end.set()
    assert coordinator.calls == [("slots_lost", ["1.0.0"]), ("slots_ended", ["1.1.0"], True)]


@pytest.mark.parametrize(
    ("reason", "tells", "counts"),
    [
        ("", True, True),
        (f": RuntimeError: {PROBLEM}host b has no folder", True, False),
        (f": RuntimeError: {PROBLEM}host b has no folder", False, True),
    ],
)
def test_the_coordinator_gets_failed_tasks_before_the_end_of_their_job(reason, tells, counts):
    """The end of the job counts unless a host cannot run slots and Spark names the lost tasks."""
    coordinator = RecordingCoordinator()

    def aborted():
        raise RuntimeError(f"Job aborted{reason}")

    look(aborted, coordinator, tells=tells)
    assert coordinator.calls[:2] == [("slots_lost", ["1.0.0"]), ("job_ended", 1, counts)]


@pytest.mark.parametrize(("came", "requested", "warned"), [(True, 2, 0), (False, 4, 1)])
def test_slots_of_a_job_that_failed_beside_others_are_requested_again_if_they_had_come(
    came, requested, warned
):
    coordinator, release, warnings = RecordingCoordinator(), threading.Event(), []
    coordinator.roster.has_come = lambda job: came

    def run(number):
        if number == 1:
            raise RuntimeError("Job aborted\n\tat org.apache.spark")
        release.wait()

    made = []

    def make(number, count):
        made.append(SlotJob(lambda: run(number), lambda: None, list, list, lambda: 0))
        return made[-1]

    started = StartedJobs(make)
    session = SimpleNamespace(
        stopped=False, tells_lost_tasks=True, on_this_host=True, task_slots=lambda: 4
    )
    jobs = jobs_of(session, warn=warnings.append, spec=SimpleNamespace(settings=Settings()))
    server = SimpleNamespace(error=None, call=lambda step: step())
    started.start(2)
    started.start(2)
    try:
        assert made[0].wait(60.0)
        jobs._look(jobs._requests(started), server, coordinator)
    finally:
        release.set()
    assert coordinator.calls == [("job_ended", 1, True)]
    assert started.requested == requested
    assert len(warnings) == warned
    for message in warnings:
        assert message.startswith("the search continues without 2 slots: ")
        assert "Job aborted" in message


def test_a_jobs_tag_has_no_comma_though_the_run_folders_name_may_have_one():
    """As after a user has renamed the folder; Spark refuses such tags."""
    tags = []
    session = SimpleNamespace(search_path=list, job=lambda slot, slots, tag: tags.append(tag))
    root = Location.parse("/runs/rates 0.1,0.2")
    jobs_of(session, root=root, shared_import=Shared())._job(1, 2, lent=None, function=None)
    assert len(tags) == 1
    assert "," not in tags[0]
