"""Trials on several slots, on a real local Spark: each worker is a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import experiment
from experiment.driver.jobs import slot_jobs, too_few_slots
from spark_jobs import time_limits
from tests.conftest import marked_commands
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.whole_searches.gangs import taken_ports
from tests.whole_searches.scripts import running

TWO = {"workers_per_trial": 2, "preload": (), "verbose": 0}


def hang(folder):
    """Write the process id down and wait for ever, as in a collective whose peer is gone."""
    Path(folder, f"pid-{os.getpid()}").touch()
    threading.Event().wait()


@pytest.fixture
def pids(tmp_path):
    """A folder for the process ids of trials, none of which outlives the search."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield str(folder)
    wait_until(lambda: not alive(processes_in(folder)))


def records(run, event):
    return records_in(run.logdir, event)


def records_in(folder, event):
    lines = Path(folder, "journal", "000001.jsonl").read_text().splitlines()
    found = [json.loads(line[9:]) for line in lines]
    return [record for record in found if record["event"] == event]


def named(run, rank):
    """Return how the failures of a run name a worker: all slots are on one host."""
    (host,) = {record["host"] for record in records(run, "joined")}
    return f"worker {rank} of 2, on {host}: "


def trains(x):
    """Return x at rank 0; print what frameworks need to find each other."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")
    seen = {name: os.environ[name] for name in names}
    print(json.dumps({**seen, "rank": experiment.rank(), "workers": experiment.world_size()}))
    experiment.report(step=0, loss=x)
    Path(experiment.logdir(), "model").write_text(f"of rank {experiment.rank()}")
    return {"loss": x} if experiment.rank() == 0 else None


@pytest.fixture(scope="module")
def run(sparks, tmp_path_factory):
    """A finished grid whose trials ran on two slots each."""
    return experiment.launch(
        sparks.get("local[2]"),
        trains,
        {"x": [1.0, 2.0, 3.0]},
        logdir=tmp_path_factory.mktemp("runs"),
        **TWO,
    )


def test_the_value_of_rank_0_is_the_trials(run):
    assert [(t.status, t.value) for t in run.trials] == [("finished", x) for x in (1.0, 2.0, 3.0)]
    assert run.problem is None


def test_each_worker_has_its_rank_and_the_addresses_of_all(run):
    for trial in run.trials:
        folders = Path(trial.logdir), Path(trial.logdir, "workers", "1")
        seen = [json.loads((folder / "stdout.log").read_text()) for folder in folders]
        assert [worker["rank"] for worker in seen] == [0, 1]
        assert [worker["RANK"] for worker in seen] == ["0", "1"]
        configs = [json.loads(worker["TF_CONFIG"]) for worker in seen]
        assert configs[0]["cluster"] == configs[1]["cluster"]
        servers = configs[0]["cluster"]["worker"]
        assert len(set(servers)) == 2
        for rank, worker in enumerate(seen):
            assert configs[rank]["task"] == {"type": "worker", "index": rank}
            assert f"{worker['MASTER_ADDR']}:{worker['MASTER_PORT']}" == servers[0]
            assert (worker["WORLD_SIZE"], worker["workers"], worker["LOCAL_RANK"]) == ("2", 2, "0")


def test_a_trial_is_one_run_of_tensorboard_with_the_files_of_rank_0(run):
    root = Path(run.logdir)
    events = [path.relative_to(root) for path in root.rglob("*tfevents*")]
    assert not any("workers" in path.parts for path in events)
    for trial in run.trials:
        assert Path(trial.logdir, "model").read_text() == "of rank 0"
        assert [Path(path).name for path in trial.files] == ["model"]
        names = {path.name for path in Path(trial.logdir, "workers", "1").iterdir()}
        assert names == {"trial.json", "outcome.json", "stdout.log", "stderr.log"}


def test_no_file_of_the_run_has_the_key_of_a_gang(run):
    for path in Path(run.logdir).rglob("*"):
        if path.is_file():
            assert b"PRIVATE KEY" not in path.read_bytes(), path


def test_the_journal_has_the_slots_of_each_attempt_by_rank(run):
    for planned in records(run, "planned"):
        assert len(set(planned["slots"])) == 2
        assert planned["slot"] == planned["slots"][0]
    assert experiment.load(run.logdir).trials == run.trials
    manifest = json.loads(Path(run.logdir, "manifest.json").read_text())
    assert manifest["workers_per_trial"] == 2


def test_the_command_shows_the_output_of_a_worker(run):
    def logs(*arguments):
        command = [sys.executable, "-m", "experiment", "logs", run.logdir, "1", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert json.loads(logs("--worker", "1").stdout)["rank"] == 1
    assert json.loads(logs().stdout)["rank"] == 0
    refused = logs("--worker", "2")
    assert refused.returncode == 2
    assert "worker: expected a worker of trial 1 that has started, 0 to 1, got 2" in refused.stderr


def test_a_worker_that_raises_fails_the_trial_with_its_rank_and_ends_the_others(
    spark, logdir, pids
):
    def train(x):
        if experiment.rank() == 1:
            raise ValueError("rank 1 does not like this")
        hang(pids)

    with pytest.raises(experiment.SearchFailed) as failed:
        experiment.launch(spark, train, {"x": [1]}, logdir=logdir, **TWO)
    result = failed.value.result
    [trial] = result.trials
    assert trial.error.kind == "user error"
    assert trial.error.message == named(result, 1) + "ValueError: rank 1 does not like this"
    assert "in train" in trial.error.traceback
    ended = json.loads(Path(trial.logdir, "outcome.json").read_text())
    assert (ended["status"], ended["reason"]) == ("cancelled", "worker 1 of 2 has failed")


def test_what_only_a_worker_can_know_fails_the_trial_with_its_rank_and_host(spark, logdir):
    """The driver cannot see which frameworks the hosts of executors have."""
    with pytest.raises(experiment.SearchFailed) as failed:
        experiment.launch(
            spark,
            lambda x: x,
            {"x": [1]},
            strategy=experiment.Jax(unprotected=True),
            logdir=logdir,
            **TWO | {"preload": ("tests.whole_searches.gangs.without_jax",)},
        )
    result = failed.value.result
    [trial] = result.trials
    assert trial.error.kind == "user error"
    assert trial.error.message in [
        f"{named(result, rank)}search.errors.InvalidArgument: strategy: expected JAX, for 'jax', "
        f"got none on the host of worker {rank}; install it, or use None"
        for rank in range(2)
    ]


def counting(folder, fault):
    """Return a train function that counts in its checkpoint; rank 1's first attempt has a fault."""

    def train(x):
        step = Path(experiment.checkpoint_dir(), "step")
        began = int(step.read_text()) if step.exists() else 0
        Path(folder, f"began-{experiment.rank()}-{began}").touch()
        if not began:
            step.write_text("5")  # only that of rank 0 is kept
            if experiment.rank() == 0:
                hang(folder)
            while not processes_in(Path(folder)):  # rank 0 has its checkpoint
                threading.Event().wait(0.01)
            fault()
        return float(began)

    return train


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_slot():
    zygote = psutil.Process().parent()
    zygote.parent().kill()
    threading.Event().wait()


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.usefixtures("own_zygotes")
@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (kill_this_process, "exit", "signal 9 (SIGKILL) before it returned"),
        (kill_the_slot, "lost executor", ""),
    ],
)
def test_a_trial_whose_worker_dies_goes_on_from_its_checkpoint_on_all_ranks(
    spark, logdir, pids, fault, kind, said
):
    run = experiment.launch(
        spark,
        counting(pids, fault),
        {"x": [1]},
        logdir=logdir,
        retry_on=("lost executor", "machine", "exit"),
        **TWO,
    )
    [trial] = run.trials
    assert (trial.status, trial.value, trial.attempt) == ("finished", 5.0, 2)
    names = {path.name for path in Path(pids).glob("began-*")}
    assert names == {"began-0-0", "began-1-0", "began-0-5", "began-1-5"}
    [lost] = records(run, "lost")
    assert (lost["kind"], lost["trial"]) == (kind, 0)
    assert lost["message"].startswith(named(run, 1) + said)
    assert lost["slot"] == records(run, "planned")[0]["slots"][1]


