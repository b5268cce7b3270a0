"""Several objectives, from a trial's return value to the displays."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import cloudpickle
import pytest
from matplotlib import pyplot
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.util import tensor_util

import experiment
from experiment.cli.commands import main
from experiment.display.frames import Frame
from experiment.results.result import Result
from experiment.results.status import Status
from experiment.results.tables import front_in_words, table_of
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal import Journal
from experiment.run_files.loading import load, read_manifest
from experiment.run_files.manifest import Summary
from search.direction import Direction, Directions
from search.errors import ExperimentError, InvalidArgument
from search.evolution.nsga2 import NSGA2
from search.grid import PointSearch
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.messages import Attempt, Hello, Next
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import BOUNDS, make_coordinator, make_run, make_spec
from tests.search.fakes import started
from tests.spark_jobs.trial.events.reading import scalars, table_config, values

# Else each trial would import this module, with all that it tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

BOTH = {"accuracy": "max", "latency": "min"}
GOAL = Directions.parse(BOTH)
POINTS = [(0.5, 3.0), (0.9, 9.0), (0.5, 4.0), (0.7, 3.0), None, (0.9, 9.0)]
FRONT = [1, 5, 3]  # of these points, by descending accuracy


def outcome_at(number, point, **metrics):
    if point is None:
        return Outcome.failed(number, "user error", "ValueError: too large", "Traceback")
    scores = dict(zip(BOTH, point, strict=True))
    return Outcome(number, "finished", metrics=scores | metrics, seconds=2.5, values=scores)


def result_of(points, **arguments):
    outcomes = [outcome_at(number, point, loss=0.25) for number, point in enumerate(points)]
    trials = [TrialResult.of(Trial(o.trial, {"x": o.trial}), o, f"/{o.trial}") for o in outcomes]
    return Result(trials, GOAL, "/runs", **arguments)


def numbers(trials):
    return [trial.id for trial in trials]


def at_points(trial):
    return outcome_at(trial.id, POINTS[trial.id], loss=0.25)


@pytest.fixture
def root(tmp_path):
    """A run of six points with two objectives."""
    points = [{"x": number} for number in range(len(POINTS))]
    return make_run(
        tmp_path, points=points, direction=BOTH, outcome_of=at_points, optimization_key=None
    )


def nsga2(goal=GOAL, popsize=4, generations=2, seed=7):
    space = Space.of_bounds(BOUNDS)
    size = {"popsize": popsize, "generations": generations}
    searcher = started(NSGA2, space, seed, direction=goal, **size)
    return make_spec("evolutionary_search", searcher, space, algorithm={"type": "NSGA-II", **size})


def of_params(trial):
    point = (1 / trial.params["units"] + trial.params["learning_rate"], trial.params["units"])
    return outcome_at(trial.id, point)


# The result


def test_the_front_is_the_non_dominated_trials():
    result = result_of(POINTS)
    assert numbers(result.front) == FRONT
    assert result.direction == BOTH
    assert result.objectives == {"accuracy": Direction.MAX, "latency": Direction.MIN}
    assert result.objective is None
    assert [trial.value for trial in result.trials] == [None] * 6
    assert result.trials[3].values == {"accuracy": 0.7, "latency": 3.0}
    assert result.trials[4].values == {}
    assert result.trials[0].metrics == {"accuracy": 0.5, "latency": 3.0, "loss": 0.25}


def test_there_is_no_best_of_several_objectives():
    with pytest.raises(ExperimentError, match=r"'accuracy' and 'latency' at once: use \.front"):
        result_of(POINTS).best  # noqa: B018
    with pytest.raises(ExperimentError, match=r"\.by\('accuracy'\)\.best"):
        result_of([]).best  # noqa: B018


def test_each_single_objective_has_a_best():
    result = result_of(POINTS, total=9, problem="interrupted", space=Space.of_bounds({"x": [0, 9]}))
    accuracy, latency = result.by("accuracy"), result.by("latency")
    assert (accuracy.best.id, latency.best.id) == (1, 0)
    assert (accuracy.direction, latency.direction) == ("max", "min")
    assert latency.objective == "latency"
    assert [trial.value for trial in latency.trials] == [3.0, 9.0, 4.0, 3.0, None, 9.0]
    assert latency.trials[0].metrics == result.trials[0].metrics
    assert (latency.total, latency.problem, latency.space) == (9, "interrupted", result.space)
    assert latency.objectives == {}
    for other, of in (("loss", result), ("accuracy", accuracy)):
        with pytest.raises(InvalidArgument, match="objective"):
            of.by(other)


def test_the_ranking_begins_with_the_front_and_ends_with_trials_without_values():
    assert numbers(result_of(POINTS).ranking) == [*FRONT, 0, 2, 4]
    assert numbers(result_of([None, None]).ranking) == [0, 1]


def test_one_objective_has_a_front_of_the_best():
    outcomes = [Outcome(n, "finished", v, "a", {"a": v}) for n, v in enumerate([1.0, 3.0, 3.0])]
    trials = [TrialResult.of(Trial(o.trial, {}), o, "/") for o in outcomes]
    result = Result(trials, Direction.MAX, "/runs")
    assert result.front == [result.best] == [trials[1]]
    assert result.objectives == {}
    assert Result([], Direction.MAX, "/runs").front == []


def test_the_summary_has_the_size_of_the_front():
    result = result_of(POINTS)
    words = "front 3: accuracy 0.7 to 0.9, latency 3 to 9"
    assert result.summary() == f"6 trials, 1 failed, {words}"
    assert repr(result) == f"<Result: {result.summary()}; /runs>"
    assert front_in_words(result.front) == words
    assert front_in_words(result.front[:1]) == "front 1: accuracy 0.9, latency 9"
    assert result_of([None]).summary() == "1 trial, 1 failed"
    assert front_in_words([]) == ""


def test_a_table_marks_the_trials_on_the_front():
    result = result_of(POINTS)
    head, rows = table_of(result, result.ranking)
    assert head == ["trial", "accuracy ↑", "latency ↓", "front", "x", "loss", "seconds", "status"]
    assert rows[0] == ["1", "0.9", "9", "yes", "1", "0.25", "2.5", "finished"]
    assert rows[3] == ["0", "0.5", "3", "", "0", "0.25", "2.5", "finished"]
    assert rows[5][:5] == ["4", "", "", "", "4"]
    assert "accuracy ↑ latency ↓ front x" in " ".join(
        html.unescape(re.sub("<[^>]*>", " ", result._repr_html_())).split()
    )


def test_the_data_frame_marks_the_trials_on_the_front():
    frame = result_of(POINTS).to_pandas()
    assert list(frame.columns) == [
        "trial", "status", "on_front", "x", "metrics.accuracy", "metrics.latency", "metrics.loss",
        "seconds", "error", "logdir",
    ]  # fmt: skip
    assert list(frame.trial[frame.on_front]) == sorted(FRONT)
    assert list(frame["metrics.accuracy"][:2]) == [0.5, 0.9]
    assert math.isnan(frame["metrics.accuracy"][4])


def test_hyperparameters_named_like_a_column_do_not_replace_it():
    trial = TrialResult.of(Trial(0, {"on_front": 7, "value": 8}), outcome_at(0, (1.0, 2.0)), "/")
    frame = Result([trial], GOAL, "/runs").to_pandas()
    assert (frame["params.on_front"][0], frame["value"][0], frame["on_front"][0]) == (7, 8, True)


def test_the_front_is_drawn():
    result = result_of(POINTS)
    ax = result.plot_front()
    ax.figure.canvas.draw()
    others, front = [sorted(map(tuple, c.get_offsets())) for c in ax.collections]
    assert front == [(0.7, 3.0), (0.9, 9.0), (0.9, 9.0)]
    assert others == [(0.5, 3.0), (0.5, 4.0)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("accuracy ↑", "latency ↓")
    turned = result.plot_front("latency", ax=pyplot.figure().subplots())
    assert (turned.get_xlabel(), turned.get_ylabel()) == ("latency ↓", "accuracy ↑")
    result_of([None]).plot_front().figure.canvas.draw()
    assert result.by("latency").plot().get_ylabel() == "latency ↓"
    pyplot.close("all")


def test_an_impossible_plot_is_refused_and_leaves_no_figure():
    result = result_of(POINTS)
    with pytest.raises(InvalidArgument, match=r"use result.by\('accuracy'\).plot\(\), or result.p"):
        result.plot()
    with pytest.raises(InvalidArgument, match="across: expected 'accuracy' or 'latency', got 'lo"):
        result.plot_front("loss")
    with pytest.raises(InvalidArgument, match="up: expected 'accuracy' or 'latency', got 'loss'"):
        result.plot_front("latency", "loss")
    with pytest.raises(InvalidArgument, match="expected several objectives, got 'accuracy'"):
        result.by("accuracy").plot_front()
    assert pyplot.get_fignums() == []


# While it runs


@pytest.fixture
def start(tmp_path):
    """Start a coordinator of some points, with one slot that has said hello."""
    with Journal(tmp_path / "journal") as journal:

        def start(direction=GOAL, points=6):
            searcher = PointSearch([{"x": number} for number in range(points)])
            coordinator = make_coordinator(
                searcher, RunPaths(tmp_path), journal, direction=direction
            )
            coordinator.hello(Hello(slot="1.0.0", host="host"))
            return coordinator

        yield start


def run_to_the_end(coordinator, outcome_of):
    answer = coordinator.next(Next("1.0.0"))
    fronts = []
    while isinstance(answer, Attempt):
        outcome = outcome_of(answer.trial.id)
        answer = coordinator.next(Next("1.0.0", answer.number, outcome))
        fronts.append(numbers(coordinator.trials.status.front))
    return fronts


def test_the_front_grows_and_is_shown(start):
    coordinator = start()
    fronts = run_to_the_end(coordinator, lambda number: outcome_at(number, POINTS[number]))
    assert fronts == [[0], [1, 0], [1, 0], [1, 3], [1, 3], [1, 5, 3]]
    status = coordinator.trials.status
    assert (status.best, status.objective, status.failed) == (None, None, 1)
    assert Frame(name="digits", status=status, seconds=1.0, waiting="", now=1.0).line.endswith(
        "6/6 trials, 1 failed, took 1.0 s, front 3: accuracy 0.7 to 0.9, latency 3 to 9"
    )
    assert Frame(name="digits", status=Status(total=6), seconds=1.0, waiting="", now=1.0).best == ""


def test_a_line_per_trial_has_each_objective():
    trial = result_of(POINTS).trials[3]
    assert trial.score == "accuracy=0.7, latency=3"
    assert result_of(POINTS).trials[4].score == ""


@pytest.mark.parametrize(
    ("direction", "outcome", "message"),
    [
        (GOAL, Outcome(0, "finished", 1.0, "accuracy", {"accuracy": 1.0}), "got 'accuracy'"),
        (GOAL, Outcome(0, "finished", values={"accuracy": 1.0}), "got {'accuracy': 1.0}"),
        (GOAL, Outcome(0, "finished", values={"accuracy": 1.0, "loss": 2.0}), "got {'accuracy'"),
        (Direction.MAX, outcome_at(0, (0.5, 3.0)), "want one objective, got {'accuracy': 0.5"),
    ],
)
def test_an_outcome_with_other_objectives_than_the_search_has_fails(
    start, direction, outcome, message
):
    coordinator = start(direction, points=1)
    run_to_the_end(coordinator, lambda number: outcome)
    [result] = coordinator.trials.results
    assert (result.status, result.error.kind) == ("failed", "invalid value")
    assert message in result.error.message
    assert coordinator.trials.status.front == ()


def test_a_trial_that_was_stopped_and_returned_nothing_has_no_values(start):
    coordinator = start(points=1)
    run_to_the_end(coordinator, lambda number: Outcome(0, "stopped", metrics={"accuracy": 1.0}))
    [result] = coordinator.trials.results
    assert (result.status, result.values) == ("stopped", {})
    assert coordinator.trials.status.front == ()


# The run folder


def test_a_run_is_loaded_with_its_front(root):
    result = load(root)
    assert result.direction == BOTH
    assert numbers(result.front) == FRONT
    assert result.trials[3].values == {"accuracy": 0.7, "latency": 3.0}
    assert result.trials[3].metrics == {"accuracy": 0.7, "latency": 3.0, "loss": 0.25}
    assert result.summary() == "6 trials, 1 failed, front 3: accuracy 0.7 to 0.9, latency 3 to 9"
    assert list(read_manifest(RunPaths(root)).direction.items()) == list(BOTH.items())


def test_the_summary_has_the_front(root):
    summary = json.loads((root / "result.json").read_bytes())
    assert set(summary) == {*Summary.__struct_fields__, "front"}
    assert (summary["direction"], summary["best"]) == (BOTH, None)
    assert [entry["trial"] for entry in summary["front"]] == FRONT
    assert summary["front"][2]["values"] == {"accuracy": 0.7, "latency": 3.0}
    assert summary["front"][2]["params"] == {"x": 3}


def test_a_run_without_a_front_is_written_and_read(tmp_path):
    root = make_run(
        tmp_path, trials=2, direction=BOTH, outcome_of=lambda trial: outcome_at(trial.id, None)
    )
    assert json.loads((root / "result.json").read_bytes())["front"] == []
    assert load(root).front == []


@pytest.mark.parametrize("direction", [{}, {"a": "max"}, {"a": "max", "b": "up"}, "up", None])
def test_a_manifest_with_invalid_objectives_is_refused(root, direction):
    manifest = json.loads((root / "manifest.json").read_bytes())
    (root / "manifest.json").write_text(json.dumps(manifest | {"direction": direction}))
    with pytest.raises(InvalidArgument, match=r"whose manifest.json cannot be used"):
        load(root)


# The command line


@pytest.fixture
def printed(capsys):
    def printed(*arguments):
        assert main([str(argument) for argument in arguments]) == 0
        return " ".join(capsys.readouterr().out.split())

    return printed


def test_the_command_line_shows_the_front(root, printed):
    shown = printed("show", root)
    assert "so far 6 trials, 1 failed, front 3: accuracy 0.7 to 0.9, latency 3 to 9" in shown
    assert "arguments direction={'accuracy': 'max', 'latency': 'min'}, optimization" in shown
    table = shown.partition(" Front trial accuracy ↑ latency ↓ front x loss seconds status ")[2]
    assert table.startswith("1 0.9 9 yes 1 0.25 2.5 finished 5 0.9 9 yes 5 0.25 2.5 finished 3 0.7")
    assert table.index("Failed trials") < table.index("too large")
    assert " finished 6/6 1 front 3" in printed("list", root.parent)


def test_the_command_line_shows_the_objectives_of_a_trial(root, printed):
    shown = printed("show", root, 3)
    assert "accuracy 0.7 latency 3 on the front with 2 others hyperparameters x=3" in shown
    assert "metrics loss=0.25" in shown
    shown = printed("show", root, 0)
    assert "accuracy 0.5 latency 3 hyperparameters x=0" in shown
    assert "on the front" not in shown


def test_a_long_front_is_cut(tmp_path, printed):
    root = make_run(
        tmp_path,
        points=[{"x": number} for number in range(13)],
        direction=BOTH,
        outcome_of=lambda trial: outcome_at(trial.id, (trial.id, trial.id)),
    )
    assert " Front, 3 more not shown trial accuracy" in printed("show", root)


def test_a_run_with_several_objectives_is_exported(root, capsys):
    assert main(["export", str(root), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "value" not in rows[0]
    assert rows[3]["values"] == {"accuracy": 0.7, "latency": 3.0}
    assert [row["trial"] for row in rows if row["on_front"]] == sorted(FRONT)
    assert main(["export", str(root), "--csv"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith('"trial","status","on_front","x","metrics.accuracy"')
    assert first.startswith('0,"finished",False,0,0.5,3.0')


# TensorBoard


def layout_of(root):
    [layout] = [
        value
        for tag, _, value in values(root / "search")
        if tag == layout_metadata.CONFIG_SUMMARY_TAG
    ]
    return layout_pb2.Layout.FromString(tensor_util.make_ndarray(layout.tensor).item())


def test_tensorboard_gets_each_objective(root):
    infos = table_config(root / "search").metric_infos
    assert [(info.name.tag, info.display_name) for info in infos] == [
        ("objective/accuracy", "accuracy ↑"),
        ("objective/latency", "latency ↓"),
        ("objective/loss", "loss"),
    ]
    curves = scalars(root / "search")
    assert [size for _, size in curves["search/front"]] == [1, 2, 2, 2, 2, 3]
    best = [value for _, value in curves["search/best_so_far/accuracy"]]
    assert best == pytest.approx([0.5, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert [value for _, value in curves["search/best_so_far/latency"]] == [3.0] * 6
    assert "search/best_so_far" not in curves
    assert scalars(root / "trials" / "000003")["objective/latency"] == [(0, 3.0)]
    about = next(value for tag, _, value in values(root / "search") if tag.startswith("about"))
    assert b"&#x27;" not in tensor_util.make_ndarray(about.tensor).item()


def test_every_chart_of_several_objectives_has_its_curves(tmp_path):
    goal = Directions.parse({"a.b|c": "max", "latency": "min"})
    search = nsga2(goal)

    def outcome_of(trial):
        scores = {"a.b|c": trial.params["units"], "latency": trial.params["learning_rate"]}
        return Outcome(trial.id, "finished", metrics=scores, values=scores)

    root = make_run(tmp_path, search=search, direction=goal.to_json(), outcome_of=outcome_of)
    curves = set(scalars(root / "search"))
    charts = [chart for category in layout_of(root).category for chart in category.chart]
    for chart in charts:
        for tag in chart.multiline.tag:
            found = {curve for curve in curves if re.match(tag, curve)}
            assert found, chart.title
            curves -= found
    assert curves == set()
    assert {"Best a.b|c so far", "Best latency so far"} < {chart.title for chart in charts}


def test_the_curves_of_generations_are_those_of_the_front(tmp_path):
    search = nsga2()
    root = make_run(tmp_path, search=search, direction=BOTH, outcome_of=of_params)
    curves, logbook = scalars(root / "search"), search.searcher.logbook
    for name in ("front", "diversity"):
        assert curves[f"generation/{name}"] == [
            (record["gen"], pytest.approx(record[name])) for record in logbook
        ]
    assert [step for step, _ in curves["generation/acceptance"]] == [1, 2]
    columns = {info.name for info in table_config(root / "search").hparam_infos}
    assert columns == {*BOUNDS, "generation"}


# The calls, on Spark

LIGHT = {"preload": (), "verbose": 0, "parallelism": 2}
SPACE = {"units": [4, 64], "rate": [0.1, 0.001], "kind": ["a", "b"]}


def train(units, rate, kind):
    if units % 7 == 0:
        return {"accuracy": 0.5}
    if units % 11 == 0:
        return {"accuracy": math.nan, "latency": 1.0}
    accuracy = 1 - 1 / units - (math.log10(rate) + 2) ** 2 / 9
    return {"accuracy": accuracy, "latency": units * (2 if kind == "b" else 1), "loss": rate}


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The folder of the search that this module's tests share, and its result."""
    return {"logdir": tmp_path_factory.mktemp("searched")}


