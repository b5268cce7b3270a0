"""The parts of the benchmark of many hyperparameters."""

import pytest

from search.trial import Trial
from tests.benchmarks.searches import many_parameters
from tests.benchmarks.searches.many_parameters import METHODS, rows, run_task
from tests.benchmarks.searches.methods import RANDOM


@pytest.mark.parametrize("name", METHODS)
def test_every_search_runs_on_many_slots(name, monkeypatch):
    for setting, value in (("TRIALS", 40), ("_TIMED", 30)):
        monkeypatch.setattr(many_parameters, setting, value)
    regret, ask = run_task((name, 1, 50, 20, 0))
    assert regret > 0
    assert ask > 0


def test_a_cell_is_the_mean_share_of_random_search_and_the_median_ask():
    found = {
        (method, number, dimensions, slots, 0): (
            2.0 if method == RANDOM else 1.0,
            0.003 if slots == 1 else 0.005,
        )
        for method in METHODS
        for number in many_parameters.FUNCTIONS
        for dimensions in many_parameters.DIMENSIONS
        for slots in many_parameters.SLOTS
    }
    _, first, *_, last = rows(found)
    assert first[1:] == ("0.50; 3.0", "0.50; 5.0") * 2
    assert last[1:] == ("1.00; 3.0", "1.00; 5.0") * 2


def test_an_ask_without_a_trial_is_not_counted(monkeypatch):
    class Waiting:
        def __init__(self, answers):
            self._answers = iter(answers)

        def ask(self):
            return next(self._answers)

    monkeypatch.setattr(many_parameters, "TRIALS", 2)
    first, second = Trial(0, {}), Trial(1, {})
    timed = many_parameters._Timed(Waiting([first, None, second]))
    assert [timed.ask() for _ in range(4)] == [first, None, second, None]
    assert len(timed.seconds) == 2
