import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.result import Result, SearchFailed, results_of_groups
from experiment.results.tables import table_of
from experiment.results.text import hyperparameter, printable
from experiment.results.trial_result import TrialResult
from search.direction import Direction, read_direction
from search.errors import ExperimentError, InvalidArgument
from search.space.spaces import Space
from search.trial import Failure, Outcome, Trial
from tests.experiment.results.html_reader import Reader, text

FIRST, LAST = ["trial", "status", "value"], ["seconds", "error", "logdir"]
FIXED = FIRST + LAST


def finished(number, value, params=None, metrics=None):
    metrics = {"metric": value} if metrics is None else metrics
    outcome = Outcome(number, "finished", value, "metric", metrics, seconds=1.5)
    return TrialResult.of(Trial(number, params or {}), outcome, f"/runs/{number}")


def failed(number, params=None, message="ValueError: no"):
    outcome = Outcome.failed(number, "user error", message, "Traceback", 0.5)
    return TrialResult.of(Trial(number, params or {}), outcome, f"/runs/{number}")


def maximum(*trials):
    return Result(trials, Direction.MAX, "/runs")


@pytest.mark.parametrize(("direction", "best"), [(Direction.MAX, 2), (Direction.MIN, 1)])
def test_best_follows_the_direction(direction, best):
    trials = [finished(0, 0.5), finished(1, -3.0), finished(2, 4.0), failed(3)]
    result = Result(trials, direction, "/runs")
    assert result.best.id == best
    assert result.direction == direction.value


@pytest.mark.parametrize("direction", list(Direction))
def test_among_equals_the_lowest_id_is_best_in_any_order(direction):
    trials = [finished(7, 1.0), finished(3, 1.0), failed(0), finished(5, 1.0)]
    assert Result(trials, direction, "/runs").best.id == 3


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("trials", [[], [failed(0)], [failed(0), failed(1)]], ids=len)
def test_there_is_no_best_when_none_finished(direction, trials):
    assert Result(trials, direction, "/runs").best is None


def test_the_best_mean_is_of_configurations_evaluated_several_times():
    a, b = {"x": (1, [2])}, {"x": (1, [3])}
    trials = [
        finished(0, 9.0, {"x": 0}),
        finished(1, 4.0, a),
        finished(2, 1.0, b),
        finished(3, 0.0, a),
        finished(4, 2.0, b),
        failed(5, b),
        failed(6, a),
    ]
    best = maximum(*trials).best_mean
    assert (best.params, best.value) == (a, 2.0)
    assert [trial.id for trial in best.trials] == [1, 3]
    least = Result(trials, Direction.MIN, "/runs").best_mean
    assert (least.params, least.value) == (b, 1.5)
    assert maximum(*trials[:3]).best_mean is None


def test_the_order_of_hyperparameters_makes_no_other_configuration():
    trials = [finished(0, 1.0, {"x": 1, "y": 2}), finished(1, 2.0, {"y": 2, "x": 1})]
    assert maximum(*trials).best_mean.value == 1.5
    assert maximum(*trials, finished(2, 9.0, {"x": 1.0, "y": 2})).best_mean.value == 1.5


def test_the_best_mean_is_of_trainings_of_the_same_length():
    a, b = {"x": 1}, {"x": 2}
    trials = [
        replace(finished(number, value, params), max_steps=steps)
        for number, (params, value, steps) in enumerate(
            [(a, 0.6, 1), (b, 0.79, 1), (a, 0.95, 3), (b, 0.81, 3)]
        )
    ]
    assert maximum(*trials).best_mean is None
    best = maximum(*trials, replace(finished(4, 0.85, a), max_steps=3)).best_mean
    assert (best.params, best.value) == (a, pytest.approx(0.9))
    assert [trial.id for trial in best.trials] == [2, 4]


def test_the_mean_of_huge_values_does_not_overflow():
    best = maximum(finished(0, 1.5e308, {"x": 0}), finished(1, 1.7e308, {"x": 0})).best_mean
    assert best.value == 1.6e308


