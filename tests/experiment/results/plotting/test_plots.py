import math
import random
import subprocess
import sys
import textwrap
from typing import get_args

import matplotlib

matplotlib.use("Agg")

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.text import Text

from experiment.results.plotting.axes import score_limits
from experiment.results.plotting.plots import PlotKind
from experiment.results.result import Result
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.results.trial_times import TrialTimes
from search.direction import Direction
from search.errors import InvalidArgument
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome, Trial
from tests.properties import examples

KINDS = get_args(PlotKind)
SPACE = Space({"lr": Float(1e-4, 1e-1, log=True), "units": Integer(8, 64), "opt": Choice(["a"])})
FEW = {"lr": 0.1, "units": 8}


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


def finished(number, value, params=None):
    outcome = Outcome(number, "finished", value, "metric", {"metric": value}, seconds=1.0)
    return TrialResult.of(Trial(number, {} if params is None else params), outcome, "/runs")


def failed(number, params=None):
    outcome = Outcome.failed(number, "user error", "no")
    return TrialResult.of(Trial(number, params or {}), outcome, "/runs")


def cancelled(number, params=None):
    return TrialResult(
        id=number,
        params=params or {},
        value=None,
        metrics={},
        status="cancelled",
        error=None,
        seconds=0.0,
        logdir="/runs",
    )


def maximum(*trials, **arguments):
    return Result(trials, Direction.MAX, "/runs", **arguments)


def drawn(result, kind, **arguments):
    """Render the whole plot, so that matplotlib raises its errors; return the axes."""
    ax = result.plot(kind, **arguments)
    ax.figure.canvas.draw()
    return ax


def of(kind, name):
    """Return the arguments with which a kind of plot shows one of several hyperparameters."""
    return {"parameter": name} if kind == "parameter" else {}


def points(ax):
    return [tuple(map(float, point)) for point in ax.collections[0].get_offsets()]


def places(marks):
    return [tuple(map(float, place)) for place in marks.get_xydata()]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(ax):
    """Return the texts beside the axes of parallel coordinates."""
    return [text.get_text() for text in ax.texts]


def lines(ax):
    """Return the heights of each trial's line over the axes of parallel coordinates."""
    return [[float(y) for _, y in path.vertices] for path in ax.collections[0].get_paths()]


@pytest.mark.parametrize(
    ("direction", "best"),
    [(Direction.MAX, [1.0, 1.0, 3.0, 3.0]), (Direction.MIN, [1.0, 0.5, 0.5, 0.5])],
)
def test_convergence_has_each_value_and_the_best_so_far(direction, best):
    values = [1.0, 0.5, 3.0, 2.0]
    trials = [finished(n, value) for n, value in enumerate(values)]
    ax = drawn(Result(trials, direction, "/runs", objective="loss"), "convergence")
    dots, steps, star = ax.lines
    assert list(dots.get_xdata()) == list(steps.get_xdata()) == [0, 1, 2, 3]
    assert list(dots.get_ydata()) == values
    assert list(steps.get_ydata()) == best
    assert steps.get_drawstyle() == "steps-post"
    assert places(star) == [(values.index(best[-1]), best[-1])]
    assert (ax.get_xlabel(), ax.get_ylabel()[:4]) == ("trial", "loss")
    assert ax.get_ylabel()[-1] == ("↑" if direction is Direction.MAX else "↓")


def test_convergence_marks_failed_trials_and_names_them_once():
    ax = drawn(maximum(failed(0), finished(1, 1.0), failed(2), cancelled(3)), "convergence")
    (marks,) = ax.lines[3:]
    assert list(marks.get_xdata()) == [0, 2]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["trial", "best so far", "best trial", "failed"]


def test_convergence_is_drawn_by_default():
    assert maximum(finished(0, 1.0)).plot().get_xlabel() == "trial"


def test_a_parameter_is_drawn_against_the_objective():
    trials = [
        finished(0, 0.5, {"units": 8}),
        failed(1, {"units": 9}),
        finished(2, 0.7, {"units": 64}),
    ]
    ax = drawn(maximum(*trials, space=SPACE), "parameter", parameter="units")
    assert points(ax) == [(8.0, 0.5), (64.0, 0.7)]
    assert (ax.get_xlabel(), ax.get_xscale()) == ("units", "linear")
    (star,) = ax.lines
    assert places(star) == [(64.0, 0.7)]
    assert ax.get_title() == "metric ↑ by units; star: the best trial"