def test_a_trial_that_has_lost_a_worker_goes_on_with_fewer(cluster, logdir, pids):
    def train(x):
        step = Path(experiment.checkpoint_dir(), "step")
        if not step.exists():
            step.write_text("5")
            hang(pids)
        return {"step": int(step.read_text()), "workers": experiment.world_size()}

    handle = experiment.submit(
        experiment.launch,
        cluster,
        train,
        {"x": [1]},
        workers_per_trial=(1, 2),
        optimization_key="step",
        logdir=logdir,
        preload=(),
        verbose=0,
    )
    try:
        wait_until(lambda: len(processes_in(Path(pids))) == 2)
        executor = cluster.sparkContext._jsc.sc().getExecutorIds().apply(0)
        cluster.sparkContext._jsc.sc().killExecutor(executor)  # and asks for no other one
        run = handle.result()
    finally:
        cluster.stop()
    [trial] = run.trials
    assert (trial.value, trial.metrics["workers"], trial.attempt) == (5, 1, 2)
    first, second = records(run, "planned")
    assert len(first["slots"]) == 2
    assert "slots" not in second
    manifest = json.loads(Path(run.logdir, "manifest.json").read_text())
    assert manifest["workers_per_trial"] == [1, 2]


def test_a_worker_that_does_not_end_is_ended_after_rank_0_has_returned(spark, logdir, pids):
    def train(x):
        if experiment.rank() == 1:
            hang(pids)
        while not processes_in(Path(pids)):
            threading.Event().wait(0.01)
        return x

    run = experiment.launch(spark, train, {"x": [1.0, 2.0]}, logdir=logdir, grace=0.2, **TWO)
    assert [trial.value for trial in run.trials] == [1.0, 2.0]
    ended = json.loads(Path(run.trials[0].logdir, "workers", "1", "outcome.json").read_text())
    assert (ended["status"], ended["reason"]) == ("cancelled", "worker 0 of 2 has returned")


