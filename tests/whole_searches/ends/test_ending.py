"""Early ends of searches: time limits, signals, the command line, a stopped session."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import experiment
from experiment.cli.commands import main
from experiment.driver.jobs import slot_jobs
from experiment.setup import settings
from spark_jobs.session.classic import ClassicSession
from tests.experiment.background.test_handle import hang_in
from tests.experiment.runs import make_run
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.servers.standalone import Standalone
from tests.spark_jobs import train_functions as functions
from tests.whole_searches.scripts import running

QUIET = {"preload": (), "verbose": 0}


def hang_after_the_first(folder: Path):
    def train(x):
        return x if x == 0 else hang_in(folder)(x)

    return train


def test_a_deadline_ends_a_search_with_a_partial_result(spark, tmp_path, monkeypatch):
    """The fake clock passes it once two trials hang, and so the first one has finished."""

    def monotonic():
        return time.monotonic() + 600 * (len(processes_in(tmp_path)) == 4)

    monkeypatch.setattr(slot_jobs, "time", SimpleNamespace(monotonic=monotonic, time=time.time))
    with pytest.warns(UserWarning, match="the deadline of 600 s has passed: 1 of 4 trials"):
        result = experiment.launch(
            spark,
            hang_after_the_first(tmp_path),
            {"x": range(4)},
            deadline=600,
            logdir=tmp_path,
            **QUIET,
        )
    assert result.problem == "the deadline of 600 s has passed"
    assert [trial.status for trial in result.trials] == ["finished", "cancelled", "cancelled"]
    assert result.best.id == 0
    assert experiment.load(result.logdir).problem == result.problem
    wait_until(lambda: not alive(processes_in(tmp_path)))


def test_a_deadline_counts_from_the_call(spark, tmp_path, monkeypatch):
    """Reading the configurations takes longer than the deadline."""
    read = []

    def points():
        for x in range(4):
            yield {"x": x}
        read.append(True)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 600 * len(read), time=time.time)
    for module in (settings, slot_jobs):
        monkeypatch.setattr(module, "time", clock, raising=False)
    with pytest.warns(UserWarning, match="the deadline of 600 s has passed: [01] of 4 trials"):
        result = experiment.launch(
            spark, hang_in(tmp_path), points(), deadline=600, logdir=tmp_path, **QUIET
        )
    assert result.problem == "the deadline of 600 s has passed"


def test_a_deadline_that_is_not_reached_is_not_reported(spark, logdir):
    result = experiment.launch(
        spark, functions.double, {"x": [1]}, deadline=600, logdir=logdir, **QUIET
    )
    assert result.problem is None


def test_a_search_ends_when_its_best_reaches_the_target(spark, tmp_path):
    result = experiment.launch(
        spark,
        hang_after_the_first(tmp_path),
        {"x": [1, 0, 2, 3]},
        target=0,
        logdir=tmp_path,
        **QUIET,
    )
    assert result.problem is None
    statuses = [trial.status for trial in result.trials]
    assert statuses[:2] == ["cancelled", "finished"]
    assert set(statuses[2:]) <= {"cancelled"}
    assert f"{len(statuses) - 1} cancelled, target 0 reached, best metric 0 in trial 1" in repr(
        result
    )
    kept = experiment.load(result.logdir)
    assert (kept.problem, kept.summary()) == (None, result.summary())
    wait_until(lambda: not alive(processes_in(tmp_path)))


def test_a_search_at_its_target_is_resumed_with_another(spark, logdir):
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup

    def search(**settings):
        before = set(jobs())
        grid = {"x": [1, 2, 3, 4, 5, 6]}
        shared = {"parallelism": 1, "isolation": "none", **QUIET}
        result = experiment.launch(spark, functions.double, grid, **shared, **settings)
        return result, len(set(jobs()) - before)

    begun, _ = search(target=4, logdir=logdir)
    assert [trial.value for trial in begun.trials] == [2.0, 4.0]
    same, ran = search(target=4, resume=begun)
    assert (same.trials, same.total, ran) == (begun.trials, 6, 0)
    assert same.target_reached
    more, _ = search(target=7, resume=begun)
    assert [trial.value for trial in more.trials] == [2.0, 4.0, 6.0, 8.0]
    assert experiment.load(begun.logdir).target == 7
    whole, _ = search(resume=begun)
    assert len(whole.trials) == 6
    assert not whole.target_reached
    assert whole.summary().startswith("6 trials, best")


@pytest.mark.slow
@pytest.mark.contract
def test_a_trial_may_end_itself_within_its_grace(spark, tmp_path):
    def train(stubborn):
        import os
        import signal
        import time

        (tmp_path / f"pid-{os.getpid()}").touch()

        def tidy(number, frame):
            if not stubborn:
                time.sleep(0.5)  # its work at the end
                (tmp_path / "tidied").touch()
                raise SystemExit(0)

        signal.signal(signal.SIGTERM, tidy)
        while True:
            time.sleep(0.1)

    one = {"timeout": 8, "parallelism": 1, "logdir": tmp_path, **QUIET}
    searches = [
        experiment.submit(
            experiment.launch, spark, train, {"stubborn": [stubborn]}, grace=grace, **one
        )
        for stubborn, grace in [(False, 300), (True, 2)]
    ]
    trials = []
    for search in searches:
        with pytest.raises(experiment.SearchFailed, match="time limit of 8 s") as caught:
            search.result()
        trials += caught.value.result.trials
    assert (tmp_path / "tidied").exists()
    assert [trial.error.kind for trial in trials] == ["time", "time"]
    assert "time limit of 8 s" in str(trials[0].error)
    tidy, stubborn = (trial.seconds for trial in trials)
    assert 8.5 <= tidy < 300  # it ended before its grace was over
    assert 10 <= stubborn < 300
    wait_until(lambda: not alive(processes_in(tmp_path)))


@pytest.mark.fault(19)
def test_slots_that_never_start_are_an_error_with_the_requested_slots(spark, tmp_path):
    """Another job occupies both cores."""

    def occupy(_):
        import time

        while not (tmp_path / "release").exists():
            time.sleep(0.05)

    spark.sparkContext.pythonExec = sys.executable
    other = threading.Thread(
        target=lambda: spark.sparkContext.parallelize([0, 1], 2).foreach(occupy), daemon=True
    )
    other.start()
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: _active_tasks(tracker) == 2)
    # Spark updates the tasks of stages and those of executors at different times.
    wait_until(lambda: ClassicSession(spark).cluster().executors[0].running == 2)
    try:
        with pytest.raises(experiment.SearchFailed) as caught:
            experiment.launch(
                spark,
                functions.double,
                {"x": [1, 2, 3]},
                startup_timeout=2,
                logdir=tmp_path / "runs",
                **QUIET,
            )
        heap = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
        assert str(caught.value) == (
            "no slot has started within 2 s; asked Spark for 2 slots of 1 core, on executors with "
            "1g of memory: see that some are free, also of other searches, or set startup_timeout; "
            f"Spark has 1 executor with 2 cores and {heap} MiB on localhost, running 2 tasks; "
            "its page of this application: not served, as spark.ui.enabled is false"
        )
        assert caught.value.result.trials == []
        assert other.is_alive()
    finally:
        (tmp_path / "release").touch()
        other.join(60)
    result = experiment.launch(
        spark, functions.double, {"x": [1]}, startup_timeout=60, logdir=tmp_path / "runs", **QUIET
    )
    assert result.best.value == 2.0


@pytest.fixture
def master_without_workers(sparks, tmp_path):
    """A standalone master without workers."""
    with Standalone(tmp_path / "standalone", hosts=()) as cluster:
        yield cluster
        sparks.stop()  # before its master ends


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(19)
def test_a_cluster_without_workers_is_an_error_with_the_requested_slots(
    sparks, master_without_workers, tmp_path
):
    needs = {"cores": "2", "memory": "7g", "instances": "3"}
    wanted = {f"spark.executor.{name}": value for name, value in needs.items()}
    settings = master_without_workers.settings() | wanted | {"spark.task.cpus": "2"}
    settings |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    settings |= {"spark.executor.resource.gpu.amount": "1"}
    spark = sparks.get(master_without_workers.master, **settings)
    plan = experiment.plan(
        experiment.launch, spark, functions.double, {"x": range(9)}, logdir=tmp_path
    )
    assert (plan.slots_now, plan.slots, plan.trials_per_slot) == (0, 3, 3)
    assert (plan.gpus, plan.hindrances) == (0, ())
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(
            spark,
            functions.double,
            {"x": range(9)},
            startup_timeout=2,
            logdir=tmp_path,
            **QUIET,
        )
    message = str(caught.value)
    assert message.startswith("no slot has started within 2 s; asked Spark for 3 slots of 2 cores")
    assert "on executors with 7g of memory, 2 cores and 1 GPU: " in message
    assert message.endswith(
        f"; Spark has no executor; its page of this application: {spark.sparkContext.uiWebUrl}"
    )
    assert spark.sparkContext.uiWebUrl.startswith("http://")


def _active_tasks(tracker):
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


@pytest.mark.fault(39)
def test_a_stopped_session_fails_the_search_with_a_partial_result(sparks, tmp_path):
    spark = sparks.get("local[2]", **{"spark.a.session": "to be stopped, too"})

    def stop():
        wait_until(lambda: len(processes_in(tmp_path)) == 4)
        spark.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(experiment.SearchFailed, match="SparkSession was stopped") as caught:
        experiment.launch(
            spark, hang_after_the_first(tmp_path), {"x": range(5)}, logdir=tmp_path, **QUIET
        )
    stopper.join()
    statuses = [trial.status for trial in caught.value.result.trials]
    assert statuses == ["finished", "cancelled", "cancelled"]
    wait_until(lambda: not alive(processes_in(tmp_path)))


SCRIPT = """
import os, pathlib, subprocess, sys, time
import experiment
from pyspark.sql import SparkSession
folder = pathlib.Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    if x == 0:
        return 0.5
    child = subprocess.Popen(["sleep", "600"])
    (folder / f"pid-{child.pid}").touch()
    (folder / f"pid-{os.getpid()}").touch()
    time.sleep(600)

