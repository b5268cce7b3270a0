"""The trials that a user's searcher may propose, and the errors of one that raises."""

from __future__ import annotations

import re

import numpy as np
import pytest

from search.algorithms import Evolution
from search.checked_searcher import CheckedSearcher, SearcherFailed
from search.errors import InvalidArgument
from search.searcher import Selection
from search.space.spaces import Space
from search.trial import Outcome, Trial
from search.values import LARGEST_CONFIGURATION, check_size
from tests.search.fakes import started


class Custom:
    """Returns a given object from `ask`; raises it if it is an exception."""

    total, finished = 2, False

    def __init__(self, *asked, raising=None):
        self._asked, self._raising = list(asked), raising

    def ask(self):
        asked = self._asked.pop(0)
        if isinstance(asked, Exception):
            raise asked
        return asked

    def tell(self, outcome):
        if self._raising:
            raise self._raising


def test_values_of_numpy_become_values_of_python():
    searcher = CheckedSearcher(Custom(Trial(0, {"x": np.float64(0.5), "y": (np.int64(3), None)})))
    params = searcher.ask().params
    assert params == {"x": 0.5, "y": (3, None)}
    assert [type(params["x"]), type(params["y"][0])] == [float, int]


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.array([0.5, 1.0]), (3, None)])
def test_a_recorded_trial_is_returned_with_values_of_python(value):
    recorded = CheckedSearcher(Custom(Trial(0, {"x": value}))).ask()
    again = CheckedSearcher(Custom(Trial(0, {"x": value}))).ask_again(recorded)
    assert again == recorded
    assert type(again.params["x"]) is type(recorded.params["x"])


def test_a_recorded_trial_counts_as_proposed():
    searcher = CheckedSearcher(Custom(Trial(0, {}), Trial(1, {}), Trial(2, {})))
    assert searcher.ask_again(Trial(0, {})).id == 0
    assert searcher.ask_again(Trial(1, {})).id == 1
    with pytest.raises(SearcherFailed, match="expected None, since Custom.total is 2"):
        searcher.ask()


def test_a_recorded_trial_has_to_be_the_next_one():
    with pytest.raises(SearcherFailed, match="expected 0, the number of trials before it, got 1"):
        CheckedSearcher(Custom(Trial(1, {}))).ask_again(Trial(1, {}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.float64(-2.5), -2.5), (3, 3.0), (None, None), (float("-inf"), None)],
)
def test_an_acquisition_is_a_finite_number_or_none(value, expected):
    custom = Custom(Trial(0, {}))
    custom.acquisition_of = lambda trial: value
    searcher = CheckedSearcher(custom)
    assert searcher.acquisition_of(searcher.ask().id) == expected


@pytest.mark.parametrize("value", ["much", True])
def test_an_acquisition_that_is_no_number_is_an_error(value):
    custom = Custom(Trial(0, {}))
    custom.acquisition_of = lambda trial: value
    expected = r"Custom.acquisition_of\(\): expected a number or None"
    with pytest.raises(SearcherFailed, match=expected):
        CheckedSearcher(custom).acquisition_of(0)


def test_a_searcher_without_a_model_has_no_acquisition():
    assert CheckedSearcher(Custom()).acquisition_of(0) is None


def test_a_trial_more_than_the_searcher_promised_is_an_error():
    searcher = CheckedSearcher(Custom(*(Trial(number, {}) for number in range(3))))
    assert [searcher.ask().id, searcher.ask().id] == [0, 1]
    expected = r"Custom.ask\(\): expected None, since Custom.total is 2, got Trial\(id=2"
    with pytest.raises(SearcherFailed, match=expected):
        searcher.ask()


def test_a_searcher_that_waits_without_a_trial_in_flight_is_an_error():
    searcher = CheckedSearcher(Custom(Trial(0, {}), None, None, None))
    searcher.ask()
    assert searcher.ask() is None  # it may propose the next trial once it has this outcome
    searcher.tell(Outcome(0, "finished", 0.5))
    expected = "a trial, since no trial is in flight and Custom.finished is False"
    with pytest.raises(SearcherFailed, match=re.escape(f"Custom.ask(): expected {expected}, got")):
        searcher.ask()


def test_a_finished_searcher_has_no_trial_left():
    custom = Custom(None)
    custom.finished = True
    assert CheckedSearcher(custom).ask() is None


def test_a_searcher_whose_trials_are_added_while_it_runs_may_wait_for_them():
    assert CheckedSearcher(Custom(None), grows=True).ask() is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (5, "expected a search.trial.Trial or None, got 5"),
        ({"x": 1}, "expected a search.trial.Trial or None, got {'x': 1}"),
        (Trial(1, {}), "id of the trial: expected 0, the number of trials before it, got 1"),
        (Trial(0, [1]), "params of the trial: expected a dict of hyperparameters, got [1]"),
        (Trial(0, {1: 2}), "params of the trial: expected names of hyperparameters, got 1"),
        (
            Trial(0, {"x": 1}, generation="first"),
            "generation of the trial: expected an integer of at least 0, or None, got 'first'",
        ),
        (
            Trial(0, {"x": 1}, generation=None, parent=0),
            "parent of the trial: expected an earlier trial, or None, got 0",
        ),
        (
            Trial(0, {"x": 1}, max_steps=0),
            "max_steps of the trial: expected an integer of at least 1, or None, got 0",
        ),
        (
            Trial(0, {"x": 1}, max_steps=2.5),
            "max_steps of the trial: expected an integer of at least 1, or None, got 2.5",
        ),
        (
            Trial(0, {"x": {1, 2}}),
            "params['x'] of the trial: expected None, a bool, a number, a string, ",
        ),
        (
            Trial(0, {"x": "a" * 2_000_000}),
            "params['x'] of the trial: expected at most 1,000,000 bytes for the hyperparameters of "
            "a trial, got 2,000,005 bytes; pass the path of a file, and read it inside the train "
            "function",
        ),
    ],
)
def test_an_invalid_trial_is_an_error_that_names_the_part(asked, said):
    with pytest.raises(SearcherFailed, match=re.escape(f"Custom.ask(): {said}")):
        CheckedSearcher(Custom(asked)).ask()