@pytest.mark.slow
@pytest.mark.contract
def test_workers_have_their_time_to_end_when_the_last_trial_has_ended(
    spark, logdir, tmp_path, monkeypatch
):
    monkeypatch.setattr(time_limits, "SLOTS_END", 0.0)
    saved = tmp_path / "saved"

    def train(x):
        if experiment.rank() == 1:
            while not list(Path(logdir).glob("*/trials/000000/outcome.json")):
                threading.Event().wait(0.01)
            threading.Event().wait(8)  # as saving takes; Spark ends a task within 2 s
            saved.touch()
        return x

    experiment.launch(spark, train, {"x": [1.0]}, logdir=logdir, grace=60.0, **TWO)
    assert saved.exists()


def test_workers_that_hang_are_ended_at_the_time_limit(spark, logdir, pids):
    def train(x):
        hang(pids)

    with pytest.raises(experiment.SearchFailed) as failed:
        experiment.launch(spark, train, {"x": [1]}, logdir=logdir, timeout=1, grace=0.2, **TWO)
    result = failed.value.result
    [trial] = result.trials
    assert trial.error.kind == "time"
    said = "ended at the time limit of 1 s"
    assert trial.error.message in (named(result, 0) + said, named(result, 1) + said)


def test_a_deadline_ends_a_search_with_a_gang_out(spark, logdir, pids, monkeypatch):
    """The fake clock passes it once both workers of the second trial hang."""

    def monotonic():
        return time.monotonic() + 600 * (len(processes_in(Path(pids))) == 2)

    monkeypatch.setattr(slot_jobs, "time", SimpleNamespace(monotonic=monotonic, time=time.time))

    def train(x):
        if x == 2.0:
            hang(pids)
        return x

    grid = {"x": [1.0, 2.0, 3.0]}
    with pytest.warns(UserWarning, match="the deadline of 600 s has passed: 1 of 3 trials"):
        run = experiment.launch(spark, train, grid, deadline=600, logdir=logdir, grace=0.2, **TWO)
    assert run.problem == "the deadline of 600 s has passed"
    assert [(t.status, t.value) for t in run.trials] == [("finished", 1.0), ("cancelled", None)]
    assert experiment.load(run.logdir).trials == run.trials
    assert len(processes_in(Path(pids))) == 2
    wait_until(lambda: not alive(processes_in(Path(pids))))