@pytest.fixture
def searched(spark, once):
    """A finished search for the front, with two concurrent trials in their own processes."""
    if "result" not in once:
        settings = {"direction": BOTH, "seed": 3, "logdir": once["logdir"], **LIGHT}
        once["result"] = experiment.evolutionary_search(
            spark, train, SPACE, popsize=5, generations=3, **settings
        )
    return once["result"]


def test_a_search_returns_the_front(searched):
    assert len(searched) == 20
    missing, nan = ([t for t in searched.trials if t.params["units"] % n == 0] for n in (7, 11))
    lacking = {*numbers(missing), *numbers(nan)}
    assert {*numbers(searched.failed)} == lacking
    assert not lacking & {*numbers(searched.front)}
    for trial in missing:
        assert trial.error.kind == "invalid value"
        assert trial.error.message.startswith("no 'latency' among the keys 'accuracy'")
    others = [trial for trial in searched.trials if trial.id not in lacking]
    assert all(t.values == {n: t.metrics[n] for n in BOTH} for t in others)
    assert searched.front == GOAL.front(others)
    assert len({repr(trial.params) for trial in searched.trials}) == 20


def test_a_search_is_loaded_unchanged(searched, printed):
    again = load(searched.logdir)
    assert again.trials == searched.trials
    assert (again.front, again.direction) == (searched.front, BOTH)
    shown = printed("show", searched.logdir)
    assert " Front trial accuracy ↑ latency ↓ front units rate kind loss seconds status " in shown
    assert "popsize=5, generations=3, crossover=0.7, mutation=None, generational=False" in shown
    folder = RunPaths(Path(searched.logdir)).search
    tags = [info.name.tag for info in table_config(folder).metric_infos]
    assert tags == ["objective/accuracy", "objective/latency", "objective/loss"]
    assert scalars(folder)["search/front"][-1] == (20, len(searched.front))