def test_a_parameter_on_a_log_scale_is_drawn_on_a_log_scale():
    trials = [finished(n, n / 2, {"lr": 10.0**-n}) for n in (1, 2, 3)]
    ax = drawn(maximum(*trials, space=SPACE), "parameter", parameter="lr")
    assert points(ax) == [(0.1, 0.5), (0.01, 1.0), (0.001, 1.5)]
    assert (ax.get_xlabel(), ax.get_xscale()) == ("lr (log)", "log")
    assert drawn(maximum(*trials), "parameter", parameter="lr").get_xscale() == "linear"


def test_choices_are_drawn_by_their_names_in_the_order_of_the_trials():
    values = ["sgd", "adam", "sgd", (8, 8), None, True]
    trials = [finished(n, float(n), {"opt": value}) for n, value in enumerate(values)]
    ax = drawn(maximum(*trials), "parameter", parameter="opt")
    assert [x for x, _ in points(ax)] == [0, 1, 0, 2, 3, 4]
    assert ticks(ax.xaxis) == ["sgd", "adam", "(8, 8)", "None", "True"]


def test_many_choices_leave_room_between_their_names():
    trials = [finished(n, 0.0, {"opt": f"choice {n}"}) for n in range(100)]
    assert len(ticks(drawn(maximum(*trials), "parameter").xaxis)) <= 12
    assert len(texts(drawn(maximum(*trials), "parallel"))) <= 12 + 1


def test_the_only_parameter_need_not_be_named():
    ax = drawn(maximum(finished(0, 1.0, {"lr": 0.1})), "parameter")
    assert ax.get_xlabel() == "lr"


def test_parallel_coordinates_have_an_axis_for_each_parameter_and_the_objective():
    trials = [
        finished(0, 0.5, {"lr": 0.1, "units": 8, "opt": "adam"}),
        finished(1, 0.7, {"lr": 0.001, "units": 36, "opt": "sgd"}),
        finished(2, 0.9, {"lr": 0.01, "units": 64, "opt": "adam"}),
        failed(3, {"lr": 0.01, "units": 64, "opt": "adam"}),
    ]
    ax = drawn(maximum(*trials, space=SPACE, objective="accuracy"), "parallel")
    assert ticks(ax.xaxis) == ["lr (log)", "units", "opt", "accuracy ↑"]
    wanted = [[1, 0, 0, 0], [0, 0.5, 1, 0.5], [0.5, 1, 0, 1]]
    assert [pytest.approx(heights) for heights in lines(ax)] == wanted
    assert texts(ax) == [
        *("0.001", "0.01", "0.1"),
        *("8", "36", "64"),
        *("adam", "sgd"),
        *("0.5", "0.7", "0.9"),
    ]
    star = next(line for line in ax.lines if line.get_marker() == "*")
    assert places(star) == [(3, 1)]
    assert ax.get_title() == "accuracy ↑ by all hyperparameters; star: the best trial"


@pytest.mark.parametrize("direction", Direction)
def test_outliers_do_not_rule_the_objective_of_parallel_coordinates(direction):
    values = [direction.weight * value for value in (-1e9, *range(10))]
    trials = [finished(n, float(value), {"x": n}) for n, value in enumerate(values)]
    ax = drawn(Result(trials, direction, "/runs"), "parallel")
    outlier, *others = (heights[-1] for heights in lines(ax))
    assert outlier in (0, 1)
    assert max(others) - min(others) > 0.8
    low, high = ax.collections[0].get_clim()
    assert high - low < 20


@pytest.mark.parametrize("value", [0.5, -3, 0, "adam", None, (8, 8)], ids=str)
def test_a_parameter_that_never_changes_is_drawn_in_the_middle(value):
    result = maximum(*(finished(n, 1.0, {"same": value}) for n in range(3)))
    ax = drawn(result, "parallel")
    assert lines(ax) == [[0.5, 0.5]] * 3
    assert len(texts(ax)) == 2
    drawn(result, "parameter")