def test_a_summary_says_that_the_target_was_reached():
    trials = [finished(0, 0.5), finished(1, 0.25)]
    for direction, target, reached in [("max", 0.5, True), ("max", 0.6, False), ("min", 0.3, True)]:
        result = Result(trials, Direction(direction), "/runs", total=9, target=target)
        assert result.target_reached == reached
        assert (f"2 of 9 trials, target {target} reached, best" in result.summary()) == reached
    assert not maximum(*trials).target_reached


def test_trials_are_in_order_of_id_and_counted():
    result = maximum(finished(2, 1.0), failed(0), finished(1, 2.0))
    assert [trial.id for trial in result.trials] == [0, 1, 2]
    assert len(result) == 3


def test_the_result_keeps_its_own_list():
    trials = [finished(0, 1.0)]
    result = Result(trials, Direction.MAX, "/runs")
    trials.append(finished(1, 2.0))
    assert len(result) == 1


def test_failed_holds_the_failed_trials_in_order():
    stopped = TrialResult(
        id=4,
        params={},
        value=None,
        metrics={},
        status="stopped",
        error=None,
        seconds=0.0,
        logdir="/runs/4",
    )
    result = maximum(failed(3), finished(1, 1.0), failed(0), stopped)
    assert [trial.id for trial in result.failed] == [0, 3]


def test_a_trial_result_has_its_outcome():
    trial = failed(3, {"lr": 0.1})
    assert trial.params == {"lr": 0.1}
    assert (trial.value, trial.metrics, trial.status) == (None, {}, "failed")
    assert trial.error == Failure(
        kind="user error", message="ValueError: no", traceback="Traceback"
    )
    assert (trial.seconds, trial.logdir) == (0.5, "/runs/3")


def test_a_trial_does_not_share_its_parameters_with_the_searcher():
    params = {"lr": 0.1}
    trial = finished(0, 1.0, params)
    params["lr"] = 0.2
    assert trial.params == {"lr": 0.1}


def test_the_table_has_a_row_per_trial_and_failed_ones_too():
    table = maximum(
        failed(1, {"lr": 0.2, "layers": (8, 8)}),
        finished(0, 0.5, {"lr": 0.1, "layers": (4,)}, {"accuracy": 0.5, "loss": 2.0}),
    ).to_pandas()
    assert list(table.columns) == [
        *FIRST,
        "lr",
        "layers",
        "metrics.accuracy",
        "metrics.loss",
        *LAST,
    ]
    assert list(table.trial) == [0, 1]
    assert list(table.status) == ["finished", "failed"]
    assert table.value[0] == 0.5
    assert math.isnan(table.value[1])
    assert list(table.seconds) == [1.5, 0.5]
    assert list(table.error) == [None, "ValueError: no"]
    assert list(table.logdir) == ["/runs/0", "/runs/1"]
    assert list(table.lr) == [0.1, 0.2]
    assert list(table.layers) == [(4,), (8, 8)]
    assert table["metrics.loss"][0] == 2.0
    assert math.isnan(table["metrics.loss"][1])


@pytest.mark.parametrize("name", FIXED)
def test_a_parameter_called_like_a_fixed_column_is_prefixed(name):
    table = maximum(finished(0, 0.5, {name: "mine", "lr": 0.1})).to_pandas()
    assert list(table.columns) == [*FIRST, f"params.{name}", "lr", "metrics.metric", *LAST]
    assert table[f"params.{name}"][0] == "mine"
    assert table[name][0] != "mine"


def test_a_parameter_called_like_a_metric_is_prefixed():
    trial = finished(0, 0.5, {"metrics.loss": "mine"}, {"loss": 2.0})
    table = maximum(trial).to_pandas()
    assert list(table.columns) == [*FIRST, "params.metrics.loss", "metrics.loss", *LAST]
    assert table["metrics.loss"][0] == 2.0
    assert table["params.metrics.loss"][0] == "mine"


def test_a_metric_may_be_called_like_a_parameter():
    table = maximum(finished(0, 0.5, {"lr": 0.1}, {"lr": 9.0})).to_pandas()
    assert list(table.columns) == [*FIRST, "lr", "metrics.lr", *LAST]
    assert (table.lr[0], table["metrics.lr"][0]) == (0.1, 9.0)