@pytest.mark.slow
@pytest.mark.contract
def test_a_rule_stops_rank_0_and_the_others_are_ended(spark, logdir, pids):
    def train(x):
        if experiment.rank() == 1:
            hang(pids)
        while True:
            experiment.report(loss=x)
            threading.Event().wait(0.01)

    run = experiment.launch(
        spark,
        train,
        {"x": [3.0]},
        direction="min",
        stopping=experiment.Threshold(upper=2.0),
        logdir=logdir,
        grace=0.2,
        **TWO,
    )
    [trial] = run.trials
    assert (trial.status, trial.value) == ("stopped", 3.0)


@pytest.mark.slow
@pytest.mark.contract
def test_a_search_that_was_ended_with_a_gang_out_is_resumed(spark, logdir, pids, tmp_path):
    may_end = tmp_path / "may end"

    def train(x):
        if x == 2.0 and not may_end.exists():
            hang(pids)
        return x

    handle = experiment.submit(
        experiment.launch, spark, train, {"x": [1.0, 2.0, 3.0]}, logdir=logdir, **TWO
    )
    wait_until(lambda: len(processes_in(Path(pids))) == 2)
    handle.cancel()
    first = handle.result()
    assert [trial.status for trial in first.trials] == ["finished", "cancelled"]
    may_end.touch()
    run = experiment.launch(
        spark, train, {"x": [1.0, 2.0, 3.0]}, logdir=logdir, resume=first.logdir, **TWO
    )
    assert [(trial.value, trial.attempt) for trial in run.trials] == [(1.0, 1), (2.0, 2), (3.0, 1)]


# Its second trial hangs unless the folder has a file `may end`.
PROGRAM = """
import os, pathlib, sys, threading, time
import experiment
from pyspark.sql import SparkSession
folder = pathlib.Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    if x == 2.0 and not (folder / "may end").exists():
        (folder / f"pid-{os.getpid()}").touch()
        threading.Event().wait()
    return x

run = experiment.launch(
    spark,
    train,
    {"x": [1.0, 2.0, 3.0]},
    workers_per_trial=2,
    resume=next((folder / "runs").glob("*"), None),
    logdir=folder / "runs",
    preload=(),
    verbose=0,
)
print(run.problem, [(trial.status, trial.attempt) for trial in run.trials], flush=True)
while jobs := list(spark.sparkContext.statusTracker().getActiveJobsIds()):
    time.sleep(0.01)  # Spark tells of the end of a job some time after it
print(jobs, flush=True)
spark.stop()
"""


