import math
import re
import resource
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.util import tensor_util

from experiment.display.board import Board
from experiment.display.description import description, failure_description
from experiment.results.status import Status
from experiment.results.trial_result import TrialResult
from experiment.run_files.loading import load, read_manifest
from search.algorithms import Evolution
from search.direction import Direction
from search.evolution.population_based import PopulationTraining
from search.grid import GridSearch
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import make_manifest, make_run, make_search, make_spec
from tests.properties import examples
from tests.search.fakes import started
from tests.spark_jobs.trial.events.reading import histograms, scalars, table_config, values


def grid(**lists):
    space = Space.of_grid(lists)
    return make_spec("launch", GridSearch(space), space)


def evolution(popsize=4, generations=2, direction=Direction.MAX, generational=True, **domains):
    space = Space(domains)
    searcher = started(
        Evolution,
        space,
        3,
        direction=direction,
        generational=generational,
        popsize=popsize,
        generations=generations,
    )
    return make_spec("evolutionary_search", searcher, space)


def columns_of(folder, search):
    """Return the columns of a search's table."""
    board = Board(RunPaths(folder), search, Direction.MAX, make_manifest(search))
    board.close("accuracy", Status(total=1))
    return {info.name: info for info in table_config(folder / "search").hparam_infos}


def texts(root):
    """Return the texts of the search's text page: tag to Markdown."""
    return {
        tag: tensor_util.make_ndarray(value.tensor).item().decode()
        for tag, _, value in values(root / "search")
        if value.metadata.plugin_data.plugin_name == "text"
    }


def layout(root):
    [value] = [
        value
        for tag, _, value in values(root / "search")
        if tag == layout_metadata.CONFIG_SUMMARY_TAG
    ]
    return layout_pb2.Layout.FromString(tensor_util.make_ndarray(value.tensor).item())


def statuses(folder):
    return [
        metadata.parse_session_end_info_plugin_data(value.metadata.plugin_data.content).status
        for tag, _, value in values(folder)
        if tag == metadata.SESSION_END_INFO_TAG
    ]


def curve(root, tag):
    return scalars(root / "search")[tag]