def test_parameters_come_before_metrics_where_trials_differ_in_both():
    table = maximum(
        finished(0, 1.0, {"a": 1}, {"x": 1.0}), finished(1, 2.0, {"b": 2}, {"y": 2.0})
    ).to_pandas()
    assert list(table.columns) == [*FIRST, "a", "b", "metrics.x", "metrics.y", *LAST]
    assert table.isna().loc[:, ["a", "b", "metrics.x", "metrics.y"]].to_numpy().tolist() == [
        [False, True, False, True],
        [True, False, True, False],
    ]


@pytest.mark.parametrize("others", [{"n": 1}, {"n": 0.5}, {}])
@pytest.mark.parametrize(
    "large", [2**53 + 1, -(2**53) - 1, 2**64 + 1, 10**400], ids=["2^53", "-2^53", "2^64", "10^400"]
)
def test_an_integer_that_a_float_would_round_keeps_its_value(large, others):
    table = maximum(finished(0, 1.0, {"n": large}), finished(1, 2.0, others)).to_pandas()
    assert int(table.n[0]) == large  # numpy compares as floats
    assert table.n.isna().tolist() == [False, not others]


def test_a_hyperparameter_that_is_none_is_not_missing():
    trials = [finished(0, 1.0, {"n": None}), finished(1, 2.0, {"n": 16}), finished(2, 3.0, {})]
    table = maximum(*trials, failed(3, {"n": 4})).to_pandas()
    assert table.n.tolist()[:2] == [None, 16]
    assert math.isnan(table.n[2])
    assert table.value.dtype == float


def test_integers_that_some_trials_lack_are_floats_as_usual_in_pandas():
    table = maximum(finished(0, 1.0, {"n": 3}), finished(1, 2.0, {})).to_pandas()
    assert table.n.dtype == float


def test_an_empty_result_is_an_empty_table_with_the_fixed_columns():
    table = maximum().to_pandas()
    assert list(table.columns) == FIXED
    assert len(table) == 0


def test_repr_is_one_short_line_with_what_matters():
    trials = [finished(n, n / 3, {"lr": 0.1}) for n in range(200)]
    text = repr(maximum(*trials, failed(200)))
    assert text == (
        "<Result: 201 trials, 1 failed, best metric 66.3333 in trial 199: lr=0.1; /runs>"
    )


def test_repr_leaves_out_missing_values():
    assert repr(maximum()) == "<Result: 0 trials; /runs>"
    assert repr(maximum(finished(0, 1.0))) == "<Result: 1 trial, best metric 1 in trial 0; /runs>"
    assert repr(maximum(failed(0))) == "<Result: 1 trial, 1 failed; /runs>"


@given(text, text, text, text)
def test_repr_is_one_line_for_any_text(name, value, objective, logdir):
    trials = [finished(0, 1.0, {name: value})]
    assert repr(Result(trials, Direction.MAX, logdir, objective=objective)).isprintable()


def test_a_trial_is_printed_as_a_line_and_in_a_notebook_as_a_table():
    trial = finished(3, 0.5, {"lr": 1 / 3, "layers": (8, 8)}, {"accuracy": 0.5, "loss": 2.0})
    line = "trial 3 (lr=0.333333, layers=(8, 8)) finished after 1.5 s with 0.5"
    assert str(trial) == line
    assert repr(trial) == f"<TrialResult: {line}; /runs/3>"
    assert Reader(trial._repr_html_(), "th").inside == ["trial 3", ""]
    assert Reader(trial._repr_html_(), "tr").inside[1:] == [
        "statusfinished",
        "value0.5",
        "lr0.333333",
        "layers(8, 8)",
        "metrics.accuracy0.5",
        "metrics.loss2",
        "took1.5 s",
        "folder/runs/3",
    ]
    assert str(failed(0)) == "trial 0 failed after 0.5 s: ValueError: no"
    assert "Traceback" in failed(0)._repr_html_()


def test_a_hyperparameter_may_be_named_like_a_fact_of_its_trial():
    trial = finished(3, 0.5, {"value": 7, "folder": "", "metrics.metric": 1})
    assert Reader(trial._repr_html_(), "tr").inside[1:] == [
        "statusfinished",
        "value0.5",
        "params.value7",
        "params.folder",
        "params.metrics.metric1",
        "metrics.metric0.5",
        "took1.5 s",
        "folder/runs/3",
    ]


