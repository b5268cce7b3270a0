"""Slots that watch their driver; the drivers are real, in processes of their own."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from spark_jobs.slot.driver_watch import DriverWatch
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from tests.experiment.run_files.owning import Place
from tests.experiment.run_files.test_ownership import mark_of
from tests.experiment.waiting import wait_until


@pytest.fixture
def place(tmp_path):
    with Place(Location.parse(tmp_path / "run of ü")) as place:
        yield place


@contextlib.contextmanager
def watching(mark, **settings):
    """Yield a watch after a call without an answer, and the event of its leaving."""
    left = threading.Event()
    known = {"beat": 0.05, "silence": 1000.0}
    watch = DriverWatch(mark, HadoopSettings(), left.set, **known | settings)
    with contextlib.closing(watch):
        watch.heard(False)
        yield watch, left


def mark(place, number=1):
    return place.root.below(f"owners/{number:06d}.json")


def parts(place):
    return list(Path(place.root.path, "owners").glob(".part-*"))


def times_of_parts(place):
    with contextlib.suppress(FileNotFoundError):  # one was renamed meanwhile
        return [part.stat().st_mtime_ns for part in parts(place)]
    return []


def test_a_running_driver_is_not_left_and_an_answer_ends_the_watch(place):
    driver = place.driver(beat=0.05)
    assert driver.take() == "owned"
    with watching(mark(place)) as (watch, left):
        looks = set()
        wait_until(lambda: looks.update(times_of_parts(place)) or len(looks) > 3)
        assert watch.verdict is None
        watch.heard(False)  # of the other thread of a slot
        watch.heard(True)
        wait_until(lambda: not parts(place))
        driver.kill()
        assert not left.is_set()
        watch.heard(False)
        assert left.wait(60)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("killed", "the driver's process has ended"),
        ("released", "the driver has released the run"),
        ("taken over", "the run has another driver"),
    ],
)
def test_a_driver_that_is_certainly_gone_is_left_at_once(place, end, reason):
    driver = place.driver(beat=0.05)
    assert driver.take() == "owned"
    if end == "released":
        assert driver.ask("release") == "released"
    elif end == "taken over":
        place.put("000002.json", mark_of(host="elsewhere"))
    else:
        driver.kill()
    with watching(mark(place)) as (watch, left):
        assert left.wait(60)
        assert watch.verdict == (reason, True)
    wait_until(lambda: not parts(place))


def test_a_silent_driver_of_another_host_is_left_with_an_error_for_spark(place):
    place.put("000001.json", mark_of(host="elsewhere"))
    with watching(mark(place), silence=0.3) as (watch, left):
        assert left.wait(60)
        assert watch.verdict == ("the driver has given no sign of life", False)


def test_a_trial_is_ended_when_its_slot_leaves_or_has_left(place):
    place.put("000001.json", mark_of(host="elsewhere"))
    place.put("000002.json", mark_of(host="elsewhere"))
    ended = []
    with watching(mark(place)) as (watch, _):
        with watch.leaving_by(lambda: ended.append("while it ran")):
            wait_until(lambda: ended)
        with watch.leaving_by(lambda: ended.append("before it ran")):
            pass
    assert ended == ["while it ran", "before it ran"]


@pytest.mark.parametrize("there", ["nothing", "an older mark"])
def test_a_missing_mark_is_no_silence(place, there):
    if there == "an older mark":
        place.put("000001.json", mark_of(host="elsewhere"))
    with watching(mark(place, 2), silence=0.0) as (watch, left):
        place.put("000002.json", mark_of(host="elsewhere", released=True))
        assert left.wait(60)
        assert watch.verdict == ("the driver has released the run", True)


def test_a_slot_whose_driver_has_no_mark_stays():
    before = set(threading.enumerate())  # one of another test may not have ended yet
    with watching(None, silence=0.0) as (watch, left):
        assert not [t for t in set(threading.enumerate()) - before if t.name == "experiment-watch"]
        assert (watch.verdict, left.is_set()) == (None, False)


def test_a_watch_that_cannot_begin_tries_again_with_the_next_message(place, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    place.put("000001.json", mark_of(host="elsewhere", released=True))
    left = threading.Event()
    with contextlib.closing(DriverWatch(mark(place), HadoopSettings(), left.set)) as watch:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refused)
            watch.heard(False)
        watch.heard(False)
        assert left.wait(60)
