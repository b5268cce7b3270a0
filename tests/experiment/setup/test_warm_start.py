"""Prior observations from other runs, and given points that are tried first."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import experiment
from experiment.run_files.journal import read_journal
from experiment.setup.settings import Settings
from experiment.setup.warm_start import known_of, runs_of
from search.errors import InvalidArgument
from search.evolution.population_based import PopulationTraining
from search.fidelity.hyperband import Hyperband
from search.space.spaces import Space
from search.trial import Outcome
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import BOUNDS, make_run, make_search, make_spec
from tests.search.fakes import started

QUIET = {"preload": (), "isolation": "none", "verbose": 0, "parallelism": 1}
SPACE = Space.of_bounds(BOUNDS)
ACCURACY = Settings(optimization_key="accuracy")


def train(learning_rate, units, optimizer):
    return {"accuracy": units / 64 - learning_rate, "loss": 0.0}


@pytest.fixture
def make(tmp_path):
    """Return a function that makes the run folder of a random search."""
    return lambda **given: make_run(tmp_path / "before", call="random_search", **given)


def tried(trials):
    return [trial.params for trial in trials]


def planned(run):
    """Return the planned configurations in the order of the journal."""
    records = read_journal(RunPaths(Path(run)).journal)
    return [record["trial"]["params"] for record in records if record["event"] == "planned"]


# Prior observations


def test_finished_and_failed_trials_are_prior_observations(make):
    def outcome_of(trial):
        if trial.id == 1:
            return Outcome.failed(1, "user error", "ValueError: no")
        status = "stopped" if trial.id == 2 else "finished"
        return Outcome(trial.id, status, trial.id / 4, "accuracy", {"accuracy": trial.id / 4})

    run = make(trials=6, outcome_of=outcome_of, running=(5,))
    result = experiment.load(run)
    known = known_of([str(run)], SPACE, ACCURACY)
    assert [item.value for item in known] == [0.0, None, 0.75, 1.0]
    assert [dict(item.params) for item in known] == [
        result.trials[number].params for number in (0, 1, 3, 4)
    ]


def test_prior_observations_keep_the_order_of_runs_and_include_an_active_run(make):
    runs = [make(trials=3), make(trials=4, running=(3,), ended=False)]
    known = known_of(runs_of(runs), SPACE, ACCURACY)
    assert len(known) == 6
    assert [item.value for item in known[:3]] == [
        item.value for item in known_of(runs_of(experiment.load(runs[0])), SPACE, ACCURACY)
    ]


def test_a_run_is_named_by_its_folder_or_its_result_and_counts_once(make, monkeypatch):
    run = make(trials=2)
    monkeypatch.chdir(run.parent)
    assert runs_of([run, str(run), run.name, experiment.load(run)]) == [str(run)]
    assert runs_of(run) == runs_of(experiment.load(run)) == [str(run)]
    assert runs_of(()) == []


def test_short_trials_that_did_not_fail_are_no_prior_observations(tmp_path):
    def outcome_of(trial):
        if trial.id == 3:
            return Outcome.failed(3, "user error", "ValueError: no")
        length = trial.max_steps
        return Outcome(trial.id, "finished", length / 10, "accuracy", step=length)

    searcher = started(Hyperband, SPACE, max_epochs=9)
    search = make_spec("hyperband_search", searcher, SPACE, algorithm={"type": "hyperband"})
    run = make_run(tmp_path, search=search, outcome_of=outcome_of)
    result = experiment.load(run)
    assert {trial.max_steps for trial in result.trials} == {1, 3, 9}
    assert result.trials[3].max_steps < 9
    known = known_of([str(run)], SPACE, ACCURACY)
    longest = [trial for trial in result.trials if trial.max_steps == 9]
    assert len(known) == 1 + len(longest)
    assert {item.value for item in known} == {None, 0.9}


def test_the_longest_trials_of_each_group_are_prior_observations(tmp_path):
    def outcome_of(trial):
        status = "finished"
        if trial.max_steps == 9 and trial.params["optimizer"] == "adam":
            status = "cancelled"
        length = trial.max_steps
        value = length / 10 if status == "finished" else None
        return Outcome(trial.id, status, value, "accuracy", step=length)

    algorithm = {"type": "search each", "by": "optimizer", "bounds": {}}
    searcher = started(Hyperband, SPACE, max_epochs=9)
    search = make_spec("search_each", searcher, SPACE, algorithm=algorithm)
    run = make_run(tmp_path, search=search, outcome_of=outcome_of)
    known = known_of([str(run)], SPACE, ACCURACY)
    assert {(item.params["optimizer"], item.value) for item in known} == {
        ("adam", 0.3),
        *((name, 0.9) for name in BOUNDS["optimizer"] if name != "adam"),
    }


def test_an_algorithm_of_ones_own_may_have_a_setting_named_by(make):
    run = make(trials=3, algorithm={"type": "mine", "by": "age"})
    assert len(known_of([str(run)], SPACE, ACCURACY)) == 3


@pytest.mark.parametrize("order", [list(BOUNDS), list(reversed(BOUNDS))])
def test_the_order_of_the_hyperparameters_does_not_matter(make, order):
    space = Space.of_bounds({name: BOUNDS[name] for name in order})
    assert len(known_of([str(make(trials=3))], space, ACCURACY)) == 3


@pytest.mark.parametrize(
    ("bounds", "settings", "difference"),
    [
        (BOUNDS | {"units": [8, 32]}, {}, "space of 'units' was Integer("),
        (BOUNDS | {"layers": [1, 3]}, {}, "space of 'layers' is new: Integer("),
        ({"units": [8, 64]}, {}, "space of 'learning_rate' was Float("),
        (BOUNDS, {"direction": "min"}, "direction was 'max', is 'min'"),
        (BOUNDS, {"optimization_key": "loss"}, "optimization_key was 'accuracy', is 'loss'"),
        (BOUNDS, {"optimization_key": None}, "optimization_key was 'accuracy', is None"),
    ],
)
def test_runs_of_another_problem_are_refused_with_the_difference(
    make, bounds, settings, difference
):
    run = make(trials=3)
    with pytest.raises(InvalidArgument) as caught:
        experiment.random_search(
            None, train, bounds, **{"optimization_key": "accuracy"} | settings, warm_start=run
        )
    assert caught.value.name == "warm_start"
    assert caught.value.got.startswith(f"{str(run)!r}: ")
    assert difference in caught.value.got


def test_a_run_of_a_list_of_points_is_refused(tmp_path):
    run = make_run(tmp_path, points=[{"learning_rate": 0.1}, {"learning_rate": 0.2}])
    with pytest.raises(InvalidArgument, match="its trials were a list of points"):
        known_of([str(run)], SPACE, ACCURACY)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_run_whose_trials_continue_from_others_is_refused(make, grouped):
    algorithm = PopulationTraining().to_json()
    if grouped:
        algorithm = {"type": "search each", "searcher": algorithm}
    with pytest.raises(
        InvalidArgument, match="runs of other searches than population_based_training, got"
    ):
        known_of([str(make(trials=3, algorithm=algorithm))], SPACE, ACCURACY)


def test_a_run_without_an_optimization_key_is_accepted(make):
    run = make(trials=3, optimization_key=None)
    assert len(known_of([str(run)], SPACE, ACCURACY)) == 3


def test_population_based_training_refuses_other_runs(make):
    arguments = {"searcher": PopulationTraining(), "optimization_key": "accuracy"}
    with pytest.raises(InvalidArgument, match="warm_start: .* checkpoints of the same run"):
        experiment.run(None, train, BOUNDS, warm_start=make(trials=3), **arguments)


# Searches


def search(spark, call=experiment.evolutionary_search, **settings):
    return call(spark, train, BOUNDS, optimization_key="accuracy", **QUIET, **settings)


def test_an_evolution_starts_from_prior_observations_and_resumes_without_their_run(
    spark, make, logdir
):
    run = make(trials=12, failed=(3,))
    known = tried(experiment.load(run).trials)
    uncut = search(spark, popsize=4, generations=3, seed=5, warm_start=run, logdir=logdir)
    assert len(uncut.trials) == uncut.total == 16
    assert not [params for params in tried(uncut.trials) if params in known]
    manifest = json.loads(RunPaths(Path(uncut.logdir)).manifest.read_text())
    assert manifest["algorithm"]["warm_start"] == [str(run)]
    assert manifest["known"] == 12
    without = search(spark, popsize=4, generations=3, seed=5, logdir=logdir)
    assert tried(without.trials)[0] != tried(uncut.trials)[0]

    begun = search(spark, popsize=4, generations=1, seed=5, warm_start=run, logdir=logdir)
    with pytest.raises(InvalidArgument, match=r"warm_start was \[.*\], is left out"):
        search(spark, popsize=4, generations=3, resume=begun)
    with pytest.raises(InvalidArgument, match="warm_start was .*, is "):
        search(spark, popsize=4, generations=3, resume=begun, warm_start=uncut)
    shutil.rmtree(run)
    resumed = search(spark, popsize=4, generations=3, resume=begun, warm_start=run)
    assert tried(resumed.trials) == tried(uncut.trials)
    assert planned(resumed.logdir) == planned(uncut.logdir)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"trials":[{"params":{"units":9000}}]}', b"\xff"])
def test_damaged_prior_observations_of_a_run_are_refused(tmp_path, damage):
    algorithm = {"type": "random", "samples": 2, "warm_start": ["/gone"]}
    run = make_run(tmp_path, search=make_search(2, call="random_search"), algorithm=algorithm)
    RunPaths(run).known.write_bytes(damage)
    with pytest.raises(InvalidArgument, match="resume: .*, whose known.json cannot be used"):
        experiment.random_search(None, train, BOUNDS, samples=2, resume=run, warm_start="/gone")


def test_a_pipe_in_place_of_the_prior_observations_is_refused(tmp_path):
    run = make_run(tmp_path, search=make_search(2, call="random_search"))
    os.mkfifo(RunPaths(run).known)
    with pytest.raises(InvalidArgument, match="known.json cannot be used: .*no regular file"):
        known_of([], SPACE, Settings(resume=str(run)))


def test_points_are_tried_first_and_their_run_is_resumed(spark, logdir):
    points = [
        {"optimizer": "sgd", "units": 8, "learning_rate": 0.0003},
        {"units": 64},
    ]
    begun = search(spark, experiment.random_search, samples=3, seed=5, points=points, logdir=logdir)
    first, second, _ = tried(begun.trials)
    assert first == points[0]
    assert second["units"] == 64
    plain = search(spark, experiment.random_search, samples=1, seed=5, logdir=logdir)
    assert tried(plain.trials)[0] == tried(begun.trials)[2]
    resumed = search(spark, experiment.random_search, samples=4, points=points, resume=begun)
    assert tried(resumed.trials)[:3] == tried(begun.trials)
    # Drawn values may be given, as shown by `python -m experiment show`.
    shown = [first, second]
    again = search(spark, experiment.random_search, samples=5, points=shown, resume=begun)
    assert tried(again.trials)[:4] == tried(resumed.trials)
    with pytest.raises(InvalidArgument, match="points was .*, is "):
        search(spark, experiment.random_search, samples=5, points=points[:1], resume=begun)


def test_a_noisy_search_evaluates_its_best_configuration_again(spark, logdir):
    result = search(spark, popsize=4, generations=4, noisy=True, seed=1, logdir=logdir)
    assert len(result.trials) == 20
    best = result.best_mean
    assert best.params == result.best.params
    assert {trial.id for trial in best.trials} & {9, 19}
    manifest = json.loads(RunPaths(Path(result.logdir)).manifest.read_text())
    assert manifest["algorithm"]["noisy"] is True