def test_a_result_is_a_sequence_of_its_trials():
    trials = [finished(n, float(n)) for n in range(3)]
    result = maximum(*reversed(trials))
    assert len(result) == 3
    assert list(result) == result[:] == trials
    assert (result[0], result[-1], result[1:]) == (trials[0], trials[2], trials[1:])
    assert trials[1] in result


def test_a_best_trial_that_was_stopped_is_marked():
    trial = TrialResult(
        id=1,
        params={"lr": 0.1},
        value=0.9,
        metrics={},
        status="stopped",
        error=None,
        seconds=1.0,
        logdir="",
        reason="step 7: too bad",
    )
    best = "best metric 0.9 in trial 1 (stopped early): lr=0.1"
    assert maximum(finished(0, 0.5), trial).summary() == f"2 trials, 1 stopped, {best}"


def test_the_summary_says_how_many_trials_are_missing():
    trials = [finished(0, 0.5, {"lr": 0.1, "layers": (8, 8)}), failed(1)]
    result = Result(trials, Direction.MAX, "/runs", objective="accuracy", total=9)
    assert result.summary() == (
        "2 of 9 trials, 1 failed, best accuracy 0.5 in trial 0: lr=0.1, layers=(8, 8)"
    )


def test_the_defaults_of_a_result_follow_from_its_trials():
    result = maximum(finished(0, 1.0), failed(1))
    assert (result.objective, result.total, result.problem, result.space) == (
        "metric",
        2,
        None,
        None,
    )


def test_a_result_keeps_its_arguments():
    space = Space.of_grid({"lr": [0.1]})
    result = Result(
        [], Direction.MIN, "/runs", objective="loss", total=3, problem="interrupted", space=space
    )
    assert (result.objective, result.total, result.problem) == ("loss", 3, "interrupted")
    assert result.space is space


def test_the_summary_says_why_there_are_fewer_trials_than_asked_for():
    result = Result([finished(0, 1.0)], Direction.MIN, "/runs", exhausted="the space is small")
    assert result.summary().endswith("; the space is small")
    assert "the space is small" in result._repr_html_()
    assert result.part([]).exhausted == result.exhausted


@pytest.mark.parametrize(
    ("direction", "ids"), [(Direction.MAX, [4, 0, 2, 1, 3]), (Direction.MIN, [1, 0, 2, 4, 3])]
)
def test_the_ranking_goes_from_the_best_to_the_worst_with_equals_in_their_order(direction, ids):
    trials = [finished(2, 0.0), finished(0, 0.0), finished(1, -1.0), failed(3), finished(4, 2.0)]
    assert [trial.id for trial in Result(trials, direction, "/runs").ranking] == ids


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    st.sampled_from(Direction),
)
def test_the_ranking_has_all_trials_and_the_best_first(values, direction):
    trials = [failed(n) if v is None else finished(n, v) for n, v in enumerate(values)]
    result = Result(trials, direction, "/runs")
    ranking = result.ranking
    assert sorted(trial.id for trial in ranking) == list(range(len(values)))
    assert result.best is None or ranking[0] == result.best
    scores = [trial.value for trial in ranking]
    assert not any(direction.better(after, before) for before, after in pairwise(scores))


def test_the_table_of_the_best_has_scores_hyperparameters_and_metrics():
    trials = [
        finished(0, 0.5, {"lr": 0.1}, {"accuracy": 0.5, "loss": 2.0}),
        finished(1, 0.75, {"lr": 1 / 3, "layers": (8, 8)}, {"accuracy": 0.75}),
        failed(2, {"lr": 0.3}),
    ]
    result = Result(trials, Direction.MAX, "/runs", objective="accuracy")
    head, rows = table_of(result, result.ranking)
    assert head == ["trial", "accuracy ↑", "lr", "layers", "loss", "seconds", "status"]
    assert rows == [
        ["1", "0.75", "0.333333", "(8, 8)", "", "1.5", "finished"],
        ["0", "0.5", "0.1", "", "2", "1.5", "finished"],
        ["2", "", "0.3", "", "", "0.5", "failed: ValueError: no"],
    ]
    some = table_of(result, result.ranking[:1])
    assert some == (
        ["trial", "accuracy ↑", "lr", "layers", "seconds", "status"],
        [
            ["1", "0.75", "0.333333", "(8, 8)", "1.5", "finished"],
        ],
    )


