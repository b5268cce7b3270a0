"""Executors, Python workers and whole hosts that are lost while a search runs."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import experiment
from experiment.driver.coordinator import Coordinator
from experiment.run_files.journal import read_journal
from spark_jobs.messages import SlotId, Wait
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.faults.held import QUIET, check, held_in, hosts_of, release
from tests.servers.standalone import HOSTS, Standalone
from tests.spark_jobs import train_functions as functions
from tests.whole_searches.executors.kept import keepers

pytestmark = pytest.mark.slow

CLUSTER = "local-cluster[2,1,1024]"
MEMORY = {"spark.executor.memory": "512m", "spark.executor.memoryOverhead": "384m"}


def lines_of(pid: int) -> tuple[psutil.Process, psutil.Process, psutil.Process]:
    """Return the slot, Spark's daemon and the JVM above the process of a trial."""
    _, slot, daemon, jvm, *_ = psutil.Process(pid).parents()
    assert "pyspark.daemon" in slot.cmdline()
    assert "pyspark.daemon" in daemon.cmdline()
    assert jvm.name() == "java"
    return slot, daemon, jvm


@pytest.mark.usefixtures("own_zygotes")
@pytest.mark.fault(15)
def test_a_killed_executor_costs_an_attempt_not_the_trial(cluster, tmp_path, submit):
    handle = submit(cluster)
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    _, _, executor = lines_of(processes_in(tmp_path)[0])
    executor.kill()
    wait_until(lambda: len(hosts_of(tmp_path)) == 3)
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert sorted(attempts.values()) == [1, 1, 1, 2]


@pytest.mark.usefixtures("own_zygotes")
@pytest.mark.fault(16)
@pytest.mark.parametrize(
    "failures",
    [
        pytest.param("1", id="the job is aborted"),
        pytest.param("4", id="the task runs again", marks=pytest.mark.thorough),
    ],
)
def test_a_killed_python_worker_of_an_executor_costs_an_attempt(sparks, tmp_path, failures, submit):
    spark = sparks.get(CLUSTER, **MEMORY, **{"spark.task.maxFailures": failures})
    handle = submit(spark)
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    slot, _, _ = lines_of(processes_in(tmp_path)[0])
    slot.kill()
    # An aborted job also ends the other slot.
    wait_until(lambda: len(hosts_of(tmp_path)) == (4 if failures == "1" else 3))
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert sorted(attempts.values()) == ([1, 1, 2, 2] if failures == "1" else [1, 1, 1, 2])


@pytest.mark.usefixtures("own_zygotes")
@pytest.mark.fault(16)
def test_a_killed_python_worker_of_a_local_session_costs_an_attempt(spark, tmp_path, submit):
    handle = submit(spark)
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    slot, _, _ = lines_of(processes_in(tmp_path)[0])
    slot.kill()
    wait_until(lambda: len(hosts_of(tmp_path)) == 4)
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert sorted(attempts.values()) == [1, 1, 2, 2]


@pytest.mark.usefixtures("own_zygotes")
@pytest.mark.fault(16)
@pytest.mark.parametrize("master", ["local[2]", pytest.param(CLUSTER, marks=pytest.mark.thorough)])
def test_a_killed_daemon_of_python_workers_loses_nothing(sparks, tmp_path, master, submit):
    spark = sparks.get(master, **(MEMORY if master == CLUSTER else {}))
    try:
        handle = submit(spark)
        wait_until(lambda: len(hosts_of(tmp_path)) == 2)
        _, daemon, _ = lines_of(processes_in(tmp_path)[0])
        daemon.kill()
        daemon.wait(240)
        check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
        again = experiment.launch(spark, functions.double, {"x": [1]}, logdir=tmp_path, **QUIET)
        assert again.best.value == 2.0
    finally:
        sparks.stop()  # its Python workers have no daemon any more


@pytest.mark.thorough
@pytest.mark.fault(17)
def test_the_trials_of_a_lost_host_run_on_the_other_one(standalone, two_hosts, tmp_path, submit):
    handle = submit(two_hosts)
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    before = hosts_of(tmp_path)
    lost, left = HOSTS
    assert sorted(before.values()) == [lost, left]
    standalone.kill_worker(lost)
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    after = hosts_of(tmp_path)
    for name, host in before.items():
        trial = int(name)
        assert attempts[trial] == (2 if host == lost else 1)
        assert after[Path(experiment.load(handle.result()).trials[trial].logdir).name] == left


