"""Plans: a search's demand on a cluster, without running it."""

from __future__ import annotations

import dataclasses
import os
import threading
from types import SimpleNamespace

import pytest

import experiment
from experiment.planning.hindrances import Demand, hindrances
from experiment.results.status import Status
from experiment.setup.function.imports import Preload
from search.errors import InvalidArgument
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.session.classic import ClassicSession
from tests.experiment.results.html_reader import Reader
from tests.experiment.waiting import wait_until
from tests.servers.clusters import gpu_settings

BOUNDS = {"x": [0.1, 0.2]}
EVOLUTION = {"popsize": 5, "generations": 3}
CALLS = {
    "launch": (experiment.launch, {"x": [1, 2, 3]}, {}, 3, None),
    "points": (experiment.launch, [{"x": 1}, {"x": 2}], {}, 2, None),
    "run": (
        experiment.run,
        BOUNDS,
        {"searcher": experiment.RegularizedEvolution(), "samples": 7},
        7,
        None,
    ),
    "evolution": (experiment.evolutionary_search, BOUNDS, EVOLUTION, 20, None),
    "generations": (
        experiment.evolutionary_search,
        BOUNDS,
        EVOLUTION | {"generational": True},
        20,
        5,
    ),
    "several objectives": (
        experiment.evolutionary_search,
        BOUNDS,
        EVOLUTION | {"direction": {"a": "max", "b": "min"}, "generational": True, "popsize": 8},
        32,
        8,
    ),
    "random": (experiment.random_search, BOUNDS, {"samples": 6}, 6, None),
    "bayesian": (experiment.bayesian_search, BOUNDS, {"samples": 6}, 6, None),
    "each": (experiment.search_each, {"a": BOUNDS, "b": BOUNDS}, {"samples": 4}, 8, None),
    "population": (experiment.population_based_training, BOUNDS, EVOLUTION, 20, 5),
    "hyperband": (experiment.hyperband_search, BOUNDS, {"max_epochs": 9}, 22, None),
}


def train(x, group=None):
    raise AssertionError("a plan runs nothing")


def jobs_of(spark):
    return spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()


@pytest.mark.parametrize("call", CALLS)
def test_a_plan_of_each_search_runs_nothing(spark, tmp_path, call):
    search, space, arguments, trials, batch = CALLS[call]
    before = jobs_of(spark)
    plan = experiment.plan(search, spark, train, space, logdir=tmp_path, preload=(), **arguments)
    assert (plan.call, plan.trials, plan.batch) == (search.__name__, trials, batch)
    assert (plan.slots, plan.slots_now, plan.needs) == (2, 2, "1 core")
    assert (plan.gpus, plan.gpus_now, plan.hindrances) == (0, 0, ())
    assert jobs_of(spark) == before
    assert list(tmp_path.iterdir()) == []