def wait_until_workers_hang(process, folder):
    wait_until(lambda: len(processes_in(folder)) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def check_that_it_is_resumed(folder):
    Path(folder, "may end").touch()
    with running(PROGRAM, folder) as process:
        output, errors = process.communicate(timeout=240)
    ended = "None [('finished', 1), ('finished', 2), ('finished', 1)]"
    assert output.splitlines() == [ended, "[]"], errors


@pytest.mark.slow
@pytest.mark.contract
def test_ctrl_c_with_a_gang_out_leaves_no_process_and_a_run_to_resume(tmp_path):
    before = set(marked_commands())
    with running(PROGRAM, tmp_path) as process:
        wait_until_workers_hang(process, tmp_path)
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: not alive(processes_in(tmp_path)))
        output, errors = process.communicate(timeout=120)
    ended = "interrupted [('finished', 1), ('cancelled', 1)]"
    assert output.splitlines() == [ended, "[]"], errors
    assert "Traceback" not in errors
    assert process.returncode == 0
    wait_until(lambda: not set(marked_commands()) - before)
    check_that_it_is_resumed(tmp_path)


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(23)
def test_a_driver_that_is_killed_with_a_gang_out_leaves_no_process_and_a_run_to_resume(tmp_path):
    before = set(marked_commands())
    with running(PROGRAM, tmp_path) as process:
        wait_until_workers_hang(process, tmp_path)
        process.kill()
        wait_until(lambda: not set(marked_commands()) - before)
    check_that_it_is_resumed(tmp_path)


@pytest.mark.slow
@pytest.mark.contract
def test_fresh_interpreters_work_together_too(spark, logdir):
    def train(x):
        return x + 10 * experiment.world_size()

    run = experiment.launch(spark, train, {"x": [1]}, isolation="spawn", logdir=logdir, **TWO)
    assert [trial.value for trial in run.trials] == [21.0]


@pytest.mark.slow
@pytest.mark.contract
def test_parallelism_counts_trials_and_population_based_training_hands_checkpoints_on(
    spark, logdir
):
    def train(x):
        path = Path(experiment.checkpoint_dir(), "steps")
        steps = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(steps))
        return steps if experiment.rank() == 0 else None

    run = experiment.population_based_training(
        spark,
        train,
        {"x": [0.0, 1.0]},
        popsize=2,
        generations=2,
        parallelism=1,
        seed=1,
        logdir=logdir,
        **TWO,
    )
    assert [trial.value for trial in run.trials] == [1, 1, 2, 2, 3, 3]


def test_more_trials_at_once_than_slots_run_as_there_are_slots(spark, logdir):
    def train(x):
        return x + 10 * experiment.world_size()

    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    grid = {"x": [1.0, 2.0, 3.0, 4.0]}
    run = experiment.launch(spark, train, grid, parallelism=3, logdir=logdir, **TWO)
    assert [trial.value for trial in run.trials] == [21.0, 22.0, 23.0, 24.0]
    (job,) = set(tracker.getJobIdsForGroup()) - before
    (stage,) = tracker.getJobInfo(job).stageIds
    assert tracker.getStageInfo(stage).numTasks == 6, "slots are asked for all workers"
    assert {tuple(sorted(planned["slots"])) for planned in records(run, "planned")} == {
        ("1.0.0", "1.1.0")
    }


def test_one_training_on_several_slots_returns_its_trial(spark, logdir):
    def train(scale):
        return {"accuracy": scale * experiment.world_size()} if experiment.rank() == 0 else None

    trial = experiment.distributed_training(
        spark, train, {"scale": 0.25}, workers=2, logdir=logdir, preload=(), verbose=0
    )
    assert isinstance(trial, experiment.TrialResult)
    assert (trial.value, trial.params, trial.metrics) == (0.5, {"scale": 0.25}, {"accuracy": 0.5})


def test_a_training_that_fails_raises_with_the_worker(spark, logdir):
    def train():
        raise ValueError("no data") if experiment.rank() else SystemExit(3)

    with pytest.raises(experiment.SearchFailed, match=r"worker . of 2, on \S+: "):
        experiment.distributed_training(
            spark, train, workers=2, logdir=logdir, preload=(), verbose=0
        )