def test_points_with_different_parameters_are_drawn_on_the_axes_they_have():
    trials = [
        finished(0, 0.1, {"a": 1.0}),
        finished(1, 0.2, {"b": 2.0}),
        finished(2, 0.3, {"a": 3.0, "b": 4.0}),
    ]
    result = maximum(*trials)
    assert points(drawn(result, "parameter", parameter="a")) == [(1.0, 0.1), (3.0, 0.3)]
    assert points(drawn(result, "parameter", parameter="b")) == [(2.0, 0.2), (4.0, 0.3)]
    for shown in (trials, trials[:2]):  # each trial has a line, below the axes that it lacks
        ax = drawn(maximum(*shown), "parallel")
        assert [[a >= 0, b >= 0] for a, b, _ in lines(ax)[:2]] == [[True, False], [False, True]]
        assert len(lines(ax)) == len(shown)
        assert texts(ax).count("not given") == 2


def test_the_line_of_a_trial_passes_below_the_axes_of_inactive_hyperparameters():
    space = Space(
        {
            "opt": Choice(["adam", "sgd"]),
            "momentum": Float(0, 1, when={"opt": "sgd"}),
            "beta": Float(0, 1, when={"opt": "adam"}),
        }
    )
    trials = [
        finished(0, 0.1, {"opt": "sgd", "momentum": 0.2}),
        finished(1, 0.3, {"opt": "sgd", "momentum": 0.4}),
        finished(2, 0.2, {"opt": "adam", "beta": 0.5}),
        failed(3, {"opt": "adam", "beta": 0.9}),
    ]
    result = maximum(*trials, space=space)
    ax = drawn(result, "parallel")
    wanted = [[1, 0, -0.1, 0], [1, 1, -0.1, 1], [0, -0.1, 0.5, 0.5]]  # in the declared order
    assert [pytest.approx(heights) for heights in lines(ax)] == wanted
    assert texts(ax).count("inactive") == 2
    assert ax.get_ylim()[0] < -0.1
    assert points(drawn(result, "parameter", parameter="momentum")) == [(0.2, 0.1), (0.4, 0.3)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", [None, SPACE], ids=["points", "space"])
@pytest.mark.parametrize(
    "trials",
    [
        [finished(0, 0.5, FEW)],
        [failed(0, FEW)],
        [failed(0, FEW), cancelled(1, FEW)],
        [failed(0, FEW), finished(1, 0.5, FEW)],
    ],
    ids=["one", "failed", "none with a value", "one with a value"],
)
def test_few_trials_can_be_drawn(trials, space, kind):
    drawn(maximum(*trials, space=space), kind, **of(kind, "lr"))


@pytest.mark.parametrize("kind", ["convergence", "parallel", "importance", "slice", "timeline"])
@pytest.mark.parametrize("space", [None, SPACE], ids=["points", "space"])
def test_a_search_without_a_trial_is_an_empty_plot(kind, space):
    drawn(maximum(space=space), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_trials_without_hyperparameters_can_be_drawn(kind):
    result = maximum(finished(0, 1.0), finished(1, 2.0))
    if kind in ("parameter", "contour"):
        with pytest.raises(InvalidArgument, match="parameter"):
            result.plot(kind)
    else:
        drawn(result, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "values",
    [
        [float("inf"), 1.0],
        [float("nan"), 1.0],
        [10**400, 1],
        [2**4095, -(2**4095)],
        [1e300, -1e300],
        [5e-324, 0.0],
        [True, 2, 0.5, "a", None, [1], {"a": 1}],
        ["", " "],
        ["a" * 1_000, "a" * 1_000 + "b"],
    ],
    ids=lambda values: str(values)[:20],
)
def test_odd_values_can_be_drawn(values, kind):
    trials = [finished(n, float(n), {"x": v, "y": n}) for n, v in enumerate(values)]
    drawn(maximum(*trials), kind, **of(kind, "x"))


@pytest.mark.parametrize("kind", KINDS)
def test_huge_objectives_can_be_drawn(kind):
    trials = [finished(0, 1e300, {"x": 1, "y": 1}), finished(1, -1e300, {"x": 2, "y": 1})]
    drawn(maximum(*trials), kind, **of(kind, "x"))


@pytest.mark.parametrize(
    "name", ["$", "$x$", "$\\frac{$", "$x^{$ and $", r"\$", r"a\$b$c\\$", "{}%s_^~#", "\x1b[2J\n"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_names_and_choices_are_no_formulas(name, kind):
    trials = [finished(n, float(n), {name: name * (n + 1), "y": n}) for n in range(2)]
    drawn(maximum(*trials, objective=name), kind, **of(kind, name))


@examples(50)
@given(st.text("$\\x^{}_", max_size=8))
def test_text_is_drawn_literally(name):
    ax = maximum(finished(0, 1.0, {name: 1})).plot("parameter")
    label = ax.xaxis.get_label()
    as_it_is = Text(0, 0, name, figure=ax.figure, parse_math=False, size=label.get_fontsize())
    assert label.get_window_extent().width == as_it_is.get_window_extent().width
    pyplot.close(ax.figure)


def test_a_plot_has_no_control_characters():
    ax = drawn(maximum(finished(0, 1.0, {"a\nb": "c\rd"})), "parameter")
    assert ax.get_xlabel() == printable("a\nb")
    assert ticks(ax.xaxis) == ["c?d"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "slice"])
def test_a_plot_is_drawn_on_the_given_axes(kind):
    figure, (left, right) = pyplot.subplots(1, 2)
    times = TrialTimes()
    times.begin(0, 1.0, ["1.0.0"])
    times.end(0, 2.0)
    result = maximum(finished(0, 1.0, {"x": 1, "y": 2}), times=times)
    assert drawn(result, kind, ax=right, **of(kind, "x")) is right
    assert right.has_data()
    assert not left.has_data()
    assert pyplot.get_fignums() == [figure.number]


def test_each_plot_has_a_new_figure():
    result = maximum(finished(0, 1.0))
    assert result.plot().figure is not result.plot().figure


@pytest.mark.parametrize("kind", ["pie", "", None, ["convergence"], 1], ids=str)
def test_an_unknown_kind_is_refused_and_no_figure_is_left(kind):
    with pytest.raises(InvalidArgument) as caught:
        maximum(finished(0, 1.0)).plot(kind)
    assert caught.value.name == "kind"
    assert all(repr(known) in caught.value.expected for known in KINDS)
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("parameter", ["units", "", None, ["lr"], 1], ids=str)
def test_an_unknown_parameter_is_refused_with_the_names_of_the_parameters(parameter):
    result = maximum(finished(0, 1.0, {"lr": 0.1, "momentum": 0.9}))
    with pytest.raises(InvalidArgument, match="expected 'lr' or 'momentum', got"):
        result.plot("parameter", parameter=parameter)
    assert pyplot.get_fignums() == []


def test_a_parameter_for_a_plot_of_all_parameters_is_refused():
    for kind in ("convergence", "parallel"):
        with pytest.raises(InvalidArgument, match="parameter: expected None with kind="):
            maximum(finished(0, 1.0, {"lr": 0.1})).plot(kind, parameter="lr")


def test_a_parameter_of_a_search_without_trials_is_refused():
    with pytest.raises(InvalidArgument, match="a search with a trial"):
        maximum().plot("parameter", parameter="lr")


def test_without_matplotlib_the_error_says_what_to_install_and_all_else_works():
    program = """
        import sys

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "matplotlib":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Blocker())
        import experiment
        from search.direction import Direction

        result = experiment.Result([], Direction.MAX, "/runs")
        repr(result), result._repr_html_(), result.to_pandas()
        for kind in ("convergence", "parallel"):
            try:
                result.plot(kind)
            except ImportError as error:
                print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("plot() needs matplotlib: pip install") == 2


def test_importing_the_package_does_not_import_matplotlib():
    program = "import sys, experiment.results.plotting.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_values_with_different_reprs_are_different_choices():
    long = "/data/a/very/long/path/to/"
    trials = [finished(n, 1.0, {"path": long + name}) for n, name in enumerate(["a", "b"])]
    ax = drawn(maximum(*trials), "parameter", parameter="path")
    assert len(set(ax.collections[0].get_offsets()[:, 0])) == 2


def searched(count=40):
    """A result of random trials, whose objective depends on `lr` most."""
    rng = random.Random(1)
    space = Space({**SPACE, "opt": Choice(["adam", "sgd"])})
    trials = []
    for number in range(count):
        params = space.decode([rng.random() for _ in space])
        value = -abs(math.log10(params["lr"]) + 2) + 0.001 * params["units"]
        trials.append(finished(number, value if number else -1e9, params))
    return maximum(*trials, space=space)


def test_importance_is_a_bar_per_hyperparameter_the_most_important_first():
    ax = drawn(searched(), "importance")
    assert len(ax.patches) == 3
    assert ticks(ax.yaxis)[0] == "lr"
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(1)
    assert ax.get_title() == "Importance for metric ↑"


def test_slices_are_a_panel_per_hyperparameter_with_the_best_trial_marked():
    first = drawn(searched(), "slice")
    panels = first.figure.axes
    assert sorted(panel.get_xlabel() for panel in panels) == ["lr (log)", "opt", "units"]
    assert first.get_xscale() == "log"
    assert all(len(panel.lines) == 1 for panel in panels)
    assert first.get_ylim()[0] > -10  # the outlier does not rule
    title = "metric ↑ by hyperparameter; star: the best trial"
    assert first.figure.get_suptitle() == title
    with pytest.raises(InvalidArgument, match="None with kind='slice'"):
        searched().plot("slice", ax=first)


def test_the_last_row_of_slices_has_no_empty_panels():
    names = ["a", "b", "c", "d", "e"]
    random_numbers = random.Random(7)
    trials = [
        finished(number, float(number), {name: random_numbers.random() for name in names})
        for number in range(9)
    ]
    panels = drawn(maximum(*trials), "slice").figure.axes
    assert sorted(panel.get_xlabel() for panel in panels) == names


def test_a_contour_is_of_the_two_most_important_hyperparameters_or_of_those_chosen():
    ax = drawn(searched(), "contour")
    assert ax.get_xlabel() == "lr (log)"
    assert len(ax.lines) == 1
    assert ax.get_title() == f"metric ↑ by lr and {ax.get_ylabel()}"
    for chosen in (["units", "opt"], ("units", "opt")):
        ax = drawn(searched(), "contour", parameter=chosen)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("units", "opt")
    assert ticks(ax.yaxis) == ["adam", "sgd"]
    for wrong in ("lr", ("lr", "nothing"), ("lr",)):
        with pytest.raises(InvalidArgument, match="two of 'lr' or 'units' or 'opt'"):
            searched().plot("contour", parameter=wrong)


def test_the_timeline_has_a_lane_per_slot():
    times = TrialTimes()
    trials = {0: (10, 12, "1.10.0"), 1: (10, 14, "1.2.0"), 2: (12, 14, "1.10.0"), 3: (5, 5)}
    for number, (start, end, *slots) in trials.items():  # trial 3 was found in a trial folder
        times.begin(number, start, slots)
        times.end(number, end)
    values = [1.0, 2.0, 1.0, 1.0, 1.0]
    result = maximum(*map(finished, range(5), values), times=times)
    ax = drawn(result, "timeline")
    assert ticks(ax.yaxis) == ["1.2.0", "1.10.0"]
    assert sorted(bar.get_width() for bar in ax.patches) == [2, 2, 4]
    assert "100% of the slots' time" in ax.get_title()
    (star,) = ax.lines
    assert places(star) == [(12 - 10, 0)]  # in the middle of trial 1, in the lane of slot 1.2.0


def test_the_timeline_counts_neither_the_pause_before_a_resume_nor_a_lost_slot_as_idle():
    applications = [
        [(0, 1, 101, "1.0.0"), (1, 1, 51, "1.1.0"), (2, 51, 101, "1.1.1")],
        [(3, 3_701, 3_801, "1.0.0")],
    ]
    times = TrialTimes()
    for attempts in applications:
        times.begin_application()
        for trial, start, end, slot in attempts:
            times.begin(trial, start, [slot])
            times.end(trial, end)
    ax = drawn(maximum(*map(finished, range(4), [1.0] * 4), times=times), "timeline")
    assert ticks(ax.yaxis) == ["1.0.0", "1.1.0", "1.1.1", "1.0.0"]
    assert "100% of the slots' time" in ax.get_title()


def test_limits_leave_all_values_in_view_unless_some_are_far_off():
    low, high = score_limits([1.0, 1.2, 1.1, 1.3], Direction.MAX)
    assert low < 1.0
    assert high > 1.3
    low, high = score_limits([*[1.0 + n / 10 for n in range(19)], -1e300], Direction.MAX)
    assert -1 < low < 1.2
    assert 2.8 < high < 3.1
    low, high = score_limits([*[1.0 + n / 10 for n in range(19)], 1e300], Direction.MIN)
    assert high < 4
    low, high = score_limits([-1.7e308, 1.7e308], Direction.MAX)
    assert -math.inf < low <= -1.7e308
    assert 1.7e308 <= high < math.inf


@pytest.mark.parametrize("values", [[0.2, 0.02], [0.02], [5.0, 5.0]])
def test_limits_leave_one_or_two_values_in_view(values):
    low, high = score_limits(values, Direction.MAX)
    assert low < min(values) <= max(values) < high