def test_a_search_of_the_front_is_resumed_with_more_generations(spark, searched, tmp_path):
    run = shutil.copytree(searched.logdir, tmp_path / "run")
    arguments = {"popsize": 5, "resume": run, **LIGHT}
    again = experiment.evolutionary_search(
        spark, train, SPACE, direction=BOTH, generations=4, **arguments
    )
    before, after = ([(t.id, t.params, t.values) for t in r.trials] for r in (searched, again))
    assert after[:20] == before
    assert len(again) == 25
    assert again.front == GOAL.front(again.trials)
    for other, got in (
        ("max", r"direction was \{'accuracy': 'max', 'latency': 'min'\}, is 'max'"),
        ({"accuracy": "max", "latency": "max"}, "direction was .* is {'accuracy': 'max', 'lat"),
        ({"latency": "min", "accuracy": "max"}, "direction was .* is {'latency': 'min', 'acc"),
    ):
        with pytest.raises(InvalidArgument, match=got):
            experiment.evolutionary_search(
                spark, train, SPACE, direction=other, generations=4, **arguments
            )


def test_a_search_begins_with_the_front_of_another(spark, searched, tmp_path):
    settings = {"direction": BOTH, "logdir": tmp_path, "seed": 5, **LIGHT, "isolation": "none"}
    result = experiment.run(
        spark,
        train,
        SPACE,
        searcher=experiment.NSGA2(popsize=4, generations=1),
        warm_start=searched,
        **settings,
    )
    assert len(result) == 8
    tried = {repr(trial.params) for trial in searched.trials}
    assert not tried & {repr(trial.params) for trial in result.trials}
    with pytest.raises(InvalidArgument, match="warm_start: .*direction was .*is 'max'"):
        experiment.random_search(
            spark, train, SPACE, warm_start=searched, **settings | {"direction": "max"}
        )