@pytest.mark.slow
@pytest.mark.contract
def test_the_steps_of_a_search_s_curves_are_trials_done(tmp_path):
    root = make_run(tmp_path, trials=5, failed=(1, 3))
    assert curve(root, "search/done") == [(n, n) for n in range(1, 6)]
    assert curve(root, "search/failed") == [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert curve(root, "search/slots_busy") == [*((n, 1) for n in range(1, 6)), (5, 0)]
    best = [0.001, 0.001, 0.003, 0.003, 0.005]
    assert curve(root, "search/best_so_far") == [
        (n, pytest.approx(value)) for n, value in enumerate(best, start=1)
    ]


def test_the_best_of_a_minimum_is_the_lowest(tmp_path):
    scores = [3.0, 5.0, 1.0, 2.0]

    def outcome_of(trial):
        return Outcome(trial.id, "finished", scores[trial.id], "loss")

    root = make_run(tmp_path, trials=4, direction="min", outcome_of=outcome_of)
    assert [best for _, best in curve(root, "search/best_so_far")] == [3, 3, 1, 1]


def test_there_is_no_best_before_the_first_value(tmp_path):
    root = make_run(tmp_path, trials=4, failed=(0, 1))
    assert [step for step, _ in curve(root, "search/best_so_far")] == [3, 4]
    none = make_run(tmp_path, trials=2, failed=(0, 1))
    assert "search/best_so_far" not in scalars(none / "search")


def test_busy_slots_are_counted(tmp_path):
    root = make_run(tmp_path, trials=6, running=(1, 3), failed=(), ended=False)
    assert curve(root, "search/slots_busy") == [(1, 1), (2, 2), (3, 3), (4, 3), (4, 0)]


def test_cancelled_trials_add_no_point_to_the_curves(tmp_path):
    root = make_run(tmp_path, trials=4, running=(1, 2), failed=())
    assert curve(root, "search/done") == [(1, 1), (2, 2), (3, 2), (4, 2)]
    assert curve(root, "search/failed") == [(n, 0) for n in range(1, 5)]
    assert curve(root, "search/slots_busy") == [(1, 1), (2, 3), (4, 0)]


def test_the_rows_of_cancelled_trials_are_ended(tmp_path):
    root = make_run(tmp_path, trials=4, running=(1,), failed=(2,))
    assert statuses(root / "trials" / "000001") == [api_pb2.STATUS_FAILURE]
    assert statuses(root / "trials" / "000002") == [api_pb2.STATUS_FAILURE]
    assert statuses(root / "trials" / "000003") == [api_pb2.STATUS_SUCCESS]


def test_a_cancelled_trial_of_another_host_is_ended_in_a_file_of_the_drivers_own(tmp_path):
    search, folder = make_search(2), tmp_path / "trials" / "000001"
    board = Board(RunPaths(tmp_path), search, Direction.MAX, make_manifest(search))
    cancelled = TrialResult(
        id=1,
        params={},
        value=None,
        metrics={},
        status="cancelled",
        error=None,
        seconds=0.0,
        logdir=str(folder),
    )
    board.ended(cancelled, Status(total=2, results=[cancelled], ended=1, failed=0, cancelled=1))
    board.close("accuracy", Status(total=1))
    assert [path.name for path in folder.iterdir()] == ["events.out.tfevents.trial.driver"]
    assert statuses(folder) == [api_pb2.STATUS_FAILURE]
    assert curve(tmp_path, "search/done") == [(1, 0)]


def test_a_retried_trial_counts_once(tmp_path):
    root = make_run(tmp_path, trials=3, lost=(1,), failed=())
    assert curve(root, "search/done") == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("generational", [True, False])
@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_curves_of_generations_are_the_logbook(tmp_path, direction, generational):
    toward = Direction(direction)
    search = evolution(4, 3, toward, generational, x=Float(-1, 1), y=Integer(1, 9))

    def outcome_of(trial):
        if trial.id == 5:
            return Outcome.failed(trial.id, "user error", "no")
        return Outcome(trial.id, "finished", trial.params["x"] ** 2, "a")

    root = make_run(tmp_path, search=search, direction=direction, outcome_of=outcome_of)
    curves = scalars(root / "search")
    logbook = search.searcher.logbook
    for name in ("best", "mean", "std", "diversity"):
        assert curves[f"generation/{name}"] == [
            (record["gen"], pytest.approx(record[name])) for record in logbook
        ]
    assert curves["generation/acceptance"] == [
        (record["gen"], record["acceptance"]) for record in logbook[1:]
    ]
    assert curves["spread/low"] == [
        (record["gen"], pytest.approx(record["mean"] - record["std"])) for record in logbook
    ]
    assert curves["spread/high"] == [
        (record["gen"], pytest.approx(record["mean"] + record["std"])) for record in logbook
    ]


def test_a_generation_without_a_value_has_only_known_statistics(tmp_path):
    root = make_run(tmp_path, trials=8, generations=True, failed=range(8))
    curves = scalars(root / "search")
    assert [step for step, _ in curves["generation/diversity"]] == [0, 1]
    assert curves["generation/acceptance"] == [(1, 1.0)]
    assert not {"generation/best", "generation/mean", "spread/low", "spread/high"} & set(curves)
    assert len(histograms(root / "search")["population/units"]) == 2


def test_a_search_without_generations_has_no_curves_of_them(tmp_path):
    root = make_run(tmp_path, trials=4)
    assert {tag.split("/")[0] for tag in scalars(root / "search")} == {"search"}
    assert histograms(root / "search") == {}


def test_a_generation_that_ended_without_an_outcome_is_written_at_the_end(tmp_path):
    search = evolution(4, 3, Direction.MAX, False, x=Float(-1, 1))
    board = Board(RunPaths(tmp_path), search, Direction.MAX, make_manifest(search))
    for number in range(4):
        search.searcher.tell(Outcome(search.searcher.ask().id, "finished", float(number), "a"))
    board.close("a", Status(total=4))
    assert curve(tmp_path, "generation/best") == [(0, 3.0)]


def test_an_incomplete_generation_is_not_written(tmp_path):
    root = make_run(tmp_path, trials=12, generations=True, running=(9,), ended=False)
    curves = scalars(root / "search")
    assert [step for step, _ in curves["generation/best"]] == [0, 1]
    assert [step for step, _ in histograms(root / "search")["population/units"]] == [0, 1]


def test_a_generation_that_cancelled_trials_complete_is_not_written(tmp_path):
    root = make_run(tmp_path, trials=12, generations=True, running=(11,))
    assert [step for step, _ in scalars(root / "search")["generation/best"]] == [0, 1]


def test_each_generation_has_a_histogram_of_each_hyperparameter(tmp_path):
    root = make_run(tmp_path, trials=12, generations=True, failed=())
    read = histograms(root / "search")
    assert sorted(read) == [
        "population/learning_rate",
        "population/optimizer",
        "population/units",
    ]
    for points in read.values():
        assert [step for step, _ in points] == [0, 1, 2]
        assert [rows[:, 2].sum() for _, rows in points] == [4, 4, 4]


def axis(tmp_path, domain):
    """Return the ends of the first population's histogram, its members, and the description."""
    search = evolution(5, 1, x=domain, y=Float(0.0, 1.0))  # or there are too few configurations
    root = make_run(tmp_path, search=search, failed=())
    [_, rows] = histograms(root / "search")["population/x"][0]
    assert rows[:, 2].sum() == 5
    members = [trial.params["x"] for trial in load(root).trials[:5]]
    [description, _] = [
        value.metadata.summary_description
        for tag, _, value in values(root / "search")
        if tag == "population/x"
    ]
    return (rows[0, 0], rows[-1, 1]), members, description


@pytest.mark.parametrize(
    "domain",
    [
        Float(-2.5, 7.5),
        Float(3.0, 3.0),
        Float(-sys.float_info.max / 8, sys.float_info.max / 8),
        Integer(-3, 90),
        Integer(-(2**53), 2**53),
        Choice([16, 32, 64]),
        Choice([0.5, 1, 2.5]),
        Choice(range(0, 100, 7)),
        Choice(range(10**9)),
        Choice(range(2**80, 2**80 + 2**62)),
    ],
    ids=repr,
)
def test_numbers_are_shown_as_they_are(tmp_path, domain):
    ends, members, description = axis(tmp_path, domain)
    assert ends == pytest.approx((min(members), max(members)))
    assert description == ""


@pytest.mark.parametrize(
    "domain", [Float(1e-5, 0.1, log=True), Integer(1, 10**6, log=True)], ids=repr
)
def test_a_domain_on_a_log_scale_is_shown_on_a_log_scale(tmp_path, domain):
    ends, members, description = axis(tmp_path, domain)
    assert ends == pytest.approx((math.log10(min(members)), math.log10(max(members))))
    assert description == "log10"


@pytest.mark.parametrize(
    ("choice", "description"),
    [
        (["adam", "sgd", "b"], "0: adam, 1: sgd, 2: b"),
        ([True, False], "0: True, 1: False"),
        ([1, "1", None, 1.0], "0: 1, 1: 1, 2: None, 3: 1"),
        ([(8, 8), (16,)], "0: (8, 8), 1: (16,)"),
        ([math.nan, math.inf, 5.0], "0: nan, 1: inf, 2: 5"),
        ([1, 10**400], f"0: 1, 1: 1{'0' * 56}\\..."),
        (["<b>", "a|b*", "x" * 90], f"0: &lt;b&gt;, 1: a&#124;b\\*, 2: {'x' * 28}...{'x' * 29}"),
    ],
    ids=lambda case: repr(case)[:30],
)
def test_choices_that_are_no_numbers_are_shown_by_their_index(tmp_path, choice, description):
    ends, members, said = axis(tmp_path, Choice(choice))
    places = [list(map(repr, choice)).index(repr(member)) for member in members]
    assert ends == (min(places), max(places))
    assert said == description


def test_the_description_of_a_long_choice_is_cut(tmp_path):
    _, _, description = axis(tmp_path, Choice([f"choice {n}" for n in range(10**4)]))
    assert description.endswith("99: choice 99")


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
@example(-sys.float_info.max, sys.float_info.max)
@example(0.0, 5e-324)
@examples(15)
def test_any_two_bounds_can_be_shown(tmp_path_factory, low, high):
    root = make_run(tmp_path_factory.mktemp("run"), search=evolution(4, 1, x=Float(low, high)))
    for _, rows in histograms(root / "search")["population/x"]:
        assert np.isfinite(rows).all()


def test_hyperparameters_of_any_name_can_be_shown(tmp_path):
    names = ["größe", "a/b", "a b=c,d'\"", "..", "generation", "x" * 3000, "学习率", "<script>"]
    search = evolution(4, 1, **dict.fromkeys(names, Integer(1, 9)))
    root = make_run(tmp_path, search=search)
    assert set(histograms(root / "search")) == {f"population/{name}" for name in names}
    assert set(names) == {info.name for info in table_config(root / "search").hparam_infos}


def test_columns_of_any_kind_of_value_can_be_shown(tmp_path):
    columns = columns_of(
        tmp_path,
        grid(
            numbers=[2.5, 1],
            whole=[3, 1, 2],
            texts=["a", "b"],
            flags=[True, False],
            tuples=[(1, 2), (3,)],
            mixed=[None, 0.5, "x"],
            large=[1, 2**60],
            huge=[1.0, 10**400],
            infinite=[1.0, math.inf],
            steps=range(0, 10**17, 10**15),
            many=range(10**9),
            long=[str(n) for n in range(101)],
        ),
    )

    def shown(name):
        return list(columns[name].domain_discrete)

    assert shown("numbers") == [1.0, 2.5]
    assert shown("whole") == [1, 2, 3]
    assert shown("texts") == ["a", "b"]
    assert shown("flags") == [False, True]
    assert shown("tuples") == ["(1, 2)", "(3,)"]
    assert shown("mixed") == ["0.5", "None", "x"]
    assert shown("large") == ["1", str(2**60)]
    assert shown("huge") == ["1.0", "1" + "0" * 400]
    assert shown("infinite") == ["1.0", "inf"]
    assert shown("steps") == sorted(str(n) for n in range(0, 10**17, 10**15))
    assert shown("many") == shown("long") == []


def test_columns_have_the_bounds_of_their_domains(tmp_path):
    search = evolution(4, 5, rate=Float(1e-5, 0.1, log=True), units=Integer(8, 64))
    columns = columns_of(tmp_path, search)
    assert list(columns) == ["rate", "units", "generation"]
    ends = {
        name: (info.domain_interval.min_value, info.domain_interval.max_value)
        for name, info in columns.items()
    }
    assert ends == {"rate": (1e-5, 0.1), "units": (8, 64), "generation": (0, 5)}


def test_a_hyperparameter_called_generation_is_the_users(tmp_path):
    columns = columns_of(tmp_path, evolution(4, 2, generation=Float(0.0, 9.0)))
    assert list(columns) == ["generation"]
    assert columns["generation"].domain_interval.max_value == 9.0


def test_columns_have_the_hyperparameters_that_differ(tmp_path):
    fixed = columns_of(tmp_path / "a", grid(a=[1, 2], b=["x"], c=range(3)))
    assert {name: info.differs for name, info in fixed.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }
    points = make_search(0, points=[{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}])
    columns = columns_of(tmp_path / "b", points)
    assert {name: info.differs for name, info in columns.items()} == {
        "a": False,
        "b": True,
        "c": True,
    }


def test_the_metrics_of_the_table_are_the_objective_and_two_others(tmp_path):
    def outcome_of(trial):
        metrics = {"loss": 1.0, "accuracy": 0.5, "precision": 0.1, "recall": 0.2}
        return Outcome(trial.id, "finished", 0.5, "accuracy", metrics)

    for direction, arrow in (("max", "↑"), ("min", "↓")):
        root = make_run(tmp_path, trials=2, direction=direction, outcome_of=outcome_of)
        infos = table_config(root / "search").metric_infos
        assert [(info.name.tag, info.display_name) for info in infos] == [
            ("objective/accuracy", f"accuracy {arrow}"),
            ("objective/loss", "loss"),
            ("objective/precision", "precision"),
        ]


def test_the_table_is_configured_once_by_the_first_trial_that_finishes(tmp_path):
    root = make_run(tmp_path, trials=5, failed=(0, 1))
    infos = table_config(root / "search").metric_infos  # raises if there are two
    assert [info.display_name for info in infos] == ["accuracy ↑", "loss"]


@pytest.mark.parametrize(("key", "shown"), [("score", "score ↑"), (None, "metric ↑")])
def test_a_search_without_a_finished_trial_has_a_table_too(tmp_path, key, shown):
    root = make_run(tmp_path, trials=3, failed=range(3), optimization_key=key)
    config = table_config(root / "search")
    assert [info.display_name for info in config.metric_infos] == [shown]
    assert [info.name for info in config.hparam_infos] == ["learning_rate", "optimizer"]


def test_a_search_without_trials_has_a_table_a_description_and_a_layout(tmp_path):
    search = make_search(3)
    manifest = make_manifest(search)
    Board(RunPaths(tmp_path), search, Direction.MAX, manifest).close(None, Status(total=3))
    assert [info.display_name for info in table_config(tmp_path / "search").metric_infos] == [
        "metric ↑"
    ]
    assert texts(tmp_path) == {"about": description(manifest)}
    assert len(layout(tmp_path).category) == 1


def test_a_board_that_cannot_write_its_last_events_has_closed_its_file(tmp_path):
    search = make_search(3)
    board = Board(RunPaths(tmp_path), search, Direction.MAX, make_manifest(search))
    (events,) = (tmp_path / "search").iterdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (events.stat().st_size, limits[1]))  # a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            board.close(None, Status(total=3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert events.resolve() not in [Path(file.path) for file in psutil.Process().open_files()]