def mean_of_ranks(x):
    """Return x and the mean of the ranks, which rank 0 gets from all workers."""
    (mean,) = experiment.all_reduce([float(experiment.rank())])
    (first,) = experiment.broadcast([x if experiment.rank() == 0 else 0.0])
    experiment.barrier()
    return float(first + mean)


def test_workers_exchange_arrays(spark, logdir):
    run = experiment.launch(spark, mean_of_ranks, {"x": [1.0, 2.0]}, logdir=logdir, **TWO)
    assert [trial.value for trial in run.trials] == [1.5, 2.5]


def test_workers_call_the_function_as_often_as_repeats_say(spark, logdir):
    def train(x):
        (total,) = experiment.all_reduce([np.array([float(experiment.repeat())])], "sum")
        return x + float(total[0])  # of two workers: 0, 2, 4

    settings = {"logdir": logdir, "repeats": 3, **TWO}
    [trial] = experiment.launch(spark, train, {"x": [1.0]}, **settings).trials
    assert (trial.status, trial.value) == ("finished", 3.0)


@pytest.mark.slow
def test_twelve_workers_on_one_host_exchange_arrays_without_a_deadlock(sparks, logdir):
    def train(x):
        array = [float(experiment.rank())] * 100_000
        for _ in range(20):
            (array,) = experiment.all_reduce([array])
            experiment.barrier()
        return x + float(array[0])

    run = experiment.launch(
        sparks.get("local[12]"),
        train,
        {"x": [1.0, 2.0]},
        workers_per_trial=12,
        logdir=logdir,
        preload=(),
        verbose=0,
    )
    assert [trial.value for trial in run.trials] == [6.5, 7.5]


@pytest.mark.slow
@pytest.mark.contract
def test_workers_that_are_fresh_interpreters_exchange_arrays(spark, logdir):
    run = experiment.launch(
        spark, mean_of_ranks, {"x": [1.0]}, isolation="spawn", logdir=logdir, **TWO
    )
    assert [trial.value for trial in run.trials] == [1.5]


def test_a_worker_whose_port_is_taken_is_the_machines_failure(spark, logdir):
    spark.conf.set("spark.experiment.workerPorts", "{}-{}".format(*taken_ports.PORTS))
    try:
        with pytest.raises(experiment.SearchFailed) as failed:
            experiment.launch(
                spark,
                mean_of_ranks,
                {"x": [1.0]},
                logdir=logdir,
                retries=0,
                **TWO | {"preload": (taken_ports.__name__,)},
            )
    finally:
        spark.conf.unset("spark.experiment.workerPorts")
    [trial] = failed.value.result.trials
    assert trial.error.kind == "machine"
    assert re.fullmatch(
        r"worker [01] of 2, on \S+: worker [01] cannot listen at 127.0.0.1:\d+ "
        r"\(Address already in use\); another program may have taken the port: .*",
        trial.error.message,
    )


def test_more_workers_than_slots_are_refused_before_spark_runs_a_job(spark, logdir):
    said = (
        "workers_per_trial: expected at most 2, the slots that this cluster can have, got 3; use "
        "fewer, or give Spark more executors or cores"
    )
    for call in (experiment.launch, lambda *a, **k: experiment.plan(experiment.launch, *a, **k)):
        with pytest.raises(experiment.InvalidArgument) as refused:
            call(spark, trains, {"x": [1]}, workers_per_trial=3, logdir=logdir, verbose=0)
        assert str(refused.value) == said
    with pytest.raises(experiment.InvalidArgument) as refused:
        experiment.distributed_training(spark, trains, {"x": 1}, workers=3, logdir=logdir)
    assert str(refused.value) == said.replace("workers_per_trial", "workers")
    assert not list(Path(logdir).glob("*/journal"))


def occupier(folder):
    """Return a train function that ends when the folder has a file `free-x`."""

    def occupy(x):
        Path(folder, f"occupied-{x}").touch()
        while not Path(folder, f"free-{x}").exists():
            threading.Event().wait(0.02)
        return x

    return occupy


