import shutil
from pathlib import Path

import pytest

import experiment
from spark_jobs.trial.events.event_file import EventFile
from tests.experiment.runs import make_run


@pytest.fixture
def run(tmp_path):
    run = make_run(tmp_path, trials=3, failed=())
    for trial in (0, 2):
        with EventFile(run / "trials" / f"{trial:06d}", "reports") as events:
            for step in range(3):
                events.scalars({"loss": 1 / (step + 1), "accuracy": 0.5}, step)
    return run


def test_curves_have_a_row_per_point(run):
    curves = experiment.load(run).curves()
    assert list(curves.columns) == ["trial", "step", "metric", "value"]
    assert set(curves["trial"]) == {0, 2}
    assert set(curves["metric"]) == {"loss", "accuracy"}
    losses = curves[curves["metric"] == "loss"].pivot(index="step", columns="trial", values="value")
    assert losses[2].tolist() == pytest.approx([1, 1 / 2, 1 / 3])


def test_the_use_of_gpus_is_none_of_the_curves_that_trials_reported(run):
    with EventFile(run / "trials" / "000000") as events:
        events.scalars({"gpu/0/memory_GiB": 1.5, "gpu/0/utilization": 50.0}, 61)  # seconds
        events.scalars({"gpu/0/loss": 0.5}, 1)
    curves = experiment.load(run).curves()
    assert set(curves["metric"]) == {"loss", "accuracy", "gpu/0/loss"}
    assert max(curves["step"]) == 2


def test_trials_without_a_folder_have_no_curves(run):
    shutil.rmtree(run / "trials" / "000000")
    curves = experiment.load(run).curves()
    assert set(curves["trial"]) == {2}
    shutil.rmtree(Path(run) / "trials")
    assert experiment.load(run).curves().empty


def test_a_result_without_trials_has_no_curves(run):
    result = experiment.load(run)
    assert result.part([]).curves().empty
