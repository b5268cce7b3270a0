"""Objective functions and ways to run a searcher, shared by the tests of this folder."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from search.direction import Direction, Directions
from search.searcher import Algorithm, Problem
from search.space.spaces import Space
from search.trial import Outcome

GOAL = Directions({"error": Direction.MIN, "cost": Direction.MIN})

_OF_PROBLEM = {field.name for field in dataclasses.fields(Problem)}


def started(kind: Callable[..., Algorithm], space: Space, seed: int = 0, **arguments: Any) -> Any:
    """Return the searcher of an algorithm; arguments go to the problem or the settings."""
    problem = {name: arguments.pop(name) for name in _OF_PROBLEM & arguments.keys()}
    return kind(**arguments).start(Problem(space=space, rng=random.Random(seed), **problem))


def outcome(trial, value):
    if value is None:
        return Outcome.failed(trial.id, "user error", "boom")
    return Outcome(trial.id, "finished", value)


def evaluated_by(function):
    return lambda trial: outcome(trial, function(trial.params))


def all_fail(trial):
    return outcome(trial, None)


def recorded(evaluate, trials, outcomes=None):
    """Evaluate, and record each trial and outcome."""

    def evaluate_and_note(trial):
        result = evaluate(trial)
        trials.append(trial)
        if outcomes is not None:
            outcomes.append(result)
        return result

    return evaluate_and_note


def run_in_any_order(searcher, evaluate, rng):
    """Ask or tell at random, and tell the outcome of a random trial in flight."""
    asked, out = [], []
    while out or not searcher.finished:
        trial = searcher.ask() if not out or rng.random() < 0.6 else None
        if trial is not None:
            asked.append(trial)
            out.append(trial)
        else:
            searcher.tell(evaluate(out.pop(rng.randrange(len(out)))))
    return asked


def plain(params):
    """Two objectives that cannot both be best."""
    return {"error": (1 - params["a"]) ** 2 + params["b"], "cost": params["a"] + params["b"]}


def several(objectives):
    return lambda trial: Outcome(trial.id, "finished", values=objectives(trial.params))


def hypervolume(outcomes, reference):
    """The area that outcomes dominate, down to a reference point."""
    area, lowest = 0.0, reference[1]
    for error, cost in sorted((o.values["error"], o.values["cost"]) for o in outcomes):
        if error < reference[0] and cost < lowest:
            area += (reference[0] - error) * (lowest - cost)
            lowest = cost
    return area
