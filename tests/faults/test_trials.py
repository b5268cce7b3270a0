"""Whole searches whose trials fail, and calls with invalid arguments."""

from __future__ import annotations

import functools
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import uuid
from pathlib import Path

import numpy as np
import pytest

import experiment
from tests.conftest import marked_commands
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.faults import bad_trials
from tests.faults.bad_trials import FAILING, GOOD, KEY, NO_SCORE
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.slot.running import sleeping

QUIET = {"preload": (), "verbose": 0}


@pytest.fixture(
    params=["spark", pytest.param("cluster", marks=(pytest.mark.slow, pytest.mark.thorough))]
)
def either_spark(request):
    """One JVM with two slots, or two executors in JVMs of their own."""
    return request.getfixturevalue(request.param)


def jvms():
    lines = marked_commands().items()
    return {pid for pid, line in lines if Path(line.partition(" ")[0]).name == "java"}


@pytest.mark.fault(1, 2, 3, 5, 10, 11, 12, 13)
@pytest.mark.slow
def test_trials_that_go_wrong_harm_nothing_but_themselves(either_spark, tmp_path, logdir):
    cases = [*FAILING, *NO_SCORE, *GOOD]
    assert either_spark.range(3).count() == 3  # the executors have started
    before = jvms()
    result = experiment.launch(
        either_spark,
        functools.partial(bad_trials.go_wrong, folder=str(tmp_path)),
        {"case": cases},
        optimization_key=KEY,
        logdir=logdir,
        **QUIET,
    )
    assert [trial.params["case"] for trial in result.trials] == cases
    trials = dict(zip(cases, result.trials, strict=True))
    for case, value in GOOD.items():
        trial = trials[case]
        assert (trial.status, trial.value) == ("finished", value), (case, trial.error)
    for case in [*NO_SCORE, *FAILING]:
        kind, said = FAILING.get(case) or ("invalid value", NO_SCORE[case])
        trial = trials[case]
        assert (trial.status, trial.value, trial.error.kind) == ("failed", None, kind), case
        assert said in trial.error.message, case
        assert len(trial.error.message) < 2_100
    assert trials["{'score': 2, 'loss': math.inf}"].metrics == {"score": 2.0, "loss": math.inf}
    assert 'raise ValueError("user bug")' in trials["raises"].error.traceback
    assert result.best.params == {"case": "np.array(7.0)"}

    assert set(bad_trials.count_begun(tmp_path).values()) == {1}  # neither we nor Spark retried
    assert len(bad_trials.count_begun(tmp_path)) == len(cases)
    assert not list(Path(result.logdir, "trials").glob("*-2"))
    assert not list(tmp_path.glob("unpickled-*"))
    assert jvms() == before
    again = experiment.load(result.logdir)
    assert [trial.error for trial in again.trials] == [trial.error for trial in result.trials]
    assert either_spark.range(3).count() == 3


@pytest.mark.fault(5, 11)
@pytest.mark.slow
def test_tensorflow_runs_out_of_memory_and_its_scalars_are_numbers(spark, logdir):
    def train(case):
        import tensorflow as tf

        match case:
            case "tensor":
                return tf.constant(2.5)
            case "variable":
                return {"score": tf.Variable(3)}
            case "vector":
                return tf.constant([1.0])
        return functions.exhaust_tensorflow(case)

    said = {
        "eager": ("memory", "OOM when allocating tensor"),
        "graph": ("memory", "OOM when allocating tensor"),
        "XLA": ("memory", "Out of memory while trying to allocate"),
        "disk": ("user error", "No space left on device"),
        "vector": ("invalid value", "want float"),
    }
    cases = ["tensor", *said, "variable"]
    result = experiment.launch(
        spark, train, {"case": cases}, optimization_key="score", logdir=logdir, verbose=0
    )
    for trial, case in zip(result.trials, cases, strict=True):
        if case in said:
            kind, text = said[case]
            assert trial.error is not None, case
            assert (trial.error.kind, text in trial.error.message) == (kind, True), trial.error
            # which size it might have been
            limit = (
                "; the host has " in trial.error.message or "the limit is" in trial.error.message
            )
            assert limit == (kind == "memory")
    assert [trial.value for trial in (result.trials[0], result.trials[-1])] == [2.5, 3.0]


