"""The importance of hyperparameters in a result; how it is computed is tested with `search`."""

from __future__ import annotations

import pytest

from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from search.direction import read_direction
from search.errors import InvalidArgument
from search.space.spaces import Space
from search.trial import Outcome, Trial


def test_of_several_objectives_one_has_to_be_chosen():
    space = Space.of_grid({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.0, 1.0]})
    trials = []
    for number in range(8):
        params = {"x": float(number // 2), "y": float(number % 2)}
        metrics = {"loss": params["x"], "size": params["y"]}
        outcome = Outcome(number, "finished", metrics=metrics, values=metrics)
        trials.append(TrialResult.of(Trial(number, params), outcome, "/runs"))
    both = read_direction({"loss": "min", "size": "min"})
    result = Result(trials, both, "/runs", space=space)
    with pytest.raises(InvalidArgument) as caught:
        result.importance()
    assert str(caught.value) == (
        "result: expected one objective, got 'loss', 'size'; use result.by('loss')"
    )
    for objective, most in (("loss", "x"), ("size", "y")):
        assert result.by(objective).importance()["hyperparameter"][0] == most
