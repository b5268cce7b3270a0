"""Searches in the background, on a real local Spark."""

from __future__ import annotations

import gc
import json
import math
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

import experiment
from experiment.results.trial_result import TrialResult
from search.trial import Outcome, Trial
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.spark_jobs import train_functions as functions

QUIET = {"preload": (), "verbose": 0}


def hang_in(folder: Path):
    """Return a train function that writes its process id to a file and waits for another file."""

    def train(x):
        import os
        import subprocess
        import time

        child = subprocess.Popen(["sleep", "600"])
        (folder / f"pid-{child.pid}").touch()
        (folder / f"pid-{os.getpid()}").touch()
        while not (folder / "release").exists():
            time.sleep(0.05)
        child.kill()
        child.wait()
        return x

    return train


def cancelled(handle):
    handle.cancel()
    return handle.result(timeout=240)


def test_a_handle_follows_a_search_to_its_result(spark, tmp_path):
    handle = experiment.submit(
        experiment.launch, spark, hang_in(tmp_path), {"x": [1, 2, 3]}, logdir=tmp_path, **QUIET
    )
    assert handle.status() == "running"
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    with pytest.raises(experiment.InvalidArgument, match="timeout: expected seconds, or None, got"):
        handle.result(timeout="5")
    wait_until(lambda: len(processes_in(tmp_path)) >= 4)
    assert handle.trials() == []
    assert repr(handle) == "<experiment.Handle: running, 0 trials ended>"
    (tmp_path / "release").touch()
    wait_until(handle.trials)
    assert handle.trials()[0].status == "finished"
    result = handle.result(timeout=math.inf)
    assert [trial.value for trial in result.trials] == [1.0, 2.0, 3.0]
    assert handle.status() == "finished"
    assert sorted(trial.id for trial in handle.trials()) == [0, 1, 2]
    assert handle.result() is result
    handle.cancel()  # too late: it has no effect
    assert handle.status() == "finished"


@pytest.mark.fault(7)
def test_a_cancelled_search_returns_its_trials_and_leaves_no_process(spark, tmp_path):
    spark.sparkContext.pythonExec = sys.executable
    other = {}

    def work(_):
        import time

        (tmp_path / "other").touch()
        while not (tmp_path / "other released").exists():
            time.sleep(0.05)

    def run_other():
        other["count"] = spark.sparkContext.parallelize([0], 1).map(work).count()

    def train(x):
        return x if x == 0 else hang_in(tmp_path)(x)

    neighbour = threading.Thread(target=run_other, daemon=True)
    neighbour.start()
    wait_until((tmp_path / "other").exists)
    try:
        handle = experiment.submit(
            experiment.launch, spark, train, {"x": range(9)}, logdir=tmp_path, **QUIET
        )
        wait_until(lambda: len(processes_in(tmp_path)) == 2)
        with pytest.warns(UserWarning, match="cancelled: 1 of 9 trials, 1 cancelled"):
            result = cancelled(handle)
        wait_until(lambda: not alive(processes_in(tmp_path)))
        assert handle.status() == "cancelled"
        assert result.problem == "cancelled"
        assert [trial.status for trial in result.trials] == ["finished", "cancelled"]
        assert result.best.id == 0
        assert neighbour.is_alive()
    finally:
        (tmp_path / "other released").touch()
        neighbour.join(60)
    assert other == {"count": 1}
    assert experiment.load(result.logdir).problem == "cancelled"


@pytest.mark.filterwarnings("ignore:cancelled")
def test_a_search_may_be_cancelled_before_it_starts(spark, logdir):
    handle = experiment.submit(
        experiment.launch, spark, functions.double, {"x": range(10**6)}, logdir=logdir, **QUIET
    )
    result = cancelled(handle)
    assert result.problem == "cancelled"
    assert len(result.trials) < 10**6


