"""The calls on a real local Spark."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import py4j.java_gateway
import pytest

import experiment
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.trial import context
from tests.conftest import marked_commands
from tests.experiment.waiting import wait_until
from tests.spark_jobs import train_functions as functions

LIGHT = {"preload": ()}


def product(a, b):
    return a * b


def test_a_grid_runs_every_configuration_in_the_order_of_the_product(spark, logdir):
    result = experiment.launch(
        spark, product, {"a": [1, 2, 3], "b": (0.5, 4.0)}, logdir=logdir, isolation="none"
    )
    assert [trial.params for trial in result.trials] == [
        {"a": a, "b": b} for a in (1, 2, 3) for b in (0.5, 4.0)
    ]
    assert [trial.value for trial in result.trials] == [0.5, 4.0, 1.0, 8.0, 1.5, 12.0]
    assert result.best.params == {"a": 3, "b": 4.0}
    assert Path(result.logdir).parent == Path(logdir)


@pytest.mark.fault(44)
def test_values_may_come_as_ranges_arrays_and_generators(spark, logdir):
    grid = {"a": range(1, 3), "b": (n for n in np.array([1.0, 2.0]))}
    result = experiment.launch(
        spark, product, grid, logdir=logdir, isolation="none", direction="min"
    )
    assert [trial.value for trial in result.trials] == [1.0, 2.0, 2.0, 4.0]
    assert result.best.id == 0


@pytest.mark.slow
@pytest.mark.contract
def test_keras_computes_in_the_precision_of_the_call(spark, logdir):
    def train(x):
        import keras

        layer = keras.layers.Dense(1)
        layer.build((None, 1))
        named = keras.config.dtype_policy().name, layer.compute_dtype, layer.kernel.dtype
        return float(named == ("mixed_bfloat16", "bfloat16", "float32"))

    # Each executor of CI may have a processor without arithmetic of bfloat16, which is warned of.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is probably slower")
        result = experiment.launch(
            spark, train, {"x": [1]}, logdir=logdir, precision="mixed_bfloat16"
        )
    assert [trial.value for trial in result.trials] == [1.0]
    manifest = json.loads(Path(result.logdir, "manifest.json").read_text())
    assert manifest["precision"] == "mixed_bfloat16"


def test_explicit_points_may_differ_in_their_names(spark, logdir):
    def train(a, b=10):
        return a + b

    points = [{"a": 1}, {"a": 2, "b": 3}]
    result = experiment.launch(spark, train, points, logdir=logdir, isolation="none")
    assert [trial.value for trial in result.trials] == [11.0, 5.0]
    frame = result.to_pandas()
    assert list(frame["a"]) == [1, 2]
    assert math.isnan(frame["b"][0])


def test_the_evolutionary_search_of_the_mission_runs_verbatim(spark, tmp_path, monkeypatch):
    def train(learning_rate, dropout, num_layers):
        return -((math.log10(learning_rate) + 3) ** 2) - dropout - num_layers

    monkeypatch.chdir(tmp_path)
    search_dict = {"learning_rate": [0.005, 0.00005], "dropout": [0.01, 0.99], "num_layers": [1, 3]}
    result = experiment.evolutionary_search(
        spark, train, search_dict,
        direction='max', popsize=10, generations=3, crossover=0.7, mutation=0.5)  # fmt: skip
    assert len(result.trials) == 40
    assert all(0.00005 <= trial.params["learning_rate"] <= 0.005 for trial in result.trials)
    assert {type(trial.params["num_layers"]) for trial in result.trials} == {int}
    assert result.best.value == max(trial.value for trial in result.trials)
    assert Path(result.logdir).parent == tmp_path / "experiments"


def test_a_seed_repeats_a_search(spark, logdir):
    bounds = {"a": [0.0, 1.0], "b": [5, 1]}
    shared = {"logdir": logdir, "isolation": "none", "seed": 3}
    runs = [
        [trial.params for trial in search(spark, product, bounds, **shared, **own).trials]
        for search, own in [
            (
                experiment.evolutionary_search,
                {"popsize": 4, "generations": 3, "generational": True},
            ),
            (experiment.random_search, {"samples": 7}),
        ]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[2] == runs[3]
    assert (len(runs[0]), len(runs[2])) == (16, 7)


def test_a_space_that_is_used_up_ends_the_search_with_a_sentence(spark, logdir):
    bounds = {"a": [1, 3], "b": [1, 2]}
    arguments = {"logdir": logdir, "isolation": "none", "samples": 60}
    sentence = "the space has no more configurations, and none is tried twice"
    plan = experiment.plan(experiment.random_search, spark, product, bounds, **arguments)
    assert (plan.trials, plan.exhausted) == (6, sentence)
    result = experiment.random_search(spark, product, bounds, **arguments)
    for found in (result, experiment.load(result)):
        assert (len(found), found.total, found.exhausted) == (6, 6, sentence)
    assert json.loads(Path(result.logdir, "manifest.json").read_text())["exhausted"] == sentence
    assert sentence in result.summary()
    with pytest.raises(ValueError, match="runs that leave configurations to try"):
        experiment.random_search(spark, product, bounds, warm_start=result, **arguments)


def test_repeats_of_a_trial_are_its_steps_and_race(spark, logdir):
    def train(x):
        repeat, end = experiment.repeat(), time.monotonic() + 60
        while x == 3 and repeat == 3 and not context.current().link.stop():
            assert time.monotonic() < end
            time.sleep(0.01)
        return {"score": x + repeat**2, "x": x}

    arguments = {"optimization_key": "score", "repeats": 6, "parallelism": 1, "preload": ()}
    grid = {"x": [9, 1, 2, 3]}
    result = experiment.launch(spark, train, grid, logdir=logdir, **arguments)
    assert [trial.status for trial in result] == ["finished"] * 3 + ["stopped"]
    assert result[3].reason == "step 1: worse than trial 0 in 2 repeats (p = 0)"
    for trial in result:  # a stopped one has what its first repeats let expect
        assert trial.value == pytest.approx(trial.params["x"] + (0 + 1 + 4 + 9 + 16 + 25) / 6)
        assert trial.metrics["x"] == trial.params["x"]
    manifest = json.loads(Path(result.logdir, "manifest.json").read_text())
    assert manifest["repeats"] == 6
    assert manifest["stopping"][0]["type"] == "StudentRacing"
    with pytest.raises(ValueError, match="repeats was 6, is 1"):
        experiment.launch(spark, train, grid, resume=result, **{**arguments, "repeats": 1})
    with pytest.raises(ValueError, match="repeats: expected 1 where trials resume"):
        experiment.hyperband_search(spark, train, {"x": [0.0, 1.0]}, repeats=2)


def test_a_search_without_a_barrier_has_as_many_trials(spark, logdir):
    def train(a, b):
        if b == 2:
            raise ValueError("no")
        return -((a - 0.3) ** 2) - b

    result = experiment.evolutionary_search(
        spark,
        train,
        {"a": [0.0, 1.0], "b": [1, 4]},
        popsize=5,
        generations=3,
        generational=False,
        logdir=logdir,
        isolation="none",
    )
    assert [trial.id for trial in result.trials] == list(range(20))
    assert len({tuple(trial.params.values()) for trial in result.trials}) == 20
    assert [trial.params["b"] == 2 for trial in result.trials] == [
        trial.status == "failed" for trial in result.trials
    ]
    manifest = json.loads(RunPaths(Path(result.logdir)).manifest.read_text())
    assert manifest["algorithm"] == {
        "type": "differential evolution",
        "variant": "current-to-pbest1bin",
        "popsize": 5,
        "generations": 3,
        "crossover": 0.7,
        "mutation": [0.5, 1.0],
        "generational": False,
        "noisy": False,
        "candidates": 20,
    }
    journal = read_journal(RunPaths(Path(result.logdir)).journal)
    planned = [record["trial"] for record in journal if record["event"] == "planned"]
    assert [trial["generation"] for trial in planned] == [trial // 5 for trial in range(20)]


def test_a_search_without_a_barrier_is_resumed_with_the_same_trials(spark, logdir):
    def search(**settings):
        result = experiment.evolutionary_search(
            spark,
            product,
            {"a": [0.0, 1.0], "b": [5, 1]},
            popsize=4,
            generational=False,
            isolation="none",
            parallelism=1,
            **settings,
        )
        return result, [(trial.params, trial.value) for trial in result.trials]

    _, uncut = search(seed=3, generations=4, logdir=logdir)
    begun, first = search(seed=3, generations=2, logdir=logdir)
    assert first == uncut[:12]
    with pytest.raises(experiment.InvalidArgument, match="mutation was .*, is 0.5"):
        search(generations=4, resume=begun, mutation=0.5)
    resumed, trials = search(generations=4, resume=begun)
    assert trials == uncut
    assert resumed.logdir == begun.logdir


@pytest.mark.parametrize("recorded", [True, False])
def test_a_resumed_search_keeps_its_number_of_candidates(spark, logdir, recorded):
    def search(**settings):
        result = experiment.evolutionary_search(
            spark,
            product,
            {"a": [0.0, 1.0], "b": [0.0, 1.0]},
            popsize=4,
            isolation="none",
            parallelism=1,
            **settings,
        )
        return result, [trial.params for trial in result.trials]

    _, uncut = search(seed=3, generations=3, candidates=5, logdir=logdir)
    _, other = search(seed=3, generations=3, logdir=logdir)
    assert other[4:] != uncut[4:]
    begun, _ = search(seed=3, generations=1, candidates=5, logdir=logdir)
    file = RunPaths(Path(begun.logdir)).manifest
    manifest = json.loads(file.read_text())
    if not recorded:  # as in a run of an earlier version, which always had 5
        del manifest["algorithm"]["candidates"]
        file.write_text(json.dumps(manifest))
    with pytest.raises(experiment.InvalidArgument, match="candidates was 5, is 20"):
        search(generations=3, resume=begun, candidates=20)
    _, trials = search(generations=3, resume=begun)
    assert trials == uncut


def test_the_folder_of_a_run(spark, logdir):
    result = experiment.launch(
        spark,
        functions.look_around,
        {"x": [1.0, 2.0]},
        logdir=logdir,
        name="a name / with ../ slashes",
        description="what for",
        optimization_key="x",
        **LIGHT,
    )
    paths = RunPaths(Path(result.logdir))
    manifest = json.loads(paths.manifest.read_text())
    assert manifest["name"] == "a name / with ../ slashes"
    assert manifest["space"]["x"]["values"] == [1.0, 2.0]
    assert paths.root.name.startswith("a-name-with-slashes-")
    summary = json.loads(paths.result.read_text())
    assert (summary["trials"], summary["best"]["value"]) == (2, 2.0)
    events = [record["event"] for record in read_journal(paths.journal)]
    assert events[0] == "begun"
    assert events.count("planned") == events.count("finished") == 2
    joined = [r for r in read_journal(paths.journal) if r["event"] == "joined"]
    assert len({record["host"] for record in joined}) == 1
    for trial in result.trials:
        attempt = paths.attempt(trial.id)
        assert str(attempt.folder) == trial.logdir
        names = {path.name for path in attempt.folder.iterdir()}
        assert {"trial.json", "outcome.json", "stdout.log", "stderr.log"} < names
        assert json.loads(attempt.outcome.read_text())["value"] == trial.value
    everything = [paths.root, *paths.root.rglob("*")]
    assert not [path for path in everything if path.stat().st_mode & 0o077 and path.is_dir()]
    assert not [path for path in everything if "probe" in path.name]
    text = b"".join(path.read_bytes() for path in everything if path.is_file())
    assert b"PRIVATE KEY" not in text
    assert b"BEGIN CERTIFICATE" not in text


def test_keras_trains_in_a_search(spark, logdir):
    """In a forked process: callbacks, a returned History, and curves in the trial's only run."""

    def train(units):
        import keras
        import numpy as np

        model = keras.Sequential(
            [keras.layers.Input((2,)), keras.layers.Dense(units), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        x = np.ones((8, 2))
        return model.fit(x, x[:, :1], epochs=3, verbose=0, callbacks=experiment.keras_callbacks())

    from tests.spark_jobs.trial.events.reading import scalars

    result = experiment.launch(
        spark, train, {"units": [2, 3]}, logdir=logdir, direction="min", optimization_key="loss"
    )
    for trial in result.trials:
        assert trial.status == "finished", trial.error
        curves = scalars(Path(trial.logdir))
        assert [step for step, _ in curves["loss"]] == [0, 1, 2]
        assert curves["objective/loss"] == [(0, pytest.approx(trial.value, rel=1e-5))]
        assert trial.value == pytest.approx(min(value for _, value in curves["loss"]), rel=1e-5)


@pytest.mark.fault(1, 10, 11)
@pytest.mark.parametrize("isolation", ["process", "spawn", "none"])
def test_failures_are_outcomes_and_the_search_continues(spark, logdir, isolation):
    def train(x):
        if x == 1:
            raise ValueError("user bug")
        if x == 2:
            return float("nan")
        if x == 3:
            return "0.5"
        return x

    result = experiment.launch(
        spark, train, {"x": range(6)}, logdir=logdir, isolation=isolation, **LIGHT
    )
    assert [trial.status for trial in result.trials] == [
        "finished",
        *["failed"] * 3,
        *["finished"] * 2,
    ]
    assert [trial.error.kind for trial in result.failed] == [
        "user error",
        "invalid value",
        "invalid value",
    ]
    assert "raise ValueError" in result.trials[1].error.traceback
    assert "nan" in str(result.trials[2].error)
    assert "got str ('0.5'), want float" in str(result.trials[3].error)
    frame = result.to_pandas()
    assert list(frame["error"].notna()) == [False, True, True, True, False, False]
    assert result.best.id == 5


@pytest.mark.fault(2, 3)
def test_neighbours_finish_when_trials_end_their_processes(spark, logdir):
    def train(x):
        import os
        import sys

        if x == 1:
            os._exit(17)
        if x == 2:
            sys.exit(3)
        if x == 3:
            os.kill(os.getpid(), 9)
        if x == 4:
            os.kill(os.getpid(), 11)
        return x

    result = experiment.launch(spark, train, {"x": range(8)}, logdir=logdir, **LIGHT)
    assert [trial.id for trial in result.failed] == [1, 2, 3, 4]
    messages = [str(trial.error).removesuffix(" before it returned") for trial in result.failed]
    assert messages == ["exit 17", "exit 3", "signal 9 (SIGKILL)", "signal 11 (SIGSEGV)"]
    assert len(list(Path(result.logdir, "trials").iterdir())) == 8


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(4, 7)
def test_a_hanging_trial_frees_its_slot_and_leaves_no_process(spark, logdir):
    result = experiment.launch(
        spark,
        functions.leave_children,
        [{"tag": "3599", "then": "hang"}, *[{"tag": "3598", "then": "return"}] * 3],
        logdir=logdir,
        timeout=5,
        grace=1,
        retries=1,  # since a busy machine may keep even a short trial beyond its limit
        retry_on=("time",),
        parallelism=1,
        **LIGHT,
    )
    assert [trial.status for trial in result.trials] == ["failed", *["finished"] * 3]
    assert result.trials[0].error.kind == "time"
    assert not [line for line in marked_commands().values() if line.startswith("sleep ")]


@pytest.mark.fault(1)
def test_a_search_without_a_finished_trial_raises_the_first_traceback_and_the_result(spark, logdir):
    with pytest.raises(experiment.SearchFailed, match="all 3 trials failed") as caught:
        experiment.launch(spark, functions.fail, {"x": [1, 2, 3]}, logdir=logdir, isolation="none")
    assert "ValueError: user bug" in str(caught.value)
    assert "train_functions.py" in str(caught.value)
    assert len(caught.value.result.failed) == 3
    assert isinstance(caught.value, experiment.ExperimentError)


def test_too_many_failures_end_the_search(spark, logdir):
    with pytest.raises(experiment.SearchFailed, match="max_failures=2") as caught:
        experiment.launch(
            spark,
            functions.fail,
            {"x": range(1000)},
            logdir=logdir,
            max_failures=2,
            parallelism=1,
            **LIGHT,
        )
    assert len(caught.value.result.trials) == 3
    summary = json.loads(Path(caught.value.result.logdir, "result.json").read_text())
    assert "max_failures" in summary["problem"]


def test_trials_in_flight_at_the_end_of_a_search_are_cancelled(spark, tmp_path):
    def train(x):
        import time

        if x == 0:
            time.sleep(600)
        raise ValueError("no")

    with pytest.raises(experiment.SearchFailed, match="max_failures=0") as caught:
        experiment.launch(
            spark, train, {"x": [0, 1, 2]}, logdir=tmp_path, max_failures=0, preload=()
        )
    result = caught.value.result
    assert [(trial.id, trial.status) for trial in result.trials] == [
        (0, "cancelled"),
        (1, "failed"),
    ]
    assert result.trials[0].error is None
    records = list(read_journal(RunPaths(Path(result.logdir)).journal))
    assert records[-1]["outcome"]["status"] == "cancelled"


@pytest.mark.fault(39)
def test_a_session_stopped_during_a_search_is_reported(sparks, tmp_path):
    spark = sparks.get("local[2]", **{"spark.a.session": "to be stopped"})
    mark = tmp_path / "started"

    def train(x):
        import time

        mark.touch()
        time.sleep(600)

    def stop():
        while not mark.exists():
            time.sleep(0.05)
        spark.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(experiment.SearchFailed, match="SparkSession was stopped") as caught:
        experiment.launch(spark, train, {"x": [0, 1]}, logdir=tmp_path, preload=())
    stopper.join()
    assert {trial.status for trial in caught.value.result.trials} == {"cancelled"}


def test_a_wrong_optimization_key_ends_the_search_at_the_first_trial(spark, logdir):
    def train(x):
        return {"loss": x, "accuracy": x}

    few = {"isolation": "none", "parallelism": 1, "verbose": 0}
    said = (
        "want the key 'acuracy', got the keys 'loss', 'accuracy'; optimization_key= names none of "
        "them, did you mean 'accuracy'?"
    )
    with pytest.raises(experiment.SearchFailed, match=re.escape(said)) as caught:
        experiment.launch(
            spark, train, {"x": range(1000)}, optimization_key="acuracy", logdir=logdir, **few
        )
    assert len(caught.value.result.trials) == 1


def test_several_metrics_and_no_key_end_the_search_at_the_first_trial(spark, logdir):
    def train(x):
        return {"loss": x, "accuracy": x}

    with pytest.raises(experiment.SearchFailed, match="optimization_key='loss'") as caught:
        experiment.launch(
            spark, train, {"x": range(1000)}, logdir=logdir, isolation="none", parallelism=1
        )
    assert len(caught.value.result.trials) == 1


@pytest.mark.fault(16)
def test_a_dead_python_worker_costs_an_attempt_not_the_trial(spark, tmp_path):
    mark = tmp_path / "once"

    def train(x):
        import os

        if x == 2 and not mark.exists():
            mark.touch()
            os._exit(9)  # with isolation='none' the slot itself
        return x

    result = experiment.launch(
        spark, train, {"x": range(6)}, logdir=tmp_path, isolation="none", parallelism=1
    )
    assert [trial.value for trial in result.trials] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert result.trials[2].logdir.endswith("000002-2")
    lost = Path(result.logdir, "trials", "000002")
    assert not list(lost.glob("*tfevents*"))


def test_dead_slots_end_the_search_with_sparks_error(spark, logdir, monkeypatch):
    def dead(job, lent, function, search_path, shared):
        def slot(batches):
            raise RuntimeError("dead before its first words")
            yield from batches

        return slot

    monkeypatch.setattr("experiment.driver.jobs.slot_jobs.slot_function", dead)
    with pytest.raises(experiment.SearchFailed, match="failed 3 times without a result") as caught:
        experiment.launch(spark, functions.double, {"x": [1, 2]}, logdir=logdir, isolation="none")
    assert "dead before its first words" in str(caught.value)
    assert not RunPaths(Path(caught.value.result.logdir)).secrets.exists()


@pytest.mark.slow
@pytest.mark.contract
def test_trials_that_end_their_slots_fail_after_a_few_lost_attempts(spark, logdir):
    def train(x):
        import os

        os._exit(9)

    arguments = {"logdir": logdir, "isolation": "none", "retries": 1}
    with pytest.raises(experiment.SearchFailed, match="all 2 trials failed") as caught:
        experiment.launch(spark, train, {"x": [1, 2]}, **arguments)
    assert [trial.error.kind for trial in caught.value.result.trials] == ["lost executor"] * 2
    assert [Path(trial.logdir).name for trial in caught.value.result.trials] == [
        "000000-2",
        "000001-2",
    ]


def test_a_failed_preload_is_one_sentence_with_the_host(spark, tmp_path, monkeypatch):
    (tmp_path / "breaks_here.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        experiment.SearchFailed, match=r"host \S+, Python \S+: preload: ZeroDivision"
    ):
        experiment.launch(
            spark, product, {"a": [1], "b": [2]}, logdir=tmp_path, preload=("breaks_here",)
        )


@pytest.mark.slow
def test_a_preload_that_runs_an_op_means_fresh_processes_and_a_warning(
    spark, tmp_path, monkeypatch
):
    (tmp_path / "eager_module.py").write_text("import tensorflow; tensorflow.constant(1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match="isolation='spawn' instead of 'process'"):
        result = experiment.launch(
            spark,
            functions.train_with_tensorflow,
            {"x": [3.0]},
            logdir=tmp_path,
            preload=("tensorflow", "eager_module"),
        )
    assert result.best.value == 9.0


@pytest.mark.fault(42)
def test_names_are_exact_in_json_and_safe_on_disk(spark, logdir):
    names = ["ünïcode", "..", "ת", "n" * 3_000, "<script>"]

    def train(**params):
        return len(params)

    result = experiment.launch(
        spark, train, {name: [1] for name in names}, logdir=logdir, isolation="none"
    )
    assert list(result.trials[0].params) == names
    stored = json.loads(Path(result.trials[0].logdir, "trial.json").read_text())
    assert list(stored["trial"]["params"]) == names
    assert {path.name for path in Path(result.logdir, "trials").iterdir()} == {"000000"}


@pytest.mark.fault(45)
def test_a_grid_of_a_billion_configurations_starts_and_ends_at_the_first_problem(spark, logdir):
    def train(a, b, c):
        raise ValueError("enough")

    thousand = range(1000)
    with pytest.raises(experiment.SearchFailed, match="max_failures=0"):
        experiment.launch(
            spark,
            train,
            {"a": thousand, "b": thousand, "c": thousand},
            logdir=logdir,
            isolation="none",
            max_failures=0,
        )


@pytest.mark.fault(40)
def test_concurrent_searches_share_nothing(spark, logdir):
    results = {}

    def search(key):
        results[key] = experiment.launch(
            spark,
            product,
            {"a": range(20), "b": [key]},
            logdir=logdir,
            name="same",
            isolation="none",
            parallelism=1,
        )

    threads = [threading.Thread(target=search, args=(key,)) for key in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in (1, 2):
        assert [trial.value for trial in results[key].trials] == [a * key for a in range(20)]


@pytest.mark.fault(14)
def test_a_function_that_captures_the_spark_context_is_refused_by_name(spark, logdir):
    context = spark.sparkContext

    def train(x):
        return context.parallelize([x]).sum()

    with pytest.raises(experiment.InvalidArgument, match="'context'.*driver only"):
        experiment.launch(spark, train, {"x": [1]}, logdir=logdir)


def test_the_logdir_setting_of_spark_is_used(sparks, tmp_path):
    spark = sparks.get("local[2]", **{"spark.experiment.logdir": str(tmp_path / "by setting")})
    result = experiment.launch(spark, product, {"a": [1], "b": [1]}, isolation="none")
    assert Path(result.logdir).parent == tmp_path / "by setting"


@pytest.mark.fault(38)
def test_ctrl_c_ends_the_search_and_its_processes(tmp_path):
    program = f"""
import time, pathlib, experiment
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
def train(x):
    pathlib.Path({str(tmp_path)!r}, f"started-{{x}}").touch()
    time.sleep(600)
result = experiment.launch(spark, train, {{"x": [1, 2]}}, logdir={str(tmp_path)!r}, preload=())
print(result.problem, [trial.status for trial in result.trials], flush=True)
while jobs := list(spark.sparkContext.statusTracker().getActiveJobsIds()):
    time.sleep(0.1)
print(jobs, flush=True)
spark.stop()
"""
    before = set(marked_commands())
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    while len(list(tmp_path.glob("started-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert output.splitlines() == ["interrupted ['cancelled', 'cancelled']", "[]"]
    assert process.returncode == 0
    wait_until(lambda: not set(marked_commands()) - before)


def test_ctrl_c_is_heard_while_py4j_drops_a_java_object_before_the_search(
    spark, logdir, monkeypatch
):
    drop, interrupted = py4j.java_gateway._garbage_collect_object, []

    def interrupt_once_and_drop(*args):
        if not interrupted:
            interrupted.append(args)
            signal.raise_signal(signal.SIGINT)
        drop(*args)

    def values():
        java_object = spark.sparkContext._jvm.java.lang.Object()
        with monkeypatch.context() as patch:
            patch.setattr(py4j.java_gateway, "_garbage_collect_object", interrupt_once_and_drop)
            del java_object
            threading.Event().wait(60)
        yield 1

    with pytest.raises(KeyboardInterrupt):
        experiment.launch(
            spark, product, {"a": values(), "b": [2]}, logdir=logdir, isolation="none"
        )
    assert interrupted
    assert not Path(logdir).exists() or not list(Path(logdir).iterdir())


def test_slots_that_never_start_do_not_delay_the_search(spark, tmp_path):
    """Another job occupies the second core until the search has returned."""
    release = tmp_path / "release"

    def occupy(_):
        import time

        while not release.exists():
            time.sleep(0.05)

    spark.sparkContext.pythonExec = sys.executable
    other = threading.Thread(
        target=lambda: spark.sparkContext.parallelize([0], 1).foreach(occupy), daemon=True
    )
    other.start()
    try:
        result = experiment.launch(
            spark, product, {"a": [1, 2, 3], "b": [2]}, logdir=tmp_path, isolation="none"
        )
    finally:
        release.touch()
        other.join()
    assert [trial.value for trial in result.trials] == [2.0, 4.0, 6.0]


@pytest.mark.slow
@pytest.mark.contract
def test_the_session_runs_other_jobs_and_searches_after_a_failed_one(spark, logdir):
    with pytest.raises(experiment.SearchFailed):
        experiment.launch(spark, functions.fail, {"x": [1]}, logdir=logdir, isolation="none")
    assert spark.range(3).count() == 3
    result = experiment.launch(spark, functions.double, {"x": [1]}, logdir=logdir, isolation="none")
    assert result.best.value == 2.0


def test_each_step_of_the_end_runs_even_if_one_fails(spark, tmp_path, monkeypatch):
    from experiment.driver.trials.trials import Trials

    def fail(self):
        raise OSError("No space left on device")

    monkeypatch.setattr(Trials, "cancel_rest", fail)
    with pytest.warns(UserWarning, match="the end of the run is not written: No space left"):
        result = experiment.launch(
            spark, functions.double, {"x": [1]}, logdir=tmp_path, isolation="none"
        )
    assert result.best.value == 2.0
    (run,) = tmp_path.iterdir()
    assert experiment.load(run).best.value == 2.0
    assert json.loads((run / "result.json").read_text())["trials"] == 1