def test_trials_that_remove_their_folders_count_and_their_host_runs_others(spark, logdir):
    def train(x):
        if x % 3 == 0:
            shutil.rmtree(experiment.logdir())
        return x

    with pytest.warns(UserWarning, match="were removed from") as warnings:
        result = experiment.launch(spark, train, {"x": range(12)}, logdir=logdir, **QUIET)
    assert [trial.value for trial in result.trials] == list(range(12))
    assert {trial.attempt for trial in result.trials} == {1}
    texts = sorted(str(warning.message) for warning in warnings)
    assert len(texts) == 4
    for text in texts:
        assert "trial.json, stdout.log, stderr.log, events.out.tfevents.trial were removed" in text
    outcomes = Path(result.logdir, "trials").glob("*/outcome.json")
    assert len(list(outcomes)) == 12


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(4, 7)
def test_hanging_trials_are_killed_with_their_process_trees_and_free_their_slot(spark, logdir):
    tag = f"3600.{uuid.uuid4().int % 10**9}"

    def train(how):
        if how == "not at all":
            return 1.0
        functions.leave_children(tag, "return")
        return functions.hang(how)

    hangs = ["sleeping", "ignoring SIGTERM", "holding the GIL"]
    result = experiment.launch(
        spark,
        train,
        {"how": [*hangs, "not at all", *hangs, "not at all"]},
        timeout=4,
        retries=1,  # a busy machine may keep even a short trial beyond its limit
        retry_on=("time",),
        grace=0.5,
        parallelism=2,
        logdir=logdir,
        **QUIET,
    )
    assert sleeping(tag) == []
    for trial in result.trials:
        if trial.params["how"] == "not at all":
            assert trial.value == 1.0
        else:
            assert str(trial.error) == "ended at the time limit of 4 s"
            assert trial.error.kind == "time"
    assert experiment.Settings().grace < 5  # time beyond the limit


@pytest.mark.fault(7)
@pytest.mark.filterwarnings("ignore:cancelled")
def test_no_descendant_survives_a_cancelled_search(either_spark, logdir):
    tag = f"3600.{uuid.uuid4().int % 10**9}"
    points = [{"tag": tag, "then": "hang"}] * 3
    handle = experiment.submit(
        experiment.launch, either_spark, functions.leave_children, points, logdir=logdir, **QUIET
    )
    wait_until(lambda: len(sleeping(tag)) == 6)  # of two slots
    handle.cancel()
    result = handle.result(timeout=120)
    wait_until(lambda: sleeping(tag) == [])
    assert [trial.status for trial in result.trials] == ["cancelled"] * 2


@pytest.mark.fault(3)
def test_killed_trials_are_retried_on_request(spark, tmp_path, logdir):
    def train(number, deaths):
        begun = tmp_path / f"begun-{number}-{deaths}"
        with begun.open("a") as file:
            file.write("x")
        if begun.stat().st_size <= deaths:
            functions.segfault(0) if number == signal.SIGSEGV else functions.kill_itself(number)
        return begun.stat().st_size

    numbers = [int(signal.SIGKILL), int(signal.SIGSEGV)]
    result = experiment.launch(
        spark,
        train,
        {"number": numbers, "deaths": [0, 2, 3]},
        retries=2,
        retry_on=("exit",),
        logdir=logdir,
        **QUIET,
    )
    assert [trial.value for trial in result.trials] == [1.0, 3.0, None] * 2
    folders = [Path(trial.logdir).name.partition("-")[2] for trial in result.trials]
    assert folders == ["", "3", "3"] * 2
    assert [str(trial.error) for trial in result.failed] == [
        f"signal {number} ({signal.Signals(number).name}) before it returned" for number in numbers
    ]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(9)
@pytest.mark.parametrize("isolation", ["process", "spawn"])
def test_a_trial_sees_no_changes_of_earlier_trials_in_its_process(spark, logdir, isolation):
    found = []
    for before in (False, True):
        result = experiment.launch(
            spark,
            bad_trials.look_around,
            {"change": [before, False]},
            parallelism=1,
            seed=7,
            isolation=isolation,
            logdir=logdir,
            **QUIET,
        )
        assert [trial.status for trial in result.trials] == ["finished"] * 2
        found.append(json.loads(Path(result.trials[1].logdir, "found.json").read_text()))
    assert found[0].keys() == found[1].keys()
    own = [dict(one["environment"])["TMPDIR"] for one in found]
    assert own[0] != own[1]  # of each trial; nothing else differs
    for one, folder in zip(found, own, strict=True):
        one["environment"].remove(["TMPDIR", folder])
    for name in found[0]:
        assert found[0][name] == found[1][name], name


class NotToBeTouched:
    """A session that must not be used: invalid calls are refused before."""

    def __getattribute__(self, name):
        raise AssertionError(f"Spark was touched: {name}")


def of_any_kind(**hyperparameters):
    return 1.0


SEARCHES = [experiment.evolutionary_search, experiment.random_search]


