"""Slot jobs side by side, as jobs of a real session."""

from __future__ import annotations

import threading

import pytest

from experiment.driver.started_jobs import Crew
from spark_jobs.session.classic import ClassicSession
from spark_jobs.session.slot_job import LeavingTask, LostTask, SlotJob
from tests.experiment.waiting import wait_until


@pytest.fixture
def make(spark, tmp_path):
    """Makes jobs whose slots wait for a file with their job's number, and raise what it says."""

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


def test_jobs_run_side_by_side_and_end_one_by_one(make, tmp_path):
    with Crew(make) as crew:
        for number in (1, 2):
            crew.start(1)
            wait_until((tmp_path / f"{number}.runs").exists)
        assert crew.asked == 2
        assert not crew.wait(0)
        assert crew.take_ended() == []
        (tmp_path / "2").write_text("no more memory")
        wait_until(lambda: not crew.wait(0.05) and crew.take_ended())
        assert "no more memory" in str(crew.error)
        assert len(crew.failed_hosts) == 1
        assert crew.running
        crew.drop(1)
        assert crew.asked == 1
        (tmp_path / "1").touch()
        wait_until(lambda: crew.wait(0.05))
        assert [(job.number, job.slots, job.error) for job in crew.take_ended()] == [(1, 1, None)]
        assert (crew.running, crew.error) == (False, None)
        assert (crew.forget(), crew.asked) == (1, 0)


def test_leaving_ends_all_that_run(make, tmp_path):
    with pytest.raises(KeyboardInterrupt), Crew(make) as crew:
        for number in (1, 2):
            crew.start(1)
            wait_until((tmp_path / f"{number}.runs").exists)
        raise KeyboardInterrupt
    assert crew.wait(0)
    assert len(crew.take_ended()) == 2


def test_slots_that_are_put_off_are_asked_for_again_after_a_minute():
    now = 0.0
    crew = Crew(make=None, clock=lambda: now)
    crew.asked = 5
    crew.put_off(1)
    now = 59.0
    crew.put_off(2)
    crew.take_up()
    assert crew.asked == 5
    now = 60.0
    crew.take_up()
    assert crew.asked == 4
    assert crew.forget() == 4
    now = 200.0
    crew.take_up()
    assert crew.asked == 0


@pytest.fixture
def crew():
    """Yields a crew with a job of three slots, what is lost and leaving of it, and how it ends."""
    end, lost, leaving = threading.Event(), [], []

    def run():
        end.wait()
        if lost:
            raise RuntimeError("Spark gave the job up")

    def make(number, slots):
        return SlotJob(run, end.set, lambda: lost, lambda: leaving, lambda: 0)

    with Crew(make) as crew:
        crew.start(3)
        yield crew, lost, leaving, end


def test_slots_on_executors_that_leave_are_named_while_their_job_runs(crew):
    crew, _, leaving, end = crew
    assert crew.leaving_slots() == []
    leaving.append(LeavingTask(2, 1))
    assert crew.leaving_slots() == ["1.2.1"]
    end.set()
    wait_until(lambda: crew.wait(0.05) and crew.take_ended())
    assert crew.leaving_slots() == []


def test_a_slot_that_was_let_go_is_not_asked_for_any_more(crew):
    crew, _, _, end = crew
    crew.let_go("1.2.1")
    assert crew.asked == 2
    end.set()
    wait_until(lambda: crew.wait(0.05) and crew.take_ended())
    assert crew.asked == 2
    crew.forget()
    assert crew.asked == 0


def test_a_slot_that_was_let_go_and_lost_is_asked_for_again_by_spark(crew):
    crew, lost, _, _ = crew
    crew.let_go("1.2.1")
    crew.let_go("1.0.0")
    lost.append(LostTask(2, 1, "host", failed=True))
    for _ in range(2):
        assert crew.lost_slots() == {"1.2.1": True}
        assert crew.asked == 2


def test_slots_of_a_job_that_failed_are_dropped_once(crew):
    crew, lost, _, end = crew
    crew.let_go("1.2.1")
    crew.let_go("1.0.0")
    lost.append(LostTask(1, 0, "host", failed=True))
    end.set()
    wait_until(lambda: crew.wait(0.05))
    (ended,) = crew.take_ended()
    crew.drop(ended.slots)
    assert crew.asked == 0