@pytest.mark.thorough
@pytest.mark.fault(17)
def test_a_generation_continues_without_a_lost_host(standalone, two_hosts, tmp_path, submit):
    """Its other trials are done, and their slot waits for the lost one."""
    handle = submit(
        two_hosts,
        {"x": [0.0, 1.0]},
        call=experiment.evolutionary_search,
        popsize=4,
        generations=1,
        generational=True,
    )
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    standalone.kill_worker(HOSTS[0])
    result = release(tmp_path, handle)
    values = [2 * trial.params["x"] for trial in result.trials]
    assert len(values) == 8
    attempts = check(result, values, tmp_path)
    assert sorted(attempts.values()) == [1] * 7 + [2]


@pytest.mark.fault(18)
def test_a_search_without_executors_shows_it_and_continues_with_new_ones(
    standalone, two_hosts, tmp_path, monkeypatch, submit
):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    handle = submit(two_hosts, verbose=1)
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    for host in HOSTS:
        standalone.kill_worker(host)
    wait_until(lambda: "no slot, " in shown.getvalue())
    assert "asked for 2 slots of 1 core" in shown.getvalue()
    for host in HOSTS:
        assert re.search(rf"executor on host {host} lost, trial [01] runs again", shown.getvalue())
    assert handle.status() == "running"
    standalone.restore()
    wait_until(lambda: len(hosts_of(tmp_path)) == 4)
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert sorted(attempts.values()) == [1, 1, 2, 2]


WAITING = """
import os, sys
from pathlib import Path
import experiment
from pyspark.sql import SparkSession
from spark_jobs.session import classic
classic._REGISTRATION = 600.0  # the count of executors does not end before the signal
folder = Path(sys.argv[1])
builder = SparkSession.builder.master(sys.argv[2]).config("spark.ui.enabled", "false")
for setting in sys.argv[3:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
result = experiment.launch(spark, lambda x: x, {"x": [1, 2]}, logdir=folder / "runs")
print(result.problem, len(result.trials), flush=True)
spark.stop()
"""


@pytest.fixture
def no_hosts(standalone):
    """The standalone cluster without its workers."""
    for host in HOSTS:
        standalone.kill_worker(host)
    standalone.wait_alive(())
    return standalone


@pytest.mark.thorough
@pytest.mark.fault(19)
@pytest.mark.parametrize("counted", [False, True])
def test_ctrl_c_ends_the_wait_for_a_first_executor(no_hosts, tmp_path, counted):
    """If no number of executors is set, those that start are counted first."""
    settings = no_hosts.settings()
    if counted:
        del settings["spark.executor.instances"]
    log = tmp_path / "errors"
    with log.open("w") as errors:
        script = subprocess.Popen(
            [
                sys.executable,
                "-c",
                WAITING,
                str(tmp_path),
                no_hosts.master,
                *map("=".join, settings.items()),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "no executor" in log.read_text() or script.poll() is not None)
        script.send_signal(signal.SIGINT)
        output, _ = script.communicate(timeout=240)
    finally:
        script.kill()
    assert output == ("" if counted else "interrupted 0\n")
    # While executors are counted there is no run yet whose results could be returned.
    assert ("KeyboardInterrupt" in log.read_text()) == counted


@pytest.mark.thorough
@pytest.mark.fault(20)
def test_executors_released_by_dynamic_allocation_cost_no_attempt(
    sparks, standalone, tmp_path, submit
):
    allocation = {
        "enabled": "true",
        "shuffleTracking.enabled": "true",
        "minExecutors": "0",
        "maxExecutors": "2",
        "executorIdleTimeout": "1s",
        "schedulerBacklogTimeout": "1s",
    }
    wanted = {f"spark.dynamicAllocation.{name}": value for name, value in allocation.items()}
    spark = sparks.get(standalone.master, **standalone.settings(), **wanted)
    hold = held_in(tmp_path)

    def train(x):
        return 2 * x if x else hold(x)

    def executors():
        return sum(len(standalone.executors(host)) for host in HOSTS)

    def search():
        handle = submit(spark, trials=6, train=train)
        # The slot without work ends, and its executor is released.
        wait_until(lambda: len(handle.trials()) == 5)
        wait_until(lambda: executors() == 1)
        attempts = check(release(tmp_path, handle), [2.0 * x for x in range(6)], tmp_path)
        assert set(attempts.values()) == {1}
        (tmp_path / "release").unlink()
        wait_until(lambda: executors() == 0)

    search()
    search()  # it gets new ones


@pytest.mark.fault(20)
def test_a_decommissioned_host_ends_the_trial_that_it_runs_and_gets_no_more(
    sparks, standalone, tmp_path, monkeypatch, submit
):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    wanted = {"spark.decommission.enabled": "true"}
    spark = sparks.get(standalone.master, **standalone.settings(), **wanted)
    before = keepers()
    handle = submit(spark, verbose=1, preload=("numpy",))
    wait_until(lambda: len(hosts_of(tmp_path)) == 2)
    started = set(keepers()) - set(before)
    assert len(started) == 2
    leaving, staying = HOSTS
    (last,) = (int(name[:6]) for name, host in hosts_of(tmp_path).items() if host == leaving)
    standalone.decommission_worker(leaving)
    wait_until(lambda: f"executor on host {leaving} is decommissioned" in shown.getvalue())
    assert len(alive(processes_in(tmp_path))) == 2  # its trial ends normally
    (tmp_path / f"release-{last}").touch()
    wait_until(lambda: not standalone.executors(leaving))  # Spark ends idle executors
    wait_until(lambda: len(alive(started)) == 1)  # and with one the import that it kept
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert set(attempts.values()) == {1}
    hosts = hosts_of(tmp_path).values()
    assert sorted(hosts) == sorted([leaving, *[staying] * 3])


@pytest.mark.fault(21)
def test_a_speculative_copy_of_a_slot_neither_ends_nor_repeats_a_trial(
    sparks, standalone, tmp_path, submit
):
    """A copy without work must not end first, or Spark would kill the slot that has some."""
    eager = {"": "true", ".interval": "100ms", ".multiplier": "1.01", ".quantile": "0.1"}
    wanted = {f"spark.speculation{name}": value for name, value in eager.items()}
    spark = sparks.get(standalone.master, **standalone.settings(), **wanted)
    hold = held_in(tmp_path)

    def train(x):
        return 2 * x if x else hold(x)

    handle = submit(spark, train=train)
    wait_until(lambda: len(handle.trials()) == 3)
    tracker = spark.sparkContext.statusTracker()

    def copies():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks + stage.numCompletedTasks > 2 for stage in stages if stage)

    wait_until(copies)
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert set(attempts.values()) == {1}