(folder / "starts").touch()
result = experiment.launch(
    spark, train, {"x": [0, 1, 2, 3]}, logdir=folder / "runs", preload=(), verbose=0
)
print(result.problem, [trial.status for trial in result.trials], flush=True)
while jobs := list(spark.sparkContext.statusTracker().getActiveJobsIds()):
    time.sleep(0.01)  # Spark tells of the end of a job some time after it
print(jobs, flush=True)
spark.stop()
"""
ENDED = ["finished", "cancelled", "cancelled"]


@pytest.fixture
def script(tmp_path):
    """A script that runs a search with two hanging trials."""
    with running(SCRIPT, tmp_path) as process:
        yield process


def run_of(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def wait_until_trials_hang(script, folder: Path) -> None:
    wait_until(lambda: len(processes_in(folder)) == 4 or script.poll() is not None)
    assert script.poll() is None, script.communicate()
    wait_until(lambda: any((run_of(folder) / "trials").glob("000000/outcome.json")))


@pytest.mark.slow
@pytest.mark.contract
def test_the_command_line_stops_a_search_of_another_process(script, tmp_path, capsys):
    wait_until_trials_hang(script, tmp_path)
    run = run_of(tmp_path)
    assert main(["stop", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"asked to stop: {run}, running on host ")
    output, errors = script.communicate(timeout=120)
    assert output.splitlines() == [f"stopped by python -m experiment stop {ENDED}", "[]"]
    assert "stopped by python -m experiment stop: 1 of 4 trials, 2 cancelled" in errors
    assert script.returncode == 0
    wait_until(lambda: not alive(processes_in(tmp_path)))
    assert main(["stop", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected a run in progress, got " in line
    assert "ended early: stopped by python -m experiment stop" in line


@pytest.mark.parametrize("problem", [None, "interrupted"])
def test_an_ended_run_cannot_be_stopped(tmp_path, capsys, problem):
    run = make_run(tmp_path, problem=problem)
    assert main(["stop", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected a run in progress" in line
    assert ("finished" if problem is None else "ended early: interrupted") in line
    assert not (run / "stop").exists()


def test_a_folder_without_a_run_cannot_be_stopped(tmp_path, capsys):
    assert main(["stop", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the folder of a run" in line
    assert list(tmp_path.iterdir()) == []


TO_WHOM = pytest.mark.parametrize(
    "send",
    [pytest.param(os.kill, marks=(pytest.mark.slow, pytest.mark.thorough)), os.killpg],
    ids=["process", "group"],
)


@pytest.mark.slow
@pytest.mark.fault(38)
@TO_WHOM
def test_two_ctrl_c_end_a_search_like_one(script, tmp_path, send):
    wait_until_trials_hang(script, tmp_path)
    send(script.pid, signal.SIGINT)
    send(script.pid, signal.SIGINT)
    run = run_of(tmp_path)
    wait_until(lambda: not alive(processes_in(tmp_path)))
    output, errors = script.communicate(timeout=120)
    assert output.splitlines() == [f"interrupted {ENDED}", "[]"]
    assert "Traceback" not in errors
    assert "interrupted: 1 of 4 trials, 2 cancelled, best metric 0.5 in trial 0: x=0; " in errors
    assert f"; resume={str(run)!r} continues it\n" in errors
    assert script.returncode == 0
    assert json.loads((run / "result.json").read_text())["problem"] == "interrupted"


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.fault(38)
def test_repeated_ctrl_c_keeps_the_result(script, tmp_path):
    """Ctrl-C is sent until the result exists, so that some arrive while it is written."""
    wait_until_trials_hang(script, tmp_path)
    run = run_of(tmp_path)
    while not (run / "result.json").exists():
        script.send_signal(signal.SIGINT)
        time.sleep(0.02)
    summary = json.loads((run / "result.json").read_text())
    assert (summary["problem"], summary["trials"]) == ("interrupted", 3)
    wait_until(lambda: not alive(processes_in(tmp_path)))
    script.communicate(timeout=120)  # a Ctrl-C after the search may end the script
    trials = experiment.load(run).trials
    assert [trial.status for trial in trials] == ENDED


@pytest.mark.slow
@pytest.mark.fault(38)
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("starts", marks=(pytest.mark.slow, pytest.mark.thorough)),
        "runs",
        pytest.param("runs/*/manifest.json", marks=(pytest.mark.slow, pytest.mark.thorough)),
        "runs/*/journal/*",
    ],
)
def test_ctrl_c_at_the_start_leaves_no_process(script, tmp_path, moment):
    wait_until(lambda: any(tmp_path.glob(moment)))
    script.send_signal(signal.SIGINT)
    if moment == "starts":  # the search does not handle it yet, and Python ignores it in callbacks
        wait_until(lambda: script.poll() is not None or len(processes_in(tmp_path)) == 4)
        script.send_signal(signal.SIGINT)
    script.communicate(timeout=120)
    wait_until(lambda: not alive(processes_in(tmp_path)))


@pytest.mark.slow
@pytest.mark.fault(39)
@TO_WHOM
def test_sigterm_keeps_the_partial_result_and_ends_the_script(script, tmp_path, send):
    wait_until_trials_hang(script, tmp_path)
    run = run_of(tmp_path)
    send(script.pid, signal.SIGTERM)  # for the group: Spark's JVM also ends at once
    output, _ = script.communicate(timeout=120)
    assert script.returncode == -signal.SIGTERM
    assert output == ""  # the script does not run past the search
    summary = json.loads((run / "result.json").read_text())
    assert (summary["problem"], summary["trials"]) == ("ended by SIGTERM", 3)
    assert summary["best"]["value"] == 0.5
    assert [trial.status for trial in experiment.load(run).trials] == ENDED
    wait_until(lambda: not alive(processes_in(tmp_path)))


@pytest.mark.fault(11)
def test_a_returned_path_is_an_error(spark, logdir):
    def train(x):
        path = os.path.join(experiment.logdir(), "model.txt")
        Path(path).write_text("weights")
        return path

    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(spark, train, {"x": [1]}, logdir=logdir, **QUIET)
    (trial,) = caught.value.result.trials
    assert trial.error.kind == "invalid value"
    assert "want float" in str(trial.error)
    assert Path(trial.logdir, "model.txt").read_text() == "weights"


def test_trials_output_is_shown_with_their_numbers(spark, logdir, capfd):
    def train(x):
        import sys

        print(f"hello {x} \x1b[2J")
        print("warns", file=sys.stderr)
        print("no end", end="")
        return x

    experiment.launch(spark, train, {"x": [1, 2]}, logdir=logdir, preload=(), verbose=2)
    shown = capfd.readouterr().err
    assert "\x1b" not in shown
    lines = shown.splitlines()
    for trial in (0, 1):
        assert f"[trial {trial}] hello {trial + 1} ?[2J" in lines
        said = "".join(line for line in lines if line.startswith(f"[trial {trial}]"))
        assert "warns" in said
        assert "no end" in said
        assert any(line.startswith(f"trial {trial} (x={trial + 1}) finished") for line in lines)