def test_grids_and_random_searches_take_several_objectives(spark, tmp_path):
    def train(a):
        return {"accuracy": a, "latency": a * a}

    settings = {"direction": BOTH, "logdir": tmp_path, **LIGHT, "isolation": "none"}
    result = experiment.launch(spark, train, {"a": [-1, 0, 1]}, **settings)
    assert numbers(result.front) == [2, 1]
    result = experiment.launch(spark, train, [{"a": 2}, {"a": 1}], **settings)
    assert numbers(result.front) == [0, 1]
    result = experiment.random_search(spark, train, {"a": [0.0, 1.0]}, samples=3, **settings)
    assert len(result.front) == 3


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("population_based_training", {}, "direction: expected 'max' or 'min', of one objective"),
        ("evolutionary_search", {"variant": "rand1bin"}, "variant: expected the default with"),
        ("evolutionary_search", {"noisy": True}, "noisy: expected the default with"),
        ("evolutionary_search", {"mutation": (0.5, 1.0)}, r"mutation: expected a number of"),
        ("evolutionary_search", {"target": 0.5}, "target: expected None with several objectives"),
        ("random_search", {"optimization_key": "accuracy"}, "optimization_key: expected None with"),
        ("random_search", {"stopping": experiment.Patience(3)}, "stopping: expected None with sev"),
    ],
)  # fmt: skip
def test_settings_excluded_by_several_objectives_are_refused_before_spark_is_used(
    call, arguments, message
):
    with pytest.raises(InvalidArgument, match=message):
        getattr(experiment, call)(None, train, SPACE, direction=BOTH, **arguments)


def test_the_algorithm_for_several_objectives_needs_several():
    with pytest.raises(InvalidArgument, match="direction: expected several objectives"):
        experiment.run(None, train, SPACE, searcher=experiment.NSGA2(), direction="max")