@pytest.fixture
def two_cores_each(sparks, tmp_path, monkeypatch):
    """A standalone cluster whose two hosts have two cores each."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with Standalone(tmp_path / "standalone", cores=2) as cluster:
        yield cluster
        sparks.stop()  # before its master ends


@pytest.mark.fault(21)
def test_speculative_copies_of_slots_work_together_and_end_no_gang(
    sparks, two_cores_each, tmp_path, submit
):
    """Both slots of a trial that runs long get a copy, which must not end first."""
    eager = {"": "true", ".interval": "100ms", ".task.duration.threshold": "100ms"}
    wanted = {f"spark.speculation{name}": value for name, value in eager.items()}
    spark = sparks.get(two_cores_each.master, **two_cores_each.settings(), **wanted)
    gate = tmp_path / "release"

    def train(x):
        (tmp_path / f"pid-{os.getpid()}").touch()
        while x == 0 and not gate.exists():
            time.sleep(0.02)
        experiment.barrier()
        return 2 * x

    def records(event):
        (run,) = (tmp_path / "runs").iterdir()
        return [record for record in read_journal(run / "journal") if record["event"] == event]

    handle = submit(spark, train=train, parallelism=1, workers_per_trial=2)
    wait_until(lambda: len(handle.trials()) == 3)
    first, *others = (set(map(SlotId.parse, record["slots"])) for record in records("planned"))
    for copies in others:
        assert not copies & first
        assert {slot.task for slot in copies} == {slot.task for slot in first} == {(1, 0), (1, 1)}

    def without_work():
        waiting = [record for record in records("waiting") if record["why"] == "no trial yet"]
        return {record["slot"] for record in [*waiting, *records("left")]}

    wait_until(lambda: set(map(str, copies)) <= without_work())
    assert not records("left"), "Spark would kill the slots of the trial"
    attempts = check(release(tmp_path, handle), [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert set(attempts.values()) == {1}


def start_python_on_both(spark):
    """Run Python tasks until both hosts have had one."""

    def host(_):
        import os

        time.sleep(0.2)
        return os.environ["SPARK_LOCAL_IP"]

    def hosts():
        return set(spark.sparkContext.parallelize(range(4), 4).map(host).collect())

    wait_until(lambda: hosts() == set(HOSTS))


@pytest.mark.fault(31)
def test_a_host_that_cannot_write_is_named_and_the_other_one_runs_the_trials(
    sparks, standalone, tmp_path, submit
):
    broken, whole = HOSTS
    spark = sparks.get(standalone.master, **standalone.settings())
    wait_until(lambda: standalone.executors(broken))
    start_python_on_both(spark)
    standalone.fill_disks(broken)

    def search():
        handle = submit(spark)
        wait_until(lambda: len(warned))
        return release(tmp_path, handle)

    try:
        with pytest.warns(UserWarning, match=f"host {broken} cannot write to the folder") as warned:
            result = search()
        check(result, [0.0, 2.0, 4.0, 6.0], tmp_path)
        assert set(hosts_of(tmp_path).values()) == {whole}
    finally:
        standalone.kill_worker(broken)
        sparks.stop()


@pytest.mark.fault(21)
@pytest.mark.fault(31)
def test_a_speculative_copy_on_a_host_that_cannot_write_ends_no_trial(
    sparks, standalone, tmp_path, submit, monkeypatch
):
    """It has no work and must not end first, or Spark would kill the slot that has some."""
    broken, whole = HOSTS
    eager = {"": "true", ".interval": "100ms", ".multiplier": "1.01", ".quantile": "0.1"}
    wanted = {f"spark.speculation{name}": value for name, value in eager.items()}
    spark = sparks.get(standalone.master, **standalone.settings(), **wanted)
    wait_until(lambda: standalone.executors(broken))
    start_python_on_both(spark)
    standalone.fill_disks(broken)
    asked, next_of = set(), Coordinator.next

    def next_and_note(coordinator, message):
        answer, attempt = next_of(coordinator, message), SlotId.parse(message.slot).attempt
        asked.add((attempt, type(answer)))
        # The first slot there ends, and thus lets Spark start copies, once the other has a trial.
        has_trial = coordinator.trials.in_flight or coordinator.trials.results
        return answer if attempt or has_trial else Wait()

    def search():
        handle = submit(spark)
        wait_until(lambda: (1, Wait) in asked)
        return release(tmp_path, handle)

    monkeypatch.setattr(Coordinator, "next", next_and_note)
    try:
        with pytest.warns(UserWarning, match=f"host {broken} cannot write to the folder"):
            result = search()
        attempts = check(result, [0.0, 2.0, 4.0, 6.0], tmp_path)
        assert set(attempts.values()) == {1}
        assert set(hosts_of(tmp_path).values()) == {whole}
    finally:
        standalone.kill_worker(broken)
        sparks.stop()


def without(folder: Path, *left_out: str) -> str:
    """Create an interpreter with the packages of this one except some; return its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(pytest.__file__).parent.parent.iterdir():
        if not entry.name.lower().startswith(left_out):
            (packages / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    "missing",
    ["msgspec", pytest.param("tensorflow", marks=pytest.mark.thorough)],
    ids=["a dependency of ours", "TensorFlow"],
)
def test_a_python_of_executors_that_lacks_something_is_one_sentence_with_the_host(
    sparks, standalone, tmp_path, monkeypatch, missing
):
    monkeypatch.setenv("PYSPARK_PYTHON", without(tmp_path / "python", missing))
    sparks.stop()
    spark = sparks.get(standalone.master, **standalone.settings())
    try:
        with pytest.raises(experiment.SearchFailed) as caught:
            experiment.launch(
                spark,
                functions.train_with_tensorflow,
                {"x": range(4)},
                logdir=tmp_path / "runs",
                verbose=0,
            )
    finally:
        sparks.stop()
    (sentence,) = str(caught.value).splitlines()
    assert sentence.startswith("host 127.0.0."), sentence
    assert f"no module named {missing!r}" in sentence
    assert caught.value.result.trials == []


@pytest.mark.thorough
@pytest.mark.fault(46)
def test_executors_that_lack_this_repository_are_one_sentence_with_the_host(
    sparks, standalone, tmp_path
):
    elsewhere = standalone.settings() | {"spark.executorEnv.PYTHONPATH": str(tmp_path)}
    python = without(tmp_path / "python", "__editable__", "spark_tf_experiment", "easy-install")
    spark = sparks.get(standalone.master, **elsewhere)
    spark.sparkContext.pythonExec = python
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(spark, functions.double, {"x": [1]}, logdir=tmp_path, **QUIET)
    (sentence,) = str(caught.value).splitlines()
    assert sentence.startswith("host 127.0.0.")
    assert f"Python {python}: no module named 'spark_jobs'" in sentence