@pytest.mark.fault(42)
@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "\x00"], ids=ascii)
def test_impossible_names_are_refused_before_spark_is_used(name):
    calls = [
        lambda: experiment.launch(NotToBeTouched(), of_any_kind, {"fine": [1], name: [1]}),
        lambda: experiment.launch(NotToBeTouched(), of_any_kind, [{"fine": 1}, {name: 1}]),
        *[
            functools.partial(search, NotToBeTouched(), of_any_kind, {name: [1, 2]})
            for search in SEARCHES
        ],
    ]
    for call in calls:
        with pytest.raises(experiment.InvalidArgument) as caught:
            call()
        assert "names" in caught.value.expected
        assert caught.value.got == repr(name)


@pytest.mark.fault(42)
def test_names_that_are_equal_to_python_are_refused_before_spark_is_used():
    with pytest.raises(experiment.InvalidArgument, match="each name once, got 'ﬁt' and 'fit'"):
        experiment.launch(NotToBeTouched(), of_any_kind, {"ﬁt": [1], "fit": [2]})


@pytest.mark.fault(42)
def test_odd_names_are_exact_in_json_and_are_no_paths(spark, tmp_path):
    names = [
        "ünï",
        "..",
        "../../out",
        "/etc/x",
        "a\\b",
        "n" * 3_000,
        "שלום",
        "\u202eabc",
        "<b>",
        " ",
    ]
    before = sorted(path.name for path in tmp_path.parent.iterdir())
    result = experiment.launch(
        spark, of_any_kind, {name: [1] for name in names}, logdir=tmp_path / "runs", **QUIET
    )
    run = Path(result.logdir)
    assert list(result.trials[0].params) == names
    for file in (run / "manifest.json", run / "trials" / "000000" / "trial.json"):
        stored = json.loads(file.read_text())
        found = stored["space"] if file.name == "manifest.json" else stored["trial"]["params"]
        assert list(found) == names
    assert list(experiment.load(run).trials[0].params) == names
    everything = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert all(path.isascii() and len(path) < 200 for path in everything)
    assert sorted(path.name for path in tmp_path.parent.iterdir()) == before


@pytest.mark.fault(43)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "value",
    [[math.nan, 1.0], [0.0, math.inf], ["0.1", 1.0], [0, 2**53 + 1], "0.1", 5, [1]],
    ids=repr,
)
def test_impossible_bounds_are_refused_by_name_before_spark_is_used(search, value):
    with pytest.raises(experiment.InvalidArgument) as caught:
        search(NotToBeTouched(), of_any_kind, {"fine": [0.0, 1.0], "odd": value})
    assert caught.value.name == "bounds['odd']"


@pytest.mark.fault(43)
@pytest.mark.parametrize("domain", [experiment.Float, experiment.Integer])
@pytest.mark.parametrize("low", [0, -1])
def test_a_log_scale_down_to_zero_is_refused(domain, low):
    with pytest.raises(experiment.InvalidArgument, match="bounds above zero for a log scale"):
        domain(low, 10, log=True)


@pytest.mark.fault(43)
def test_reversed_bounds_are_sorted_and_equal_ones_are_a_constant(spark, logdir):
    def train(wide, narrow, fixed):
        return wide + narrow

    bounds = {"wide": [9, 1], "narrow": [0.5, -0.5], "fixed": [0.25, 0.25]}
    result = experiment.random_search(
        spark, train, bounds, samples=5, isolation="none", logdir=logdir, verbose=0
    )
    for trial in result.trials:
        assert 1 <= trial.params["wide"] <= 9
        assert -0.5 <= trial.params["narrow"] <= 0.5
        assert trial.params["fixed"] == 0.25


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("call", "arguments", "name", "got"),
    [
        (experiment.launch, ({},), "args_dict", "{}"),
        (experiment.launch, ([],), "args_dict", "[]"),
        (experiment.launch, ({"x": []},), "args_dict['x']", "[]"),
        (experiment.launch, ({"x": range(0)},), "args_dict['x']", "range(0, 0)"),
        (experiment.launch, ({"x": np.array([])},), "args_dict['x']", "array([], dtype=float64)"),
        (experiment.random_search, ({"x": []},), "bounds['x']", "[]"),
        (experiment.evolutionary_search, ({"x": [0.0, 1.0]}, "max", 3), "popsize", "3"),
        (experiment.evolutionary_search, ({"x": [0.0, 1.0]}, "max", 4, 0), "generations", "0"),
        (experiment.population_based_training, ({"x": [0.0, 1.0]}, "max", 1), "popsize", "1"),
    ],
)
def test_searches_without_trials_are_refused_before_spark_is_used(call, arguments, name, got):
    with pytest.raises(experiment.InvalidArgument) as caught:
        call(NotToBeTouched(), of_any_kind, *arguments)
    assert (caught.value.name, caught.value.got) == (name, got)
    assert str(caught.value).startswith(f"{name}: expected ")