def test_the_description_of_the_run_is_written_at_the_start(tmp_path):
    search = make_search(3)
    manifest = make_manifest(search, name="größe | <b>")
    board = Board(RunPaths(tmp_path), search, Direction.MAX, manifest)
    assert texts(tmp_path) == {"about": description(manifest)}
    board.close(None, Status(total=3))
    root = make_run(tmp_path, trials=3, failed=())
    assert texts(root) == {"about": description(read_manifest(RunPaths(root)))}


def test_each_failure_has_a_description_named_after_its_folder(tmp_path):
    root = make_run(tmp_path, trials=5, failed=(1, 3), lost=(3,), running=(4,))
    one, other = load(root).failed
    assert {tag: text for tag, text in texts(root).items() if tag != "about"} == {
        "failed/000001": failure_description(one),
        "failed/000003-2": failure_description(other),
    }


def test_only_the_first_hundred_failures_have_a_description(tmp_path):
    root = make_run(tmp_path, trials=103, failed=range(103))
    assert list(texts(root)) == ["about", *(f"failed/{n:06d}" for n in range(100))]


@pytest.mark.parametrize("generations", [False, True])
def test_every_chart_of_the_layout_has_its_curves_and_every_curve_a_chart(tmp_path, generations):
    root = make_run(tmp_path, trials=8, generations=generations)
    tags = set(scalars(root / "search"))
    charted = set()
    for category in layout(root).category:
        for chart in category.chart:
            assert chart.title
            for pattern in chart.multiline.tag:
                matching = {tag for tag in tags if re.match(pattern, tag)}
                assert matching
                charted |= matching
            for series in chart.margin.series:
                assert {series.value, series.lower, series.upper} <= tags
                charted |= {series.value, series.lower, series.upper}
    assert tags - charted == ({"generation/std"} if generations else set())


