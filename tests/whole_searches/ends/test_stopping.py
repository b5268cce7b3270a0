"""Trials that are stopped by a rule, on a real local Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import experiment
from tests.spark_jobs.trial.events.reading import scalars
from tests.whole_searches.calls.test_tensorboard import serve  # noqa: F401  # a fixture

ONE_BY_ONE = {"preload": (), "parallelism": 1, "verbose": 0}


def climb(x):
    """Report x until a stop request; return it after 8 steps if x is even."""
    import itertools
    import time

    for step in itertools.takewhile(lambda step: x % 2 or step <= 8, itertools.count(1)):
        experiment.report(step=step, score=x)
        time.sleep(0.005)  # wait for the stop request without filling the disk
    return {"score": x}


@pytest.fixture(scope="module")
def halved(sparks, tmp_path_factory):
    """A finished search that stopped the worse of each two trials at a rung."""
    return experiment.launch(
        sparks.get("local[2]"),
        climb,
        {"x": [4, 3, 1, 6]},
        stopping=experiment.SuccessiveHalving(reduction_factor=2),
        logdir=tmp_path_factory.mktemp("halved"),
        **ONE_BY_ONE,
    )


def test_halving_stops_the_worse_trials_and_all_displays_show_it(halved):
    assert [t.status for t in halved.trials] == ["finished", "stopped", "stopped", "finished"]
    assert [t.value for t in halved.trials] == [4.0, 3.0, 1.0, 6.0]
    assert [t.reason for t in halved.trials] == [
        "",
        "step 1: 3 is not among the best 1 of 2 trials",
        "step 1: 1 is not among the best 1 of 3 trials",
        "",
    ]
    assert halved.trials[1].ending == "stopped at " + halved.trials[1].reason
    assert halved.best.id == 3
    assert halved.failed == []
    assert halved.problem is None
    assert halved.summary().startswith("4 trials, 2 stopped, best score 6 in trial 3")
    frame = halved.to_pandas()
    assert list(frame["reason"].notna()) == [False, True, True, False]
    assert list(frame["value"]) == [4.0, 3.0, 1.0, 6.0]
    assert "stopped at step 1: 3 is not among the best" in halved._repr_html_()


def test_the_run_folder_has_the_stopped_trials(halved):
    loaded = experiment.load(halved.logdir)
    assert loaded.trials == halved.trials
    assert loaded.objective == "score"
    manifest = json.loads(Path(halved.logdir, "manifest.json").read_text())
    assert manifest["stopping"] == [
        {
            "type": "SuccessiveHalving",
            "min_resource": 1,
            "reduction_factor": 2,
            "min_early_stopping_rate": 0,
        }
    ]
    outcome = json.loads(Path(halved.trials[1].logdir, "outcome.json").read_text())
    assert outcome["status"] == "stopped"
    assert outcome["reason"] == halved.trials[1].reason
    assert outcome["step"] >= 1


@pytest.mark.slow
@pytest.mark.contract
def test_tensorboards_table_has_the_value_and_the_last_step(halved, serve):  # noqa: F811
    server = serve(halved.logdir)
    wanted = {
        "allowedStatuses": ["STATUS_SUCCESS"],
        "colParams": [],
        "startIndex": 0,
        "sliceSize": 100,
    }
    answer = server.wait_for(
        "/data/plugin/hparams/session_groups",
        wanted,
        lambda a: len(a.get("sessionGroups", [])) == 4,
    )
    config = server.get("/data/plugin/hparams/experiment", {})
    assert [m["displayName"] for m in config["metricInfos"]] == ["score ↑", "last step"]
    rows = {group["name"]: group for group in answer["sessionGroups"]}
    run = halved.logdir[-8:]
    for trial in halved.trials:
        shown = {
            m["name"]["tag"]: m["value"] for m in rows[f"{trial.id:06d} {run}"]["metricValues"]
        }
        assert shown["objective/score"] == trial.value
        if trial.status == "finished":
            assert shown["trial/last_step"] == 8
        else:
            assert shown["trial/last_step"] >= 1
    text = server.get("/data/plugin/text/text?run=trials/000001&tag=stopped")
    assert "stopped at step 1: 3 is not among the best 1 of 2 trials" in text[0]["text"]


def test_evolution_uses_the_value_of_a_stopped_trial(spark, logdir):
    def train(x):
        import time

        while x > 0.5:
            experiment.report(loss=x)
            time.sleep(0.005)
        return {"loss": x}

    result = experiment.evolutionary_search(
        spark,
        train,
        {"x": [0.0, 1.0]},
        direction="min",
        popsize=4,
        generations=1,
        seed=1,
        optimization_key="loss",  # otherwise a report is ambiguous
        stopping=experiment.Threshold(upper=0.5),
        logdir=logdir,
        **ONE_BY_ONE,
    )
    assert all(trial.value == trial.params["x"] for trial in result.trials)
    first = result.trials[:4]
    assert {trial.status for trial in first} == {"finished", "stopped"}
    curves = scalars(Path(result.logdir, "search"))
    mean = sum(trial.params["x"] for trial in first) / 4
    assert curves["generation/mean"][0] == (0, pytest.approx(mean, rel=1e-5))
    assert result.best.value == min(trial.params["x"] for trial in result.trials)


def test_a_stopped_trial_with_another_metric_is_not_the_best(spark, logdir):
    """The stopped trial reports a loss; the others return an accuracy."""

    def train(x):
        import time

        while x == 1:
            experiment.report(loss=5.0)
            time.sleep(0.005)
        return 0.9

    with pytest.warns(UserWarning, match="report 'loss' and return 'metric'"):
        result = experiment.launch(
            spark,
            train,
            {"x": [1, 2, 1]},
            stopping=experiment.Threshold(upper=1.0),
            logdir=logdir,
            **ONE_BY_ONE,
        )
    assert [trial.status for trial in result.trials] == ["stopped", "finished", "stopped"]
    assert [trial.value for trial in result.trials] == [None, 0.9, None]
    assert result.trials[0].metrics == {"loss": 5.0}
    assert result.best.id == 1
    loaded = experiment.load(result.logdir)
    assert (loaded.trials, loaded.objective) == (result.trials, "metric")


def test_a_single_number_and_a_report_are_the_same_metric_on_request(spark, logdir):
    def train(x):
        import time

        while x > 1:
            experiment.report(loss=x)
            time.sleep(0.005)
        return x

    result = experiment.launch(
        spark,
        train,
        {"x": [5, 1]},
        direction="min",
        optimization_key="loss",
        stopping=experiment.Threshold(upper=1.0),
        logdir=logdir,
        **ONE_BY_ONE,
    )
    assert [trial.value for trial in result.trials] == [5.0, 1.0]
    assert result.best.id == 1


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("isolation", ["process", "spawn", "none"])
def test_rules_work_together_with_any_isolation(spark, logdir, isolation):
    def train(x):
        import time

        for step in range(3 if x in (1.0, 2.0) else 10**6):
            experiment.report(step=step, score=x)
            time.sleep(0.005)
        return {"score": x}

    result = experiment.launch(
        spark,
        train,
        {"x": [1.0, 2.0, 0.5, 9.0]},
        stopping=[experiment.MedianStopping(n_startup_trials=2), experiment.Threshold(upper=5.0)],
        logdir=logdir,
        isolation=isolation,
        **ONE_BY_ONE,
    )
    assert [trial.reason for trial in result.trials] == [
        "",
        "",
        "step 0: best 0.5 is below the median 1.5 of 2 trials",
        "step 0: 9 is above the threshold 5",
    ]


def test_a_stopped_trial_may_clean_up(spark, tmp_path):
    """`except Exception` does not catch the stop, and a later report does not raise again."""

    def train(x):
        import time

        try:
            while True:
                try:
                    experiment.report(score=x)
                    time.sleep(0.005)
                except Exception:
                    (tmp_path / "swallowed").touch()
        finally:
            experiment.report(score=7.0)
            (tmp_path / "tidied").touch()

    result = experiment.launch(
        spark,
        train,
        {"x": [-1.0]},
        stopping=experiment.Threshold(lower=0.0),
        logdir=tmp_path,
        **ONE_BY_ONE,
    )
    (trial,) = result.trials
    assert (trial.status, trial.value) == ("stopped", 7.0)
    assert (tmp_path / "tidied").exists()
    assert not (tmp_path / "swallowed").exists()


def test_several_metrics_and_no_key_end_the_search_with_a_sentence(spark, logdir):
    def train(x):
        import time

        while True:
            experiment.report(loss=1.0, accuracy=0.0)
            time.sleep(0.005)

    with pytest.raises(experiment.SearchFailed, match="optimization_key='loss'") as caught:
        experiment.launch(
            spark, train, {"x": [1]}, stopping=experiment.Patience(2), logdir=logdir, **ONE_BY_ONE
        )
    assert "('loss', 'accuracy')" in str(caught.value)
    assert caught.value.result.trials[0].status == "cancelled"


@pytest.mark.slow
@pytest.mark.contract
def test_keras_is_stopped_after_an_epoch_and_its_return_value_counts(spark, logdir):
    def train(learning_rate):
        import keras
        import numpy as np

        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(learning_rate), "mse")
        x = np.ones((8, 2))
        epochs = 3 if learning_rate else 100_000
        return model.fit(
            x, 3 * x[:, :1], epochs=epochs, verbose=0, callbacks=experiment.keras_callbacks()
        )

    result = experiment.launch(
        spark,
        train,
        {"learning_rate": [0.01, 0.0]},
        direction="min",
        optimization_key="loss",
        stopping=experiment.Patience(3),
        logdir=logdir,
        parallelism=1,
        verbose=0,
    )
    learning, idle = result.trials
    assert learning.status == "finished", learning.error
    assert idle.status == "stopped", idle.error
    assert idle.reason.startswith("step 3: no better than ")
    assert idle.reason.endswith(" for 3 reports")
    assert result.best is learning
    losses = scalars(Path(idle.logdir))["loss"]
    assert 4 <= len(losses) < 100_000
    assert idle.value == pytest.approx(losses[-1][1], rel=1e-5)