def test_an_error_of_a_searcher_is_shown_with_its_line():
    searcher = CheckedSearcher(Custom(KeyError("x"), raising=ValueError("no")))
    with pytest.raises(
        SearcherFailed, match=r"Custom.ask\(\) raised KeyError: 'x' \(.*test_checked"
    ):
        searcher.ask()
    with pytest.raises(SearcherFailed, match=r"Custom.tell\(\) raised ValueError: no \(.*, line "):
        searcher.tell(Outcome(0, "finished", 1.0))


class Broken(Custom):
    """Raises in every call, and so does its judge."""

    @property
    def total(self):
        raise KeyError("total")

    @property
    def finished(self):
        raise AttributeError("done")

    class judge:
        @staticmethod
        def report(trial, step, value):
            raise ValueError(f"no step {step}")

        @staticmethod
        def ended(trial, status):
            raise ValueError(f"no trial {trial}")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda searcher: searcher.total, r"Broken\.total raised KeyError: 'total' \("),
        (lambda searcher: searcher.finished, r"Broken\.finished raised AttributeError: done \("),
        (
            lambda searcher: searcher.judge.report(0, 7, 0.5),
            r"Broken\.judge\.report\(\) raised ValueError: no step 7 \(.*test_checked_searcher.py",
        ),
        (
            lambda searcher: searcher.judge.ended(3, "finished"),
            r"Broken\.judge\.ended\(\) raised ValueError: no trial 3 \(",
        ),
    ],
)
def test_any_error_of_a_searcher_is_shown_with_the_call(ask, said):
    with pytest.raises(SearcherFailed, match=said):
        ask(CheckedSearcher(Broken()))


def test_a_searcher_without_a_pruner_has_none():
    assert CheckedSearcher(Custom()).judge is None


class Selecting(Custom):
    """Has the given selections."""

    def __init__(self, selections):
        super().__init__(Trial(0, {}), Trial(1, {}))
        self.selections = selections


def checked(selections):
    searcher = CheckedSearcher(Selecting(selections))
    for _ in range(2):
        searcher.ask()
    return searcher


def test_selections_become_values_of_python():
    (one, other) = checked(
        [Selection(np.int64(0), np.True_, None), Selection(1, False, np.int64(0))]
    ).selections
    assert (one, other) == (Selection(0, True, None), Selection(1, False, 0))
    assert [type(one.trial), type(one.accepted), type(other.holder)] == [int, bool, int]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(2, True, None),
        Selection(1, True, 2),
        Selection(-1, True, None),
        Selection(True, True, None),
        Selection("0", True, None),
    ],
)
def test_a_selection_of_a_trial_that_was_not_proposed_is_an_error(selection):
    expected = r"Selecting.selections: expected trials that ask\(\) returned, got Selection\("
    with pytest.raises(SearcherFailed, match=expected):
        _ = checked([Selection(1, True, 0), selection]).selections


def test_a_searcher_without_a_population_has_no_selections():
    assert list(CheckedSearcher(Custom()).selections) == []


def test_recorded_trials_of_a_space_that_is_used_up_are_returned_as_recorded():
    space = Space.of_bounds({"x": [1, 4]})
    searcher = CheckedSearcher(started(Evolution, space, popsize=4, generations=2))
    first = [searcher.ask() for _ in range(4)]
    assert searcher.ask() is None
    again = Trial(4, first[2].params, generation=1)
    assert searcher.ask_again(again) == again
    assert (searcher.total, searcher.finished) == (5, True)
    for trial in first:
        searcher.tell(Outcome(trial.id, "finished", 0.5))
        assert [selection.trial for selection in searcher.selections] == [trial.id]
    searcher.tell(Outcome(4, "finished", 0.75))
    assert list(searcher.selections) == []


def test_an_error_of_a_constraint_is_shown_with_the_configuration():
    error = InvalidArgument("constraint", "True or False", "KeyError: 'y', for {'x': 3}")
    with pytest.raises(SearcherFailed) as caught:
        CheckedSearcher(Custom(error)).ask()
    assert str(caught.value) == str(error)


def test_the_limit_counts_names_and_values_of_all_hyperparameters():
    check_size("point", {"x": "a" * (LARGEST_CONFIGURATION - 20)})
    with pytest.raises(InvalidArgument) as caught:
        check_size("point", {"few": "a" * 400_000, "many": "b" * 700_000})
    assert caught.value.name == "point['many']"
    assert caught.value.got == "700,008 bytes of 1,100,015 for all of them"
