"""How many slots would find their modules imported."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import experiment
from experiment.planning import warm_slots as module
from experiment.planning.warm_slots import warm_slots
from experiment.setup.function.imports import Preload
from spark_jobs.session.classic import ClassicSession
from tests.experiment.waiting import wait_until

MODULES = ["json", "wave"]  # no other test imports the two


def train(x):
    raise AssertionError("a plan runs no trial")


def planned(spark, folder, preload=MODULES, **settings):
    return experiment.plan(
        experiment.launch,
        spark,
        train,
        {"x": [1, 2, 3]},
        logdir=folder,
        preload=preload,
        **settings,
    )


def test_a_plan_counts_the_slots_whose_executors_keep_exactly_its_modules(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_LIMIT", 240.0)
    assert planned(spark, tmp_path).slots_warm == 0
    experiment.warm_up(spark, preload=MODULES).result(120)
    wait_until(lambda: planned(spark, tmp_path).slots_warm == 2)
    plan = planned(spark, tmp_path)
    assert "once per executor, kept for 300 s after a search, kept now for 2 of 2 slots" in str(
        plan
    )
    assert planned(spark, tmp_path, parallelism=1).slots_warm == 1
    assert planned(spark, tmp_path, preload=MODULES[:1]).slots_warm == 0
    spawned = planned(spark, tmp_path, isolation="spawn")
    assert spawned.slots_warm == 0
    assert "json, wave; in each slot" in str(spawned)


def test_a_plan_waits_only_shortly_for_cores_that_other_jobs_have(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LIMIT", 0.1)
    release = tmp_path / "release"

    def occupy(_):
        import time

        while not release.exists():
            time.sleep(0.02)

    context = spark.sparkContext
    other = threading.Thread(
        target=lambda: context.parallelize([0, 1], 2).foreach(occupy), daemon=True
    )
    other.start()
    try:
        wait_until(lambda: ClassicSession(spark).cluster().executors[0].running == 2)
        plan = planned(spark, tmp_path / "runs")
    finally:
        release.touch()
        other.join(60)
    assert plan.slots_warm is None
    assert "once per executor, kept for 300 s after a search\n" in str(plan)


@pytest.mark.parametrize(
    ("preload", "slots", "keep_warm", "has_run_jobs", "expected"),
    [
        (("numpy",), None, 300.0, True, None),  # the executors of Spark Connect are unknown
        ((), 2, 300.0, True, None),
        (("numpy",), 0, 300.0, True, 0),
        (("numpy",), 2, 0.0, True, 0),
        (("numpy",), 2, 300.0, False, 0),
    ],
)
def test_no_job_runs_where_the_answer_is_known(preload, slots, keep_warm, has_run_jobs, expected):
    prepared = SimpleNamespace(
        session=SimpleNamespace(has_run_jobs=has_run_jobs),
        preload=Preload(required=preload),
        keep_warm=keep_warm,
    )
    assert warm_slots(prepared, slots) == expected