def test_result_raises_the_search_s_error(spark, logdir):
    handle = experiment.submit(
        experiment.launch, spark, functions.fail, {"x": [1]}, logdir=logdir, **QUIET
    )
    with pytest.raises(experiment.SearchFailed, match="ValueError: user bug"):
        handle.result(timeout=240)
    assert handle.status() == "failed"
    assert [trial.status for trial in handle.trials()] == ["failed"]


def test_result_raises_the_error_of_bad_arguments_too(spark):
    handle = experiment.submit(experiment.launch, spark, functions.double, {"x": []})
    with pytest.raises(experiment.InvalidArgument, match="at least one value"):
        handle.result(timeout=240)
    assert handle.trials() == []


def test_an_argument_that_is_no_search_is_refused_at_once(spark):
    with pytest.raises(experiment.InvalidArgument, match="search: expected a function such as"):
        experiment.submit(spark)


@pytest.mark.fault(40)
@pytest.mark.filterwarnings("ignore:cancelled")
def test_two_searches_of_one_name_share_nothing_and_are_cancelled_apart(spark, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = (
        experiment.submit(
            experiment.launch,
            spark,
            hang_in(folder),
            {"x": [1]},
            name="same",
            logdir=tmp_path / "runs",
            **QUIET,
        )
        for folder in folders
    )
    wait_until(lambda: all(len(processes_in(folder)) == 2 for folder in folders))
    assert cancelled(first).problem == "cancelled"
    wait_until(lambda: not alive(processes_in(folders[0])))
    assert second.status() == "running"
    assert len(alive(processes_in(folders[1]))) == 2
    (folders[1] / "release").touch()
    result = second.result(timeout=240)
    assert (result.problem, result.best.value) == (None, 1.0)
    assert result.trials[0].logdir.endswith("000000")  # its first attempt
    assert first.result().logdir != result.logdir


SCRIPT = """
import os, pathlib, sys, time
import experiment
from pyspark.sql import SparkSession
folder = pathlib.Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    (folder / f"pid-{os.getpid()}").touch()
    time.sleep(600)

handle = experiment.submit(
    experiment.launch, spark, train, {"x": [1, 2]}, logdir=folder / "runs", preload=(), verbose=0
)
while len(list(folder.glob("pid-*"))) < 2:
    time.sleep(0.05)
(folder / "hangs").touch()
if sys.argv[2] == "waits":
    handle.result()
"""


@pytest.mark.fault(38)
@pytest.mark.slow
@pytest.mark.parametrize("script", ["waits", "leaves"])
def test_trials_of_a_handle_end_with_their_script(tmp_path, script):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), script], stderr=subprocess.DEVNULL
    )
    wait_until((tmp_path / "hangs").exists)
    if script == "waits":
        process.send_signal(signal.SIGINT)
    process.wait(120)
    wait_until(lambda: not alive(processes_in(tmp_path)))


GOES_ON = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import experiment

folder = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    with open(folder / f"begun-{x}", "a") as file:
        file.write("x")
    while not (folder / "release").exists():
        time.sleep(0.05)
    return x

handle = experiment.submit(
    experiment.launch, spark, train, {"x": [1, 2]}, logdir=folder / "runs", preload=(), verbose=0
)
while len(list(folder.glob("begun-*"))) < 2:
    time.sleep(0.05)
try:
    (folder / "waits").touch()
    handle.result()
except KeyboardInterrupt:
    (folder / "release").touch()
