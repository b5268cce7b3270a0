"""Advice in input errors and warnings, before Spark is used."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import experiment
from experiment.setup.settings import Settings
from search.algorithms import Evolution
from search.checks import check_flag, check_integer, check_number
from search.evolution.population_based import PopulationTraining
from search.space.spaces import Choice, Float, Integer, Space

BOUNDS = {"learning_rate": [0.1, 0.9], "optimizer": ["adam", "sgd"]}


def train(learning_rate, optimizer="adam", dropout=0.5):
    return learning_rate


def advice(call, *arguments, **keywords):
    """Return the input error of a call without Spark, which is raised before Spark is used."""
    with pytest.raises((experiment.InvalidArgument, TypeError)) as caught:
        call(None, train, *arguments, **keywords)
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "arguments", "keywords", "said"),
    [
        (experiment.launch, [{"learning_rat": [1]}], {}, "'learning_rate'"),
        (experiment.random_search, [{"learnin_rate": [0.1, 1.0]}], {}, "'learning_rate'"),
        (
            experiment.random_search,
            [BOUNDS],
            {"points": [{"optimiser": "adam"}]},
            "'optimizer'",
        ),
        (
            experiment.random_search,
            [BOUNDS | {"dropout": Float(0, 1, when={"optimiser": "sgd"})}],
            {},
            "'optimizer'",
        ),
        (
            experiment.random_search,
            [BOUNDS | {"dropout": Float(0, 1, when={"optimizer": "sdg"})}],
            {},
            "'sgd'",
        ),
        (
            experiment.search_each,
            [{"eu": BOUNDS, "us": {"learning_rat": [0.1, 0.9], "optimizer": ["adam", "sgd"]}}],
            {},
            "'learning_rate'",
        ),
        (experiment.evolutionary_search, [BOUNDS], {"popsiz": 4}, "'popsize'"),
        (experiment.launch, [{"learning_rate": [1]}], {"paralellism": 4}, "'parallelism'"),
    ],
)
def test_a_typo_is_answered_with_the_intended_name(call, arguments, keywords, said):
    assert advice(call, *arguments, **keywords).endswith(f"; did you mean {said}?")


def test_an_unlike_name_is_answered_without_a_guess():
    assert "did you mean" not in advice(experiment.launch, [{"learning_rate": 1, "x": 1}])
    assert "did you mean" not in advice(experiment.launch, {"learning_rate": [1]}, xyz=1)


@pytest.mark.parametrize(
    ("bounds", "domain"),
    [
        ({"low": 0.1, "high": 0.9}, Float(0.1, 0.9)),
        ({"low": 1, "high": np.int64(9)}, Integer(1, 9)),
        ({"low": 1, "high": 9, "step": 0.5}, Float(1, 9, step=0.5)),
        ({"type": "float", "low": 0.001, "high": 1, "log": True}, Float(0.001, 1, log=True)),
        ({"values": ["a", "b"], "when": {"y": 1}}, Choice(["a", "b"], when={"y": [1]})),
    ],
)
def test_bounds_may_be_dicts_as_in_yaml(bounds, domain):
    assert Space.of_bounds({"x": bounds, "y": [1, 2]})["x"] == domain


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ("0.1-0.001", "got '0.1-0.001'; write [0.001, 0.1] or experiment.Float(0.001, 0.1)"),
        ("[1, 16]", "got '[1, 16]'; write [1, 16] or experiment.Integer(1, 16)"),
        ("-1e-3 to 2", "got '-1e-3 to 2'; write [-1e-3, 2] or experiment.Float(-1e-3, 2)"),
        ("adam", "got 'adam'; write [low, high], experiment.Float(low, high), or a list of choic"),
        ({"lo": 0.1, "high": 0.9}, "; write experiment.Float(0.1, 0.9), or {'low': 0.1, 'high': 0"),
        ({"type": "flaot", "low": 0.1, "high": 0.9}, "; did you mean 'float'?"),
        ({"low": 0.1, "high": 0.9, "whne": {}}, "got 'whne'; did you mean 'when'?"),
    ],
)
def test_invalid_bounds_are_answered_with_the_right_notation(bounds, said):
    assert said in advice(experiment.random_search, {"learning_rate": bounds})


@pytest.mark.parametrize("call", [experiment.evolutionary_search, experiment.random_search])
def test_numbers_as_strings_are_a_choice_with_a_warning(call):
    said = (
        r"bounds\['learning_rate'\]: \['0.1', '1e-3'\] is a choice of texts; write \[0.1, 1e-3\] "
        r"for numbers, or experiment.Choice\(\['0.1', '1e-3'\]\) if texts are meant"
    )
    with pytest.warns(UserWarning, match=said) as caught, pytest.raises(experiment.InvalidArgument):
        call(None, train, {"learning_rate": ["0.1", "1e-3"]})
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"bounds\['eu'\]\['learning_rate'\]: "):
        advice(experiment.search_each, {"eu": {"learning_rate": ("1", "2")}})


@pytest.mark.parametrize("texts", [["a", "1"], Choice(["1", "2"]), [1, 2], ["one", "two"]])
def test_other_choices_give_no_warning(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advice(experiment.random_search, {"learning_rate": texts})


@pytest.mark.parametrize(
    "made",
    [
        Settings(seed=np.int64(3), retries=np.int32(2), verbose=np.int8(1), timeout=np.float32(5)),
        Settings(parallelism=np.uint8(3), max_failures=np.int16(0), gpus_per_trial=np.int64(1)),
        Evolution(popsize=np.int64(4), mutation=(np.float32(0.5), 1), noisy=np.bool_(True)),
        PopulationTraining(popsize=np.int64(4)),
        experiment.NSGA2(popsize=np.int64(4), crossover=np.float64(0.5)),
        experiment.RegularizedEvolution(popsize=np.int64(8), tournament=np.int8(2)),
        experiment.Reinforce(bins=np.int64(8)),
        experiment.BayesianOptimization(noisy=np.bool_(False)),
        experiment.SuccessiveHalving(min_resource=np.int64(1)),
        experiment.MedianStopping(n_startup_trials=np.int64(1)),
        experiment.Patience(patience=np.int64(2)),
        experiment.Threshold(upper=np.float32(1.5)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_numpy_numbers_become_python_numbers(made):
    names = type(made).__dataclass_fields__
    kinds = {type(getattr(made, name)).__module__ for name in names}
    assert "numpy" not in kinds
    if hasattr(made, "to_json"):
        json.dumps(made.to_json())


def test_calls_accept_numpy_numbers():
    four = np.int64(4)
    budget = {"popsize": four, "generations": four, "seed": four}
    assert advice(experiment.evolutionary_search, BOUNDS, **budget).startswith("spark: expected")
    assert advice(experiment.random_search, BOUNDS, samples=four).startswith("spark: expected")


def test_checks_accept_numpy_numbers():
    check_integer("n", np.int64(3), 3)
    check_number("x", np.float32(0.5), "a number", lambda number: number < 1)
    check_flag("flag", np.bool_(True))
    assert np.int64(3) in Integer(1, 5)
    assert np.float32(0.5) in Float(0, 1)
    for refused in (np.int64(2), np.float64(3), np.bool_(True)):
        with pytest.raises(experiment.InvalidArgument):
            check_integer("n", refused, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "random_search(None, lambda x: x, {'x': 5})",
            "InvalidArgument: bounds['x']: expected two",
        ),
        (
            "launch(None, lambda x: x, {'x': [1]}, parallel=1)",
            "WrongCall: launch(): got an unexpec",
        ),
    ],
)
def test_an_input_error_is_one_line_in_a_notebook(capsys, line, said):
    shell = InteractiveShell.instance()
    try:
        shell.run_cell(f"import experiment; experiment.{line}")
    finally:
        InteractiveShell.clear_instance()
    shown = capsys.readouterr()
    assert (shown.out + shown.err).startswith(said)
    assert (shown.out + shown.err).strip().count("\n") == 0
