"""The parts of the benchmark of many hyperparameters."""

import pytest

from tests.benchmarks import many_parameters
from tests.benchmarks.many_parameters import METHODS, rows, run_task


@pytest.mark.parametrize("name", [name for name in METHODS if "CMA" not in name])
def test_every_search_runs_on_many_slots(name, monkeypatch):
    for setting, value in (("TRIALS", 40), ("_TIMED", 30)):
        monkeypatch.setattr(many_parameters, setting, value)
    regret, ask = run_task((name, 1, 50, 20, 0))
    assert regret > 0
    assert ask > 0


def test_a_cell_is_the_mean_share_of_random_search_and_the_median_ask():
    found = {
        (method, number, dimensions, slots, 0): (2.0 if method == "random" else 1.0, 0.003)
        for method in METHODS
        for number in many_parameters.FUNCTIONS
        for dimensions in many_parameters.DIMENSIONS
        for slots in many_parameters.SLOTS
    }
    _, first, *_, last = rows(found)
    assert first[1:] == ("0.50; 3.0",) * 4
    assert last[1:] == ("1.00; 3.0",) * 4
