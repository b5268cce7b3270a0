"""Concurrent slot jobs in a real session."""

from __future__ import annotations

import threading

import pytest

from experiment.driver.jobs.started_jobs import StartedJobs
from spark_jobs.session.classic import ClassicSession
from spark_jobs.session.slot_job import LeavingTask, LostTask, SlotJob
from tests.experiment.waiting import wait_until


@pytest.fixture
def make(spark, tmp_path):
    """Return a function that makes jobs; their slots wait for a file and raise its text, if any."""

    def make(number, slots):
        gate = tmp_path / str(number)

        def slot(batches):
            import time

            gate.with_suffix(".runs").touch()
            while not gate.exists():
                time.sleep(0.01)
            if problem := gate.read_text():
                raise RuntimeError(problem)
            yield from ()

        return ClassicSession(spark).job(slot, slots, f"{tmp_path.name}-{number}")

    return make


def test_jobs_run_concurrently_and_end_one_by_one(make, tmp_path):
    with StartedJobs(make) as jobs:
        for number in (1, 2):
            jobs.start(1)
            wait_until((tmp_path / f"{number}.runs").exists)
        assert jobs.requested == 2
        assert not jobs.wait(0)
        assert jobs.take_ended() == []
        (tmp_path / "text").write_text("no more memory")
        (tmp_path / "text").rename(tmp_path / "2")  # whole from its first moment
        wait_until(lambda: not jobs.wait(0.05) and jobs.take_ended())
        assert "no more memory" in str(jobs.error)
        assert len(jobs.failed_hosts) == 1
        assert jobs.running
        jobs.drop(1)
        assert jobs.requested == 1
        (tmp_path / "1").touch()
        wait_until(lambda: jobs.wait(0.05))
        assert [(job.number, job.slots, job.error) for job in jobs.take_ended()] == [(1, 1, None)]
        assert (jobs.running, jobs.error) == (False, None)
        assert (jobs.forget(), jobs.requested) == (1, 0)


@pytest.mark.slow
@pytest.mark.contract
def test_an_exception_ends_all_running_jobs(make, tmp_path):
    with pytest.raises(KeyboardInterrupt), StartedJobs(make) as jobs:
        for number in (1, 2):
            jobs.start(1)
            wait_until((tmp_path / f"{number}.runs").exists)
        raise KeyboardInterrupt
    assert jobs.wait(0)
    assert len(jobs.take_ended()) == 2


def test_an_interrupt_while_jobs_are_asked_to_end_leaves_none_running():
    left = []

    class Job:
        def __init__(self, number):
            self.number = number

        def start(self):
            pass

        def ask_to_end(self):
            raise KeyboardInterrupt

        def __exit__(self, *error):
            left.append(self.number)

    with pytest.raises(KeyboardInterrupt), StartedJobs(lambda number, slots: Job(number)) as jobs:
        jobs.start(1)
        jobs.start(1)
    assert sorted(left) == [1, 2]


def test_slots_that_are_put_off_are_requested_again_after_a_minute():
    now = 0.0
    jobs = StartedJobs(make=None, clock=lambda: now)
    jobs.requested = 5
    jobs.put_off(1)
    now = 59.0
    jobs.put_off(2)
    jobs.drop_due()
    assert jobs.requested == 5
    now = 60.0
    jobs.drop_due()
    assert jobs.requested == 4
    assert jobs.forget() == 4
    now = 200.0
    jobs.drop_due()
    assert jobs.requested == 0


@pytest.fixture
def jobs():
    """Yield the jobs, and the lost tasks, leaving tasks and end of their job with three slots."""
    end, lost, leaving = threading.Event(), [], []

    def run():
        end.wait()
        if lost:
            raise RuntimeError("Spark gave the job up")

    def make(number, slots):
        return SlotJob(run, end.set, lambda: lost, lambda: leaving, lambda: 0)

    with StartedJobs(make) as jobs:
        jobs.start(3)
        yield jobs, lost, leaving, end


def test_slots_on_executors_that_leave_are_named_while_their_job_runs(jobs):
    jobs, _, leaving, end = jobs
    assert jobs.decommissioned_slots() == []
    leaving.append(LeavingTask(2, 1))
    assert jobs.decommissioned_slots() == ["1.2.1"]
    end.set()
    wait_until(lambda: jobs.wait(0.05) and jobs.take_ended())
    assert jobs.decommissioned_slots() == []


def test_a_slot_that_was_let_go_is_not_requested_any_more(jobs):
    jobs, _, _, end = jobs
    jobs.let_go("1.2.1")
    assert jobs.requested == 2
    end.set()
    wait_until(lambda: jobs.wait(0.05) and jobs.take_ended())
    assert jobs.requested == 2
    jobs.forget()
    assert jobs.requested == 0


def test_a_slot_that_was_let_go_and_lost_is_requested_again_by_spark(jobs):
    jobs, lost, _, _ = jobs
    jobs.let_go("1.2.1")
    jobs.let_go("1.0.0")
    lost.append(LostTask(partition=2, attempt=1, host="host", failed=True))
    for _ in range(2):
        assert jobs.lost_slots() == {"1.2.1": True}
        assert jobs.requested == 2


def test_slots_of_a_job_that_failed_are_dropped_once(jobs):
    jobs, lost, _, end = jobs
    jobs.let_go("1.2.1")
    jobs.let_go("1.0.0")
    lost.append(LostTask(partition=1, attempt=0, host="host", failed=True))
    end.set()
    wait_until(lambda: jobs.wait(0.05))
    (ended,) = jobs.take_ended()
    jobs.drop(ended.slots)
    assert jobs.requested == 0


def test_a_slot_of_a_job_that_failed_is_not_let_go_as_well(jobs):
    jobs, lost, _, end = jobs
    lost.append(LostTask(partition=1, attempt=0, host="host", failed=True))
    jobs.start(2)
    end.set()
    wait_until(lambda: jobs.wait(0.05))
    for ended in jobs.take_ended():
        jobs.let_go(f"{ended.number}.0.0")
        jobs.drop(ended.slots)
    assert jobs.requested == 0


def test_all_jobs_are_asked_to_end_before_one_is_waited_for():
    ends, asked = [threading.Event() for _ in range(3)], []

    def make(number, slots):
        def cancel():
            asked.append(number)
            ends[number - 1].set()

        return SlotJob(ends[number - 1].wait, cancel, list, list, lambda: 0)

    with StartedJobs(make) as jobs:
        for _ in ends:
            jobs.start(1)
    assert asked[:3] == [1, 2, 3]


def test_jobs_that_are_cancelled_end_and_others_may_start(jobs):
    jobs, _, _, end = jobs
    jobs.start(2)
    assert jobs.cancel() == [1, 2]
    assert end.is_set()
    assert not jobs.running
    assert jobs.forget() == 5
    jobs.start(1)
    assert (jobs.running, jobs.requested) == (True, 1)