def refused(function, *arguments, **settings):
    with pytest.raises(InvalidArgument) as caught:
        function(*arguments, **settings)
    return str(caught.value)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "wrong",
    [{"parallelism": 0}, {"logdir": __file__}, {"train": lambda y: y}, {"space": {}}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_bad_input_is_refused_as_by_the_search(spark, tmp_path, call, wrong):
    search, space, arguments, _, _ = CALLS[call]
    given = (spark, wrong.get("train", train), wrong.get("space", space))
    settings = {"logdir": wrong.get("logdir", tmp_path), "verbose": 0, **arguments}
    if "parallelism" in wrong:
        settings |= wrong
    message = refused(experiment.plan, search, *given, **settings)
    assert message == refused(search, *given, **settings)
    assert len(message.splitlines()) == 1


def test_an_unknown_argument_is_a_type_error(spark):
    with pytest.raises(TypeError, match="paralellism"):
        experiment.plan(experiment.launch, spark, train, {"x": [1]}, paralellism=2)


@pytest.mark.parametrize(
    "search", [experiment.executor, experiment.submit, experiment.plan, train, None, "launch"]
)
def test_only_searches_are_planned(spark, search):
    message = refused(experiment.plan, search, spark, train, {"x": [1]})
    assert message.startswith("search: expected a call such as experiment.launch, got ")


def test_a_stopped_session_is_one_sentence_whatever_is_called(sparks, tmp_path):
    spark = sparks.get("local[1]")
    sparks.stop()
    said = {refused(experiment.executor, spark, logdir=tmp_path), refused(experiment.doctor, spark)}
    for search, space, arguments, _, _ in CALLS.values():
        for call in (search, lambda *a, s=search, **k: experiment.plan(s, *a, **k)):
            said.add(refused(call, spark, train, space, logdir=tmp_path, **arguments))
    assert said == {"spark: expected a running SparkSession, got a stopped one"}


def test_no_slots_at_all_are_refused_by_the_executor_too(spark, tmp_path):
    message = refused(experiment.executor, spark, parallelism=0, logdir=tmp_path)
    assert message == "parallelism: expected an integer of at least 1, or None, got 0"


PLAN = """\
plan of evolutionary_search:
  trials   20
  slots    2 now, 2 at most; each 1 core
  GPUs     none
  preload  keras; once per executor, kept for 300 s after a search, kept now for 1 of 2 slots
  per slot 12 trials with 2 slots
  barrier  after each 5 trials
  idle     17% of the slots' time if trials take equally long, 17% if their times are exponential; \
without a barrier 0% and 5%
no setting hurts"""


def test_a_plan_is_text_and_a_table_of_a_notebook(spark, tmp_path):
    plan = experiment.plan(
        experiment.evolutionary_search,
        spark,
        train,
        BOUNDS,
        generational=True,
        logdir=tmp_path,
        preload=["keras"],
        **EVOLUTION,
    )
    plan = dataclasses.replace(plan, slots_warm=1)  # by tests before this one, perhaps
    assert repr(plan) == str(plan) == PLAN
    assert plan.trials_per_slot == 12
    assert plan.idle == pytest.approx((1 / 6, 1 / 6))
    page = Reader(plan._repr_html_(), "td")
    facts = [(line[2:11].strip(), line[11:]) for line in PLAN.splitlines()[1:-1]]
    assert page.inside == [cell for fact in facts for cell in fact]
    assert "No setting hurts." in page.said


def test_unknown_numbers_are_left_out():
    plan = experiment.Plan(
        workers=1,
        strategy=None,
        precision=None,
        call="launch",
        trials=6,
        exhausted=None,
        slots=2,
        slots_now=None,
        needs="1 core and 2 GPUs",
        gpus=4,
        gpus_now=None,
        batch=None,
        preload=("numpy",),
        keep_warm=0.0,
        slots_warm=None,
        hindrances=(),
    )
    assert plan.trials_per_slot == 3
    assert "  slots    2 at most; each 1 core and 2 GPUs\n  GPUs     4 at most\n" in str(plan)
    assert "  preload  numpy; in each slot\n" in str(plan)
    assert "  preload  nothing\n" in str(dataclasses.replace(plan, preload=()))
    small = dataclasses.replace(plan, exhausted="the space is small")
    assert "  trials   6; the space is small\n" in str(small)
    assert "dtype" not in str(plan)
    half = dataclasses.replace(plan, precision="mixed_bfloat16")
    assert "  dtype    mixed_bfloat16\n" in str(half)


@pytest.mark.slow
@pytest.mark.contract
def test_seconds_are_estimated_from_finished_trials(spark, tmp_path):
    def quick(x):
        return x

    def search(call, function, *arguments, **settings):
        space = {"x": range(3)}
        return call(*arguments, spark, function, space, logdir=tmp_path, preload=(), **settings)

    done = search(experiment.launch, quick, verbose=0)
    plan = search(experiment.plan, quick, experiment.launch)
    mean = sum(trial.seconds for trial in done.trials) / 3
    shown = Status(total=plan.trials, typical=mean, slots=plan.slots, at_once=plan.slots)
    assert plan.seconds(done) == pytest.approx(mean * 3 / 2) == pytest.approx(shown.left)
    assert plan.seconds(experiment.load(done.logdir)) == pytest.approx(plan.seconds(done))
    assert plan.seconds(done.part([])) is None
    assert refused(plan.seconds, done.logdir).startswith("result: expected a Result")


@pytest.mark.slow
@pytest.mark.contract
def test_executors_gpus_and_settings_of_a_cluster_are_seen(sparks, tmp_path):
    """An executor with 5 cores and 2 GPUs: two slots of 2 cores and a GPU leave a core idle."""
    settings = gpu_settings(tmp_path, '["3", "5"]') | {
        "spark.executor.memory": "512m",
        "spark.task.cpus": "2",
        "spark.speculation": "true",
    }
    spark = sparks.get("local-cluster[1,5,1024]", **settings)
    wait_until(lambda: ClassicSession(spark).cluster().executors)

    def plan(**settings):
        space = {"x": range(6)}
        return experiment.plan(experiment.launch, spark, train, space, logdir=tmp_path, **settings)

    seen = plan()
    assert (seen.slots_now, seen.slots, seen.needs) == (2, 2, "2 cores and 1 GPU")
    assert (seen.gpus_now, seen.gpus, seen.trials_per_slot) == (2, 2, 3)
    hurt = {item.setting: (item.value, item.effect) for item in seen.hindrances}
    assert hurt == {
        "spark.speculation": (
            "true",
            "Spark starts copies of slots, since these run long, and the copies take cores",
        ),
        "spark.task.cpus": ("2", "no slot can use 1 core of the current executors"),
    }
    more = plan(parallelism=4)
    assert (more.slots_now, more.slots, more.gpus) == (2, 4, 4)
    assert [item.effect for item in more.hindrances if item.setting == "parallelism"] == [
        "the executors run 2 at once: 2 slots may wait"
    ]
    rows = Reader(more._repr_html_(), "tr")
    assert any("spark.speculation" in row and "set it to false" in row for row in rows.inside)
    assert "settings that hurt:\n  parallelism = 4: the executors run 2 at once" in str(more)


@pytest.mark.slow
@pytest.mark.contract
def test_running_jobs_are_a_hindrance(spark, tmp_path):
    def occupy(_):
        import time

        while not os.path.exists(tmp_path / "release"):
            time.sleep(0.02)

    context = spark.sparkContext
    other = threading.Thread(
        target=lambda: context.parallelize([0], 1).foreach(occupy), daemon=True
    )
    other.start()
    try:
        wait_until(lambda: ClassicSession(spark).cluster().executors[0].running == 1)
        seen = experiment.plan(
            experiment.launch, spark, train, {"x": [1, 2]}, logdir=tmp_path / "runs", preload=()
        )
    finally:
        (tmp_path / "release").touch()
        other.join(60)
    (hindrance,) = seen.hindrances
    assert (hindrance.setting, hindrance.value) == ("spark.scheduler.mode", "FIFO")
    assert hindrance.effect.startswith("1 task of other jobs of this application runs now: ")


class Elsewhere:
    """A session of which only the settings are read, in place of one on a real cluster."""

    def __init__(self, master, **settings):
        self.master = master
        self._settings = {f"spark.{name}": value for name, value in settings.items()}

    def setting(self, name):
        return self._settings.get(name)

    on_this_host = ClassicSession.on_this_host
    exposure = ClassicSession.exposure
    _is_on = ClassicSession._is_on


SAFE = {"authenticate": "true", "network.crypto.enabled": "true"}


def hurt(master, *, batch=None, preload=("tensorflow",), **settings):
    session = Elsewhere(master, **settings)
    prepared = SimpleNamespace(
        session=session,
        preload=Preload(required=preload),
        spec=SimpleNamespace(settings=experiment.Settings(), searcher=SimpleNamespace(batch=batch)),
    )
    return hindrances(
        Demand(
            prepared=prepared, cluster=Cluster(()), slots=8, now=0, cpus=1, per_executor=4, idle=0
        )
    )


def test_spark_without_authentication_is_a_hindrance():
    (open_one,) = hurt("spark://host:7077", authenticate="true")
    assert (open_one.setting, open_one.value) == ("spark.network.crypto.enabled", "off")
    assert hurt("spark://host:7077", **SAFE) == ()
    (open_one,) = hurt("local[2]")
    assert (open_one.setting, open_one.value) == ("spark.authenticate", "off")
    assert "take over a search" in open_one.effect
    assert open_one.advice.endswith('.config("spark.authenticate", "true")')
    assert hurt("local[2]", authenticate="true") == ()


def test_speculation_is_a_hindrance_only_where_spark_speculates():
    (hindrance,) = hurt("spark://host:7077", **SAFE | {"speculation": "true"})
    assert (hindrance.setting, hindrance.value) == ("spark.speculation", "true")
    assert hurt("local[8]", **SAFE | {"speculation": "true"}) == ()


def test_dynamic_allocation_with_a_barrier_is_a_hindrance():
    dynamic = SAFE | {"dynamicAllocation.enabled": "true"}
    (kept,) = hurt("spark://host:7077", batch=10, **dynamic)
    assert (kept.setting, kept.value) == ("spark.dynamicAllocation.executorIdleTimeout", "60s")
    assert hurt("spark://host:7077", **dynamic) == ()
    assert hurt("spark://host:7077", batch=10, **SAFE) == ()


@pytest.mark.parametrize(
    ("master", "settings", "room"),
    [
        ("yarn", {}, 384),
        ("yarn", {"executor.memory": "10g"}, 1024),
        ("k8s://https://host:443", {"executor.memory": "16g"}, 1638),
        (
            "k8s://https://host:443",
            {"executor.memory": "5g", "kubernetes.memoryOverheadFactor": "0.4"},
            2048,
        ),
        (
            "k8s://https://host:443",
            {
                "executor.memory": "10g",
                "executor.memoryOverheadFactor": "0.2",
                "kubernetes.memoryOverheadFactor": "0.4",
            },
            2048,
        ),
        ("yarn", {"executor.memory": "10g", "kubernetes.memoryOverheadFactor": "0.4"}, 1024),
        ("yarn", {"executor.memory": "1t", "executor.memoryOverhead": "2000"}, 2000),
        ("yarn", {"executor.memory": "10g", "executor.memoryOverheadFactor": "0.2"}, 2048),
        ("yarn", {"executor.memoryOverhead": "4g"}, None),
        ("yarn", {"executor.pyspark.memory": "8g"}, None),
        ("k8s://https://host:443", {"executor.pyspark.memory": "8g"}, 384),
        ("k8s://https://host:443", {"executor.memory": "40g"}, None),
        ("spark://host:7077", {}, None),
    ],
)
def test_too_little_memory_for_tensorflow_in_containers_is_a_hindrance(master, settings, room):
    """Four trials of an executor take 3.2 GB."""
    found = hurt(master, **SAFE | settings)
    assert [(item.setting, item.value, item.advice) for item in found] == (
        []
        if room is None
        else [("spark.executor.memoryOverhead", f"{room} MiB", "set it to 3052m or more")]
    )
    assert hurt(master, preload=(), **SAFE | settings) == ()


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:443", "spark://host:7077"])
def test_a_limit_of_the_address_space_of_trials_is_a_hindrance(master):
    settings = SAFE | {"executor.cores": "4", "executor.memoryOverhead": "4g"}
    (hindrance,) = hurt(master, **settings | {"executor.pyspark.memory": "4g"})
    assert (hindrance.setting, hindrance.value) == ("spark.executor.pyspark.memory", "4g")
    assert "the address space of each Python process to 1024 MiB" in hindrance.effect
    assert hurt(master, **settings | {"executor.pyspark.memory": "16g"}) == ()
    assert hurt(master, preload=(), **settings | {"executor.pyspark.memory": "4g"}) == ()


def test_the_plan_of_trials_on_several_slots_counts_trials_at_once(spark, tmp_path):
    plan = experiment.plan(
        experiment.launch,
        spark,
        lambda x: x,
        {"x": range(3)},
        workers_per_trial=2,
        logdir=tmp_path,
        preload=(),
    )
    assert (plan.slots, plan.workers, plan.trials_per_slot) == (2, 2, 3)
    assert plan.idle == (0.0, 0.0)
    assert plan.strategy is None
    assert "  slots    2 now, 2 at most; each 1 core; 2 for each trial\n" in str(plan)
    some = dataclasses.replace(plan, workers=(2, 4), slots=6, slots_now=6)
    assert some.trials_per_slot == 2
    assert "  slots    6 now, 6 at most; each 1 core; 2 to 4 for each trial\n" in str(some)


def test_the_plan_says_how_workers_train_together(spark, tmp_path):
    plan = experiment.plan(
        experiment.distributed_training,
        spark,
        lambda x: x,
        {"x": 1},
        workers=2,
        strategy=experiment.Mirrored(unprotected=True),
        logdir=tmp_path,
        preload=(),
    )
    assert plan.strategy == "mirrored"
    assert "; 2 for each trial, mirrored\n" in str(plan)
