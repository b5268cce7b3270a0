"""Checkpoints that other trials resume from, and the files of a trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import experiment
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths
from tests.spark_jobs.trial.events.reading import scalars

QUIET = {"preload": (), "verbose": 0}


def test_candidates_resume_from_their_parents_checkpoints(spark, logdir):
    def train(rate):
        folder = Path(experiment.checkpoint_dir())
        state = folder / "state.json"
        history = json.loads(state.read_text()) if state.exists() else []
        history.append(rate)
        state.write_text(json.dumps(history))
        experiment.report(score=sum(history))
        return {"score": sum(history), "length": len(history)}

    result = experiment.population_based_training(
        spark,
        train,
        {"rate": [0.0, 1.0]},
        popsize=4,
        generations=3,
        optimization_key="score",
        seed=2,
        logdir=logdir,
        **QUIET,
    )
    assert len(result.trials) == 16
    paths = RunPaths(Path(result.logdir))
    histories, parents = {}, {}
    for trial in result.trials:
        histories[trial.id] = json.loads(Path(trial.logdir, "checkpoint", "state.json").read_text())
        parents[trial.id] = json.loads(Path(trial.logdir, "trial.json").read_text())["trial"][
            "parent"
        ]
        assert histories[trial.id][-1] == trial.params["rate"]
        assert trial.metrics["length"] == trial.id // 4 + 1
    for trial, parent in parents.items():
        if trial < 4:
            assert parent is None
        else:
            assert parent // 4 == trial // 4 - 1  # in the previous generation
            assert histories[trial][:-1] == histories[parent]
    planned = [r for r in read_journal(paths.journal) if r["event"] == "planned"]
    assert {r["trial"]["id"]: r["trial"]["parent"] for r in planned} == parents
    copied = [trial for trial, parent in parents.items() if parent not in (None, trial - 4)]
    assert len(copied) >= 1  # the worst of four, unless it drew itself
    assert result.best.value == max(sum(history) for history in histories.values())
    curves = scalars(paths.search)
    for name in ("best", "mean", "diversity"):
        assert [step for step, _ in curves[f"generation/{name}"]] == [0, 1, 2, 3]
    assert [step for step, _ in curves["generation/copied"]] == [1, 2, 3]
    algorithm = json.loads(paths.manifest.read_text())["algorithm"]
    assert algorithm["type"] == "population based training"
    assert (algorithm["popsize"], algorithm["quantile"]) == (4, 0.25)


def test_a_member_that_runs_again_trains_one_generation(spark, logdir):
    """It is lost once it has saved its checkpoint, in the first and in the second generation."""

    def train(rate):
        state = Path(experiment.checkpoint_dir(), "generations")
        generations = int(state.read_text()) + 1 if state.exists() else 1
        state.write_text(str(generations))
        if Path(experiment.logdir()).name in {"000000", "000004"}:  # the first attempts
            raise ConnectionError("lost")
        return generations

    result = experiment.population_based_training(
        spark,
        train,
        {"rate": [0.0, 1.0]},
        popsize=4,
        generations=1,
        retry_on=("user error",),
        logdir=logdir,
        **QUIET,
    )
    assert [trial.id for trial in result.trials if trial.logdir.endswith("-2")] == [0, 4]
    assert [trial.value for trial in result.trials] == [1.0] * 4 + [2.0] * 4


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"popsize": 1}, "popsize"),
        ({"generations": 0}, "generations"),
        ({"quantile": 0.6}, "quantile"),
        ({"resample_probability": -0.1}, "resample_probability"),
        ({"direction": "up"}, "direction"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, name):
    with pytest.raises(experiment.InvalidArgument) as caught:
        experiment.population_based_training(None, lambda rate: rate, {"rate": [0, 1]}, **arguments)
    assert caught.value.name == name


def lose_executor_once(mark: Path) -> None:
    """Kill the JVM of this trial's executor, unless the file `mark` exists."""
    if not mark.exists():
        import psutil

        mark.touch()
        next(p for p in psutil.Process().parents() if p.name() == "java").kill()
        psutil.wait_procs([psutil.Process()])  # this process ends with its executor


