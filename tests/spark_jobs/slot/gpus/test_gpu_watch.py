"""A runner that monitors GPUs: real processes, and a library in place of NVML."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import cloudpickle
import pytest

from spark_jobs.slot.gpus import gpu_watch
from spark_jobs.slot.gpus.gpu_watch import WatchedRunner
from spark_jobs.slot.gpus.nvml import Gpus
from spark_jobs.slot.runners import ProcessRunner
from tests.spark_jobs.slot.running import Runner, program
from tests.spark_jobs.trial.events.reading import scalars

# Else each trial would import this module, with all that it tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

GIB = 1 << 30


def take(gpu, memory):
    """Take memory of a GPU, in the library's way."""
    import os
    import pathlib

    pathlib.Path(os.environ["FAKE_NVML"], str(gpu), str(os.getpid())).write_text(str(memory))


def train(take_gib=0, keep_gib=0, gpu=0, kill=False):
    import os
    import pathlib
    import signal

    take(gpu, take_gib << 30)
    if keep_gib:
        pathlib.Path(os.environ["FAKE_NVML"], str(gpu), "kept").write_text(str(keep_gib << 30))
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


@pytest.fixture
def watched(nvml, tmp_path):
    """Return a runner that monitors GPUs 0 and 1, and the list of its reports."""
    with contextlib.ExitStack() as stack:

        def start(function=train, addresses=("0", "1"), kind=Gpus, **settings):
            reported = []

            def keeps(address, memory, trial):
                reported.append((address, memory, trial))

            gpus = stack.enter_context(kind(addresses))
            processes = stack.enter_context(ProcessRunner(program(function)))
            settings = {"patience": 0.3} | settings
            watched = WatchedRunner(processes, gpus, keeps, **settings)
            return Runner(watched, tmp_path / "run"), reported

        yield start


@pytest.fixture
def neighbour():
    """A process of another user."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("kill", [False, True])
def test_memory_that_went_with_the_trial_is_not_kept(watched, kill):
    run, reported = watched(patience=30)
    outcomes = [run(take_gib=4, kill=kill) for _ in range(2)]
    assert [outcome.status for outcome in outcomes] == ["failed" if kill else "finished"] * 2
    assert reported == []


def test_a_host_that_can_start_no_further_thread_fails_the_trial_not_the_slot(watched, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    run, _ = watched()
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(OSError, match="can't start new thread"):  # a trial's failure by 'machine'
        run()


def test_a_gpu_that_keeps_memory_is_reported_with_bytes_and_trial(watched):
    run, reported = watched()
    assert run().status == run(take_gib=2, keep_gib=4, gpu=1).status == "finished"
    assert reported == [("1", 4 * GIB, 1)]


def test_memory_that_is_freed_late_is_not_reported(watched, nvml):
    looks = []

    class BackAfterTheSecondLook(Gpus):
        def unowned(self):
            unowned = super().unowned()
            if unowned["0"].memory > 4 * GIB:
                looks.append(unowned)
                if len(looks) == 2:
                    nvml.drop(0, "kept")
            return unowned

    run, reported = watched(kind=BackAfterTheSecondLook, patience=30)
    run(keep_gib=4)
    assert (reported, len(looks)) == ([], 2)


def test_memory_in_use_before_the_first_trial_is_not_reported(watched, nvml):
    nvml.set(0, "kept-by-another", 3 * GIB)
    run, reported = watched()
    run()
    assert reported == []
    nvml.drop(0, "kept-by-another")
    run()
    run(keep_gib=1)
    assert reported == [("0", GIB, 2)]


@pytest.mark.parametrize("shared", [False, True])
def test_processes_that_are_listed_are_others_and_a_leak_beside_them_is_seen(
    watched, nvml, neighbour, shared
):
    run, reported = watched(shared=shared)
    run()
    nvml.set(0, str(neighbour.pid), 5 * GIB)
    run()
    nvml.set(0, str(neighbour.pid), 7 * GIB)
    run()
    assert reported == []
    run(keep_gib=2)
    assert reported == [("0", 2 * GIB, 3)]


def test_where_no_owners_are_listed_all_that_stays_is_kept(watched, nvml):
    nvml.hide_processes()
    run, reported = watched()
    run(take_gib=1)
    assert reported == []
    run(keep_gib=2)
    assert reported == [("0", 2 * GIB, 1)]


def test_without_listed_owners_a_shared_gpu_is_not_judged(watched, nvml, neighbour):
    nvml.hide_processes()
    run, reported = watched(shared=True)
    nvml.set(0, str(neighbour.pid), 5 * GIB)
    run(keep_gib=2)
    assert reported == []


def test_the_utilization_of_the_gpus_becomes_curves_of_the_trial(watched, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_watch, "_PAUSE", 1.0)  # a step is a whole second

    def train_until_recorded(root):
        import pathlib
        import time

        events = pathlib.Path(root, "trials/000000/events.out.tfevents.trial")

        def points():
            return events.read_bytes().count(b"gpu/1/utilization") if events.exists() else 0

        take(1, 4 << 30)
        before = points()
        while points() < before + 2:  # the first may have been measured before
            time.sleep(0.01)
        return 1

    run, reported = watched(train_until_recorded, addresses=("1", "0"))
    assert run(root=str(tmp_path / "run")).status == "finished"
    curves = scalars(run.files.folder)
    # The largest values, since one may be measured after the end of the trial's process.
    assert {tag: max(value for _, value in points) for tag, points in curves.items()} == {
        "gpu/0/memory_GiB": 4.5,
        "gpu/0/utilization": 0.5,
        "gpu/1/memory_GiB": 0.5,
        "gpu/1/utilization": 0.5,
    }
    steps = [step for step, _ in curves["gpu/0/memory_GiB"]]
    assert steps == sorted(set(steps))
    assert reported == []


def test_without_gpus_a_trial_runs_unchanged(watched, monkeypatch):
    monkeypatch.setenv("FAKE_NVML", "/nonexistent")
    run, reported = watched(lambda: 2)
    assert (run().value, reported) == (2.0, [])
    assert list(run.files.folder.glob("*tfevents*")) == []
