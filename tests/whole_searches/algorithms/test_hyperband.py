"""Hyperband on Spark: trials that go on from the checkpoints of shorter ones."""

from __future__ import annotations

import json
from pathlib import Path

import experiment

QUIET = {"preload": (), "verbose": 0}
SIZES = 9 + 3 + 1 + 5 + 1 + 3


def train(rate):
    state = Path(experiment.checkpoint_dir(), "epochs.json")
    epochs = json.loads(state.read_text()) if state.exists() else []
    for epoch in range(len(epochs), 9):
        epochs.append(experiment.params()["rate"])
        state.write_text(json.dumps(epochs))
        experiment.report(step=epoch, accuracy=1 - abs(rate - 0.3) - 1 / (epoch + 2))
    return {"accuracy": 0.0}  # never, since the report of epoch 8 ends the longest trials


def test_the_best_trials_go_on_from_their_checkpoints(spark, logdir):
    shared = {"max_epochs": 9, "seed": 1, "logdir": logdir, "stopping": None, **QUIET}
    plan = experiment.plan(
        experiment.hyperband_search, spark, train, {"rate": [0.0, 1.0]}, **shared
    )
    assert (plan.trials, plan.batch) == (SIZES, None)
    result = experiment.hyperband_search(spark, train, {"rate": [0.0, 1.0]}, **shared)
    assert len(result) == SIZES
    frame = result.to_pandas()
    assert sorted(frame["max_steps"]) == [1] * 9 + [3] * (3 + 5) + [9] * (1 + 1 + 3)
    for trial in result:
        assert (trial.status, trial.error) == ("finished", None)
        said = json.loads(Path(trial.logdir, "trial.json").read_text())["trial"]
        epochs = json.loads(Path(trial.logdir, "checkpoint", "epochs.json").read_text())
        assert epochs == [trial.params["rate"]] * trial.max_steps
        if said["parent"] is not None:
            assert result[said["parent"]].params == trial.params
    assert result.best.max_steps == 9
    assert abs(result.best.params["rate"] - 0.3) < 0.3
    again = experiment.hyperband_search(
        spark, train, {"rate": [0.0, 1.0]}, resume=result, **{**shared, "logdir": None}
    )
    assert [trial.params for trial in again] == [trial.params for trial in result]
    other = experiment.run(
        spark,
        train,
        {"rate": [0.0, 1.0]},
        searcher=experiment.Hyperband(max_epochs=9, progressive=True),
        seed=1,
        logdir=logdir,
        **QUIET,
    )
    assert len(other) == other.total == 9 + 3  # the ranking after 3 epochs is that after 1
    assert other.exhausted.startswith("no trial trains for more than 3 epochs, ")
    assert other.exhausted in other.summary()


def test_trials_that_ignore_their_steps_are_warned_of(spark, logdir, recwarn):
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        experiment.hyperband_search(
            spark, lambda rate: rate, {"rate": [0.0, 1.0]}, max_epochs=3, logdir=logdir, **QUIET
        )
    assert len([w for w in caught if "experiment.max_steps()" in str(w.message)]) == 1