@pytest.mark.slow
@pytest.mark.contract
def test_a_search_with_too_few_slots_gives_them_back_to_others(
    spark, logdir, tmp_path, monkeypatch
):
    """Else two searches that have half of the slots each would wait for each other for ever."""
    monkeypatch.setattr(too_few_slots, "_PATIENCE", 0.5)
    monkeypatch.setattr(too_few_slots, "_FIRST_PAUSE", 1.0)
    one = {"preload": (), "verbose": 0, "logdir": logdir, "parallelism": 1}
    occupying = experiment.submit(experiment.launch, spark, occupier(tmp_path), {"x": [1]}, **one)
    wait_until((tmp_path / "occupied-1").exists)
    waiting = experiment.submit(
        experiment.launch, spark, trains, {"x": [1.0]}, name="two", logdir=logdir, **TWO
    )
    wait_until(lambda: list(Path(logdir).glob("two-*/journal/*.jsonl")))
    small = experiment.launch(spark, lambda x: x, {"x": [5.0]}, **one)
    assert small.best.value == 5.0, "it ran on the slot that the search for two has given back"
    assert waiting.status() == occupying.status() == "running"
    (tmp_path / "free-1").touch()
    assert waiting.result().best.value == 1.0
    assert occupying.result().best.value == 1.0


FAIR = """<allocations>
  <pool name="default"><schedulingMode>FAIR</schedulingMode></pool>
</allocations>
"""