print([trial.value for trial in handle.result().trials])
"""


@pytest.mark.slow
@pytest.mark.contract
def test_an_interrupt_ends_the_wait_but_not_the_search(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", GOES_ON, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_until((tmp_path / "waits").exists)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert output == "[1.0, 2.0]\n"
    assert [(tmp_path / f"begun-{x}").read_text() for x in (1, 2)] == ["x", "x"]  # once each


@pytest.mark.slow
@pytest.mark.contract
def test_a_cancelled_trial_is_the_attempt_that_ran(spark, tmp_path):
    handle = experiment.submit(
        experiment.launch, spark, hang_in(tmp_path), {"x": [1, 2]}, logdir=tmp_path / "r", **QUIET
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 4)
    for trial in cancelled(handle).trials:
        assert (trial.status, Path(trial.logdir).name) == ("cancelled", f"{trial.id:06d}")
        assert trial.seconds > 0
        assert Path(trial.logdir, "stdout.log").exists()
    assert not list(Path(handle.result().logdir).rglob("*-2"))


@pytest.mark.slow
@pytest.mark.contract
def test_a_search_whose_run_another_driver_has_taken_over_ends_and_writes_nothing_more(
    spark, tmp_path
):
    handle = experiment.submit(
        experiment.launch,
        spark,
        hang_in(tmp_path),
        {"x": [1, 2, 3]},
        logdir=tmp_path / "runs",
        **QUIET,
    )
    wait_until(lambda: len(processes_in(tmp_path)) >= 4)
    (run,) = (tmp_path / "runs").iterdir()
    (mark,) = run.glob("owners/*.json")
    (run / "owners" / "000002.json").write_bytes(mark.read_bytes())
    before = (run / "journal" / "000001.jsonl").read_bytes()
    result = handle.result(timeout=240)
    assert result.problem.endswith("has taken over the run, since this driver gave no sign of life")
    wait_until(lambda: not alive(processes_in(tmp_path)))
    assert (run / "journal" / "000001.jsonl").read_bytes() == before
    assert not (run / "result.json").exists()


@pytest.mark.slow
@pytest.mark.contract
def test_a_cancelled_search_is_resumed_in_the_same_session_without_losing_a_slot(spark, tmp_path):
    handle = experiment.submit(
        experiment.launch, spark, hang_in(tmp_path), {"x": [1, 2, 3]}, logdir=tmp_path, **QUIET
    )
    wait_until(lambda: len(processes_in(tmp_path)) >= 4)
    before = cancelled(handle)
    wait_until(lambda: not alive(processes_in(tmp_path)))
    (tmp_path / "release").touch()
    result = experiment.launch(spark, hang_in(tmp_path), {"x": [1, 2, 3]}, resume=before, **QUIET)
    assert sorted(trial.value for trial in result.trials) == [1.0, 2.0, 3.0]
    lines = (Path(result.logdir) / "journal" / "000002.jsonl").read_text().splitlines()
    records = [json.loads(line[9:]) for line in lines]
    assert {record["slot"].partition(".")[0] for record in records if "slot" in record} == {"1"}
    assert not [record for record in records if record["event"] == "lost"]


def test_a_call_that_is_no_search_has_a_handle_and_leaves_ctrl_c_alone():
    handle = experiment.submit(lambda: 3)
    assert handle.result(timeout=240) == 3
    assert handle.status() == "finished"
    assert repr(handle) == "<experiment.Handle: finished, 0 trials ended>"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_timeout_of_the_search_itself_is_raised_as_it_is():
    def search():
        raise TimeoutError("no executor came")

    handle = experiment.submit(search)
    wait_until(lambda: handle.status() == "failed")
    with pytest.raises(TimeoutError, match="^no executor came$"):
        handle.result(timeout=240)


@pytest.mark.parametrize(
    ("ending", "value", "state"),
    [
        ("finished", 0.5, "finished"),
        ("stopped", None, "finished"),
        ("cancelled", None, "cancelled"),
    ],
)
def test_the_state_of_a_training_follows_from_its_only_trial(ending, value, state):
    trial = TrialResult.of(Trial(0, {}), Outcome(0, ending, value), "/runs/0")
    handle = experiment.submit(lambda: trial)
    assert handle.result(timeout=240) is trial
    assert handle.status() == state


def test_the_result_of_a_dropped_handle_is_freed():
    class Large:
        pass

    handle = experiment.submit(Large)
    large = weakref.ref(handle.result(timeout=240))
    del handle
    second = experiment.submit(lambda: 3)
    second.result(timeout=240)

    def is_freed():
        gc.collect()
        return large() is None

    wait_until(is_freed)  # once the thread of the first call has ended