def test_the_table_of_the_best_has_no_two_columns_of_one_name():
    params, metrics = {"loss": "mse", "trial": 7, "lr": 0.1}, {"loss": 2.0, "seconds": 3.0}
    result = Result([finished(0, 0.5, params, metrics)], Direction.MAX, "/runs", objective="score")
    head, _ = table_of(result, result.trials)
    names = ["params.loss", "params.trial", "lr", "loss", "metrics.seconds"]
    assert head == ["trial", "score ↑", *names, "seconds", "status"]


def test_the_arrow_of_the_table_shows_the_direction():
    for direction, arrow in [(Direction.MAX, "↑"), (Direction.MIN, "↓")]:
        head, rows = table_of(Result([], direction, "/runs", objective="loss"), [])
        assert (head[1], rows) == (f"loss {arrow}", [])


LAYOUT = {"div", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"}


def test_a_notebook_shows_the_summary_the_best_first_and_the_tracebacks():
    trials = [finished(0, 0.5, {"lr": 0.1}), finished(1, 0.75, {"lr": 0.2}), failed(2)]
    html = Result(trials, Direction.MAX, "/runs", total=9, problem="interrupted")._repr_html_()
    assert Reader(html, "td").inside[::5] == ["1", "0", "2"]
    assert Reader(html, "summary").inside == ["Trial 2 failed: ValueError: no"]
    assert Reader(html, "pre").inside == ["Traceback"]
    said = Reader(html).said
    assert "3 of 9 trials, 1 failed, best metric 0.75 in trial 1: lr=0.2" in said
    assert "Ended early: interrupted" in said
    assert "Ended early" not in maximum(*trials)._repr_html_()


@given(text, text, text, text, text, text)
def test_text_of_a_user_never_becomes_html(name, value, message, trace, metric, problem):
    outcome = Outcome.failed(1, "user error", message, trace)
    trials = [
        finished(0, 1.0, {name: value}, {metric: 1.0}),
        TrialResult.of(Trial(1, {name: [value]}), outcome, value),
    ]
    html = Result(trials, Direction.MAX, "/runs", objective=name, problem=problem)._repr_html_()
    reader = Reader(html)
    assert set(reader.tags) <= LAYOUT
    assert reader.open == []
    assert {name for name, _ in reader.attributes} <= {"class", "border", "style"}
    assert printable(name, keep="\n\t") in Reader(html, "th").inside
    assert hyperparameter(value) in Reader(html, "td").inside
    assert Reader(html, "pre").inside == [printable(trace, keep="\n\t")]


def test_ten_thousand_trials_are_a_short_page_that_says_what_it_leaves_out():
    trials = [finished(n, float(n), {"lr": n}) for n in range(5_000)]
    trials += [failed(n, {"lr": n}) for n in range(5_000, 10_000)]
    html = maximum(*trials)._repr_html_()
    assert len(html) < 20_000
    assert Reader(html).tags.count("tr") == 1 + 50
    assert "and 9950 more trials; to_pandas() has all of them" in Reader(html).said
    assert "and 4990 more failed trials; to_pandas() has all of them" in Reader(html).said
    assert "more" not in maximum(*trials[:3])._repr_html_()


def test_an_empty_result_can_be_shown():
    assert "0 trials" in Reader(maximum()._repr_html_()).said


def test_plot_refuses_an_unknown_kind():
    with pytest.raises(InvalidArgument, match="kind: expected 'convergence' or 'parallel' or"):
        maximum(finished(0, 1.0)).plot("pie")


def test_search_failed_has_the_result():
    result = maximum(failed(0))
    error = SearchFailed("all 1 trials failed", result)
    assert error.result is result
    assert isinstance(error, ExperimentError)
    assert str(error) == "all 1 trials failed"


def test_parameters_that_look_prefixed_keep_their_columns():
    table = maximum(finished(0, 0.5, {"value": 1, "params.value": 2})).to_pandas()
    assert {1, 2} <= set(table.iloc[0][["params.value", "params.params.value"]])


def test_the_repr_of_long_parameters_is_short():
    assert len(repr(maximum(finished(0, 0.5, {"x": "a" * 10**6})))) < 1000


def test_search_failed_survives_pickling():
    import pickle

    error = SearchFailed("why", maximum(finished(0, 0.5)))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "why"
    assert again.result.trials == error.result.trials


def stopped(number, value, reason="step 7: worse than others"):
    metrics = {} if value is None else {"metric": value}
    outcome = Outcome(
        number, "stopped", value, "metric", metrics, seconds=1.5, reason=reason, step=7
    )
    return TrialResult.of(Trial(number, {}), outcome, f"/runs/{number}")


def test_a_stopped_trial_counts_with_its_value_and_says_why():
    result = maximum(finished(0, 0.5), stopped(1, 0.25), stopped(2, None), failed(3))
    assert [trial.ending for trial in result.trials] == [
        "finished",
        "stopped at step 7: worse than others",
        "stopped at step 7: worse than others",
        "failed: ValueError: no",
    ]
    assert [trial.id for trial in result.ranking] == [0, 1, 2, 3]
    assert [trial.id for trial in result.failed] == [3]
    assert result.summary() == "4 trials, 2 stopped, 1 failed, best metric 0.5 in trial 0"
    assert maximum(stopped(0, 0.5)).best.id == 0  # as with Patience, which stops good trials too


def test_the_table_has_a_column_of_reasons_only_where_a_trial_was_stopped():
    assert "reason" not in maximum(finished(0, 0.5), failed(1)).to_pandas()
    table = maximum(finished(0, 0.5), stopped(1, 0.25)).to_pandas()
    assert list(table.columns) == [*FIRST, "metrics.metric", "seconds", "error", "reason", "logdir"]
    assert list(table["reason"].fillna("")) == ["", "step 7: worse than others"]
    clash = maximum(finished(0, 0.5, {"reason": "mine"})).to_pandas()
    assert list(clash["params.reason"]) == ["mine"]


def test_a_notebook_says_why_a_trial_was_stopped():
    html = maximum(finished(0, 0.5), stopped(1, 0.25, "step 7: <b>"))._repr_html_()
    assert Reader(html, "td").inside[-1] == "stopped at step 7: <b>"


def test_a_hyperparameter_without_strings_is_no_group():
    result = maximum(finished(0, 0.5, {"units": 8, "group": "a"}), finished(1, 0.75))
    assert list(result.split("group")) == ["a"]
    for name in ("units", "rate"):
        with pytest.raises(InvalidArgument, match=f"^name: .*with strings .*{name}"):
            result.split(name)


def groups_of(*trials, max_failures):
    spaces = {"a": Space.of_grid({"x": [0]}), "b": Space.of_grid({"x": [1]})}
    return results_of_groups(
        maximum(*trials),
        spaces,
        by="group",
        totals=dict.fromkeys(spaces, 9),
        exhausted={},
        max_failures=max_failures,
        target=None,
    )


def test_a_search_of_groups_fails_only_if_too_many_trials_failed_in_every_group():
    trials = [failed(0, {"group": "a"}), failed(1, {"group": "b"})]
    with pytest.raises(SearchFailed, match="^'a': .*; 'b': ") as caught:
        groups_of(*trials, max_failures=0)
    assert list(caught.value.result) == trials
    found = groups_of(trials[0], finished(1, 0.5, {"group": "b"}), max_failures=0)
    assert found["a"].problem
    assert found["b"].problem is None
    assert found["b"].best.id == 1


def test_several_objectives_have_no_best_mean_and_reach_no_target():
    both = {"accuracy": Direction.MAX, "loss": Direction.MIN}
    values = {"accuracy": 1.0, "loss": 0.0}
    outcomes = [Outcome(n, "finished", metrics=values, values=values) for n in range(2)]
    trials = [TrialResult.of(Trial(o.trial, {"x": 0}), o, "/runs") for o in outcomes]
    result = Result(trials, read_direction(both), "/runs", target=0.5)
    assert result.best_mean is None
    assert result.target_reached is False
    assert result.by("accuracy").best_mean.value == 1.0