def test_a_search_without_a_barrier_has_the_same_pages(tmp_path):
    pages = []
    for generational in (True, False):
        search = evolution(generational=generational, x=Float(0, 1), units=Integer(1, 64))
        root = make_run(tmp_path / str(generational), search=search, failed=())
        populations = {
            tag: [step for step, _ in values] for tag, values in histograms(root / "search").items()
        }
        pages.append((set(scalars(root / "search")), populations, layout(root)))
    assert pages[0] == pages[1]
    assert pages[0][1] == {"population/x": [0, 1, 2], "population/units": [0, 1, 2]}


def test_population_based_training_has_its_generations_too(tmp_path):
    space = Space.of_bounds({"x": [0.0, 1.0]})
    searcher = started(PopulationTraining, space, 3, popsize=4, generations=2)
    search = make_spec("population_based_training", searcher, space)
    root = make_run(tmp_path, search=search, failed=())
    tags = scalars(root / "search")
    assert [step for step, _ in tags["generation/copied"]] == [1, 2]
    assert "generation/acceptance" not in tags
    patterns = [p for c in layout(root).category for chart in c.chart for p in chart.multiline.tag]
    assert all(any(re.match(pattern, tag) for tag in tags) for pattern in patterns)


def test_the_layout_has_the_population_first(tmp_path):
    root = make_run(tmp_path, trials=8, generations=True)
    assert [category.title for category in layout(root).category] == [
        "Population, by generation",
        "Search, by trials done",
    ]
    plain = make_run(tmp_path, trials=8)
    assert [category.title for category in layout(plain).category] == ["Search, by trials done"]