@pytest.mark.slow
@pytest.mark.contract
def test_two_searches_that_hold_half_of_each_others_slots_both_end(
    sparks, logdir, tmp_path, monkeypatch
):
    monkeypatch.setattr(too_few_slots, "_PATIENCE", 2.0)
    monkeypatch.setattr(too_few_slots, "_FIRST_PAUSE", 1.0)
    pools = tmp_path / "pools.xml"
    pools.write_text(FAIR)
    fair = {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": str(pools)}
    spark = sparks.get("local[2]", **fair)

    def slots_of(name):
        """Return the records of the slots that have joined a search."""
        (run,) = Path(logdir).glob(f"{name}-*")
        return records_in(run, "joined")

    one = {"preload": (), "verbose": 0, "logdir": logdir}
    points = {"x": [0, 1]}
    occupying = experiment.submit(experiment.launch, spark, occupier(tmp_path), points, **one)
    wait_until(lambda: len(list(tmp_path.glob("occupied-*"))) == 2)
    searches = {
        name: experiment.submit(
            experiment.launch, spark, trains, {"x": [1.0]}, name=name, logdir=logdir, **TWO
        )
        for name in ("left", "right")
    }
    jobs = spark.sparkContext.statusTracker()
    wait_until(lambda: len(jobs.getActiveJobsIds()) == 3)
    for x in (0, 1):  # Spark gives a core that is free to the search with fewer slots
        Path(tmp_path, f"free-{x}").touch()
        wait_until(lambda x=x: sum(bool(slots_of(name)) for name in searches) > x)
    assert all(search.result().best.value == 1.0 for search in searches.values())
    assert any(len(slots_of(name)) > 2 for name in searches), "one has given its slot back"
    occupying.result()


@pytest.mark.slow
@pytest.mark.contract
def test_too_few_slots_for_too_long_end_the_search_with_both_numbers(
    spark, logdir, tmp_path, monkeypatch
):
    """The fake clock passes the limit between two looks at which one slot is there."""
    decide, present_at = too_few_slots.TooFewSlots.decide, []

    def decide_later(few, present, missing, now):
        present_at.append(present)
        return decide(few, present, missing, now + 500 * sum(present_at))

    monkeypatch.setattr(too_few_slots.TooFewSlots, "decide", decide_later)
    one = {"preload": (), "verbose": 0, "logdir": logdir, "parallelism": 1}
    occupying = experiment.submit(experiment.launch, spark, occupier(tmp_path), {"x": [1]}, **one)
    wait_until((tmp_path / "occupied-1").exists)
    said = r"only 1 of the 2 slots of a trial has started within 500 s; asked Spark for 2 slots"
    try:
        with pytest.raises(experiment.SearchFailed, match=said):
            experiment.launch(spark, trains, {"x": [1]}, startup_timeout=500, logdir=logdir, **TWO)
    finally:
        (tmp_path / "free-1").touch()
    occupying.result()


@pytest.mark.slow
@pytest.mark.usefixtures("own_zygotes")
def test_two_executors_run_a_trial_together_and_one_that_is_lost_is_replaced(cluster, logdir, pids):
    def train(x):
        step = Path(experiment.checkpoint_dir(), "step")
        if not step.exists():
            step.write_text("7")
            if experiment.rank() == 0:
                hang(pids)
            while not processes_in(Path(pids)):
                threading.Event().wait(0.01)
            for process in psutil.Process().parents():
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    process.kill()
            threading.Event().wait()
        return int(step.read_text())

    run = experiment.launch(cluster, train, {"x": [1]}, logdir=logdir, **TWO)
    assert [(t.value, t.attempt) for t in run.trials] == [(7.0, 2)]
    assert records(run, "lost")[0]["message"].startswith(named(run, 1) + "its executor was lost")


@pytest.mark.slow
def test_workers_on_two_hosts_run_a_trial_together(two_hosts, logdir):
    def train(x):
        with socket.socket() as listening:  # as a framework does with its address
            address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
            host, port = address[experiment.rank()].split(":")
            # Servers set it, and the slot's own socket shares the port with those only.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, int(port)))
            listening.listen()
            other, port = address[1 - experiment.rank()].split(":")
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    with socket.create_connection((other, int(port))):
                        break
                threading.Event().wait(0.01)
            listening.accept()[0].close()
        return x

    run = experiment.launch(two_hosts, train, {"x": [1.0, 2.0]}, logdir=logdir, **TWO)
    assert [trial.value for trial in run.trials] == [1.0, 2.0]
    assert len({record["host"] for record in records(run, "joined")}) == 2


@pytest.mark.parametrize("value", ["20000", "20999-20000", "80-90", "20000-70000", "many"])
def test_an_invalid_range_of_ports_is_refused(spark, logdir, value):
    spark.conf.set("spark.experiment.workerPorts", value)
    try:
        with pytest.raises(experiment.InvalidArgument) as refused:
            experiment.launch(spark, trains, {"x": [1]}, logdir=logdir, **TWO)
    finally:
        spark.conf.unset("spark.experiment.workerPorts")
    said = "spark.experiment.workerPorts: expected two ports from 1024 to 65535, the lower one"
    assert str(refused.value).startswith(said)


@pytest.mark.slow
@pytest.mark.contract
def test_workers_listen_in_the_range_of_the_setting(spark, logdir):
    def train(x):
        return int(os.environ["MASTER_PORT"])

    spark.conf.set("spark.experiment.workerPorts", "22000-22199")
    try:
        run = experiment.launch(spark, train, {"x": [1]}, logdir=logdir, **TWO)
    finally:
        spark.conf.unset("spark.experiment.workerPorts")
    assert 22_000 <= run.best.value <= 22_199


@pytest.mark.slow
@pytest.mark.contract
def test_a_run_that_goes_on_with_another_number_of_workers_is_warned_of(run, spark, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.logdir, copy)
    with pytest.warns(UserWarning, match=r"workers_per_trial was 2 when .* was started, is 1"):
        again = experiment.launch(
            spark, trains, {"x": [1.0, 2.0, 3.0]}, resume=copy, preload=(), verbose=0
        )
    assert [trial.value for trial in again.trials] == [1.0, 2.0, 3.0]