@pytest.mark.fault(44)
def test_a_generator_is_read_once(spark, logdir):
    read = []

    def values():
        for value in (3, 1, 2):
            read.append(value)
            yield value

    points = ({"x": value} for value in values())
    for given in ({"x": values()}, points):
        result = experiment.launch(
            spark, functions.double, given, isolation="none", logdir=logdir, verbose=0
        )
        assert [trial.value for trial in result.trials] == [6.0, 2.0, 4.0]
    assert read == [3, 1, 2] * 2


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    "grid",
    [{"x": range(10**9)}, {name: list(range(1_000)) for name in "xyz"}],
    ids=["one range", "three lists"],
)
def test_a_grid_of_a_billion_points_is_never_built(spark, logdir, grid):
    def train(x, **more):
        raise ValueError("enough")

    with pytest.raises(experiment.SearchFailed):  # so that all late imports are done
        experiment.launch(spark, train, {"x": [1]}, isolation="none", logdir=logdir, verbose=0)
    tracemalloc.start()
    try:
        with pytest.raises(experiment.SearchFailed, match="max_failures=5") as caught:
            experiment.launch(
                spark, train, grid, isolation="none", max_failures=5, logdir=logdir, verbose=0
            )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 << 20
    run = Path(caught.value.result.logdir)
    assert json.loads((run / "manifest.json").read_text())["trials"] == 10**9
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 1 << 20


def closures(spark, folder):
    """Return objects that cannot be pickled, by name, each with the expected message."""
    driver_only = "the SparkContext exists on the driver only"
    return {
        "context": (spark.sparkContext, driver_only),
        "session": (spark, driver_only),
        "frame": (spark.range(3), driver_only),
        "held": ({"deep": [spark]}, driver_only),
        "distributed": (spark.sparkContext.parallelize([1]), ""),
        "lock": (threading.Lock(), "cannot pickle '_thread.lock' object"),
        "generator": ((n for n in range(3)), "cannot pickle 'generator' object"),
        "file": (
            (folder / "open").open("w"),
            "Cannot pickle files that are not opened for reading",
        ),
        "data": (bytes(200 << 20), "more than 64 MiB; every slot would get a copy of it"),
        "array": (np.zeros(25 << 20), "more than 64 MiB; every slot would get a copy of it"),
        "numbers": ([float(n) for n in range(10**7)], "more than 64 MiB; every slot would get"),
    }


@pytest.mark.fault(14)
def test_functions_that_cannot_be_pickled_are_refused_by_name_before_any_job(spark, tmp_path):
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = list(jobs())
    refused = closures(spark, tmp_path)
    for name, (value, reason) in refused.items():
        train = eval(f"lambda {name}: lambda x: {name}")(value)
        with pytest.raises(experiment.InvalidArgument) as caught:
            experiment.launch(spark, train, {"x": [1]}, logdir=tmp_path / "runs", **QUIET)
        assert caught.value.name == "train"
        kind = type(value).__name__
        assert caught.value.got.startswith(f"one that refers to {name!r} ({kind}): {reason}"), name
        assert caught.value.hint == f"make {name!r} inside the train function"
    refused["file"][0].close()
    assert list(jobs()) == before
    assert not (tmp_path / "runs").exists()


INTERRUPTED = """
import os, pathlib, sys, threading, time
import experiment
from pyspark.sql import SparkSession
folder = pathlib.Path(sys.argv[1])
spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.pythonExec = sys.executable

def occupy(number):
    (folder / "occupied").touch()
    while not (folder / "release").exists():
        time.sleep(0.05)
    return number

def train(x):
    if x == 0:
        return 0.5
    (folder / f"pid-{os.getpid()}").touch()
    time.sleep(600)

counted = []
other = threading.Thread(
    target=lambda: counted.append(spark.sparkContext.parallelize([0], 1).map(occupy).count())
)
other.start()
while not (folder / "occupied").exists():
    time.sleep(0.05)
result = experiment.launch(
    spark, train, {"x": [0, 1, 2, 3]}, logdir=folder / "runs", preload=(), verbose=0, parallelism=2
)
print(result.problem, [trial.status for trial in result.trials], counted, flush=True)
(folder / "release").touch()
other.join()
print(counted)
spark.stop()
"""


@pytest.mark.thorough
@pytest.mark.fault(38)
@pytest.mark.slow
def test_ctrl_c_ends_the_search_and_no_other_job_of_the_driver(tmp_path):
    script = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_until(lambda: len(processes_in(tmp_path)) == 2 or script.poll() is not None)
        script.send_signal(signal.SIGINT)
        output, _ = script.communicate(timeout=240)
    finally:
        script.kill()
        script.communicate()
    statuses = ["finished", "cancelled", "cancelled"]
    assert output.splitlines() == [f"interrupted {statuses} []", "[1]"]
    wait_until(lambda: not alive(processes_in(tmp_path)))