@pytest.mark.usefixtures("own_zygotes")
def test_a_retry_after_a_lost_executor_finds_the_last_checkpoint(cluster, tmp_path):
    mark = tmp_path / "killed"

    def train(x):
        state = Path(experiment.checkpoint_dir(), "deep", "state")
        if not state.exists():
            state.parent.mkdir()
            state.write_text("half way")
            lose_executor_once(mark)
            return 0.0
        return 1.0 if state.read_text() == "half way" else 0.0

    result = experiment.launch(
        cluster, train, {"x": [0]}, logdir=tmp_path / "runs", parallelism=1, **QUIET
    )
    (trial,) = result.trials
    assert mark.exists()
    assert trial.logdir.endswith("000000-2")
    assert (trial.status, trial.value) == ("finished", 1.0)
    assert trial.files == [str(Path(trial.logdir, "checkpoint", "deep", "state"))]


@pytest.mark.usefixtures("own_zygotes")
def test_a_retry_after_a_lost_executor_makes_the_repeats_that_are_left(cluster, tmp_path):
    mark, calls = tmp_path / "killed", tmp_path / "calls"
    calls.mkdir()

    def train(x):
        number = experiment.repeat()
        Path(calls, f"{number}-{len(list(calls.iterdir()))}").touch()
        if number == 2:
            lose_executor_once(mark)
        return float(number)

    result = experiment.launch(
        cluster, train, {"x": [0]}, repeats=4, logdir=tmp_path / "runs", parallelism=1, **QUIET
    )
    (trial,) = result.trials
    assert (trial.status, trial.value) == ("finished", 1.5)
    assert sorted(path.name for path in calls.iterdir()) == ["0-0", "1-1", "2-2", "2-3", "3-4"]


@pytest.mark.slow
@pytest.mark.usefixtures("own_zygotes")
def test_keras_resumes_after_its_last_epoch_when_its_executor_is_lost(cluster, tmp_path):
    mark, epochs = tmp_path / "killed", tmp_path / "epochs"
    epochs.mkdir()

    def train(x):
        import keras
        import numpy as np

        class Diary(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 3:
                    lose_executor_once(mark)
                assert not (epochs / str(epoch)).exists(), "trained again"
                (epochs / str(epoch)).touch()

        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        backup = keras.callbacks.BackupAndRestore(experiment.checkpoint_dir())
        x = np.ones((8, 2))
        callbacks = [*experiment.keras_callbacks(), backup, Diary()]
        history = model.fit(x, x[:, :1], epochs=6, verbose=0, callbacks=callbacks)
        assert history.epoch == [0, 1, 2, 3, 4, 5]
        assert len(history.history["loss"]) == 6
        return int(model.optimizer.iterations)

    result = experiment.launch(
        cluster, train, {"x": [0]}, logdir=tmp_path / "runs", parallelism=1, **QUIET
    )
    (trial,) = result.trials
    assert trial.error is None
    assert trial.logdir.endswith("000000-2")
    assert sorted(path.name for path in epochs.iterdir()) == ["0", "1", "2", "3", "4", "5"]
    assert trial.value == 6  # one step per epoch, including those before the executor was lost


def test_a_trials_files_are_those_that_it_wrote(spark, logdir):
    def train(x):
        folder = Path(experiment.logdir())
        print("into the log")
        experiment.report(score=1.0)
        (folder / "model ü").mkdir()
        (folder / "model ü" / "trial.json").write_text("mine")
        (folder / "notes.txt").write_text("mine")
        Path(experiment.checkpoint_dir(), "state").write_text("mine")
        return x

    result = experiment.launch(spark, train, {"x": [1, 2]}, logdir=logdir, **QUIET)
    for trial in (*result.trials, *experiment.load(result.logdir).trials):
        assert trial.files == [
            f"{trial.logdir}/{name}"
            for name in ("checkpoint/state", "model ü/trial.json", "notes.txt")
        ]


def test_the_files_of_a_missing_folder_are_an_error(spark, tmp_path):
    result = experiment.launch(
        spark, lambda x: x, {"x": [1]}, logdir=tmp_path / "runs", isolation="none", verbose=0
    )
    (tmp_path / "runs").rename(tmp_path / "moved")
    with pytest.raises(OSError):
        _ = result.trials[0].files


def test_links_are_not_among_a_trials_files(tmp_path):
    from experiment.results.trial_files import files_of_trial

    folder = tmp_path / "000000"
    folder.mkdir()
    (folder / "model").touch()
    (folder / "latest").symlink_to(".")
    (folder / "outside").symlink_to(tmp_path)
    assert files_of_trial(str(folder)) == [str(folder / "model")]