def test_scores_too_large_for_float32_do_not_end_the_search(tmp_path):
    def outcome_of(trial):
        return Outcome(trial.id, "finished", [1e300, -1e300][trial.id % 2], "a")

    search = evolution(4, 1, x=Float(0, 1))
    root = make_run(tmp_path, search=search, outcome_of=outcome_of)
    assert curve(root, "search/best_so_far")[0] == (1, math.inf)
    assert len(load(root)) == 8


def stopped_at_first(trial):
    if trial.id == 0:
        return Outcome(
            0, "stopped", 5.0, "loss", {"loss": 5.0}, seconds=1.0, reason="step 3: bad", step=3
        )
    return Outcome(trial.id, "finished", 0.5, "metric", {"metric": 0.5}, seconds=1.0)


@pytest.mark.filterwarnings("ignore:trials report")
@pytest.mark.parametrize(
    ("key", "trials", "shown"),
    [
        (None, 3, ["metric ↑", "last step"]),
        (None, 1, ["loss ↑", "last step"]),
        ("loss", 3, ["loss ↑", "last step"]),
    ],
)
def test_the_table_has_the_name_of_the_returned_metric(tmp_path, key, trials, shown):
    root = make_run(
        tmp_path,
        trials=trials,
        outcome_of=stopped_at_first,
        optimization_key=key,
        stopping=[{"type": "Patience", "patience": 3, "min_delta": 0.0}],
    )
    infos = table_config(root / "search").metric_infos
    assert [info.display_name for info in infos] == shown
    assert scalars(root / "trials" / "000000")["trial/last_step"] == [(0, 3)]
    assert texts_of(root / "trials" / "000000") == ["    stopped at step 3: bad"]
    assert statuses(root / "trials" / "000000") == [api_pb2.STATUS_SUCCESS]


def texts_of(folder):
    return [
        tensor_util.make_ndarray(value.tensor).item().decode()
        for tag, _, value in values(folder)
        if tag == "stopped"
    ]
