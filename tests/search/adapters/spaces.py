"""Spaces, and ways to run a search on one, shared by the tests of this folder."""

import contextlib
import random

import numpy as np
import pytest

from search.searcher import Problem
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated
from tests.search.fakes import outcome, run_in_any_order
from tests.search.searcher_contract import assert_rebuilt

PLANE = Space.of_bounds({"x": [-5.0, 5.0], "y": [-5.0, 5.0]})


def bowl(params):
    """An objective with its maximum, 0, at (1, -2)."""
    return -((params["x"] - 1) ** 2) - (params["y"] + 2) ** 2


def is_small(params):
    return params.get("momentum", 0.0) + params["rate"] < 0.9


EVERYTHING = Space(
    {
        "momentum": Float(0.0, 1.0, when={"optimizer": "sgd"}),
        "optimizer": Choice(["adam", "sgd"]),
        "rate": Float(0.1, 0.6, step=0.1),
        "decay": Float(1e-8, 1.0, log=True),
        "epochs": Integer(1, 9),
        "units": Integer(8, 1024, log=True),
        "batch": Integer(16, 64, step=16),
        "size": Choice(["small", "medium", "large"], ordered=True),
        "layers": Choice([(8,), (8, 4), (8, 8)], when={"size": ["medium", "large"]}),
        "flag": Choice([True, 1, None]),
        "seed": Choice(range(10**9)),
        "far": Float(-1.7e308, 1.7e308),
        "fixed": Choice(["always"]),
        "once": Integer(3, 3),
    },
    constraint=is_small,
)


def point(seed):
    """Return a configuration of `EVERYTHING` that is allowed."""
    rng = random.Random(seed)
    while True:
        params = EVERYTHING.decode([rng.random() for _ in EVERYTHING])
        if is_small(params):
            return params


def sometimes_fails(trial):
    return outcome(trial, None if trial.id % 5 == 3 else trial.params["epochs"] * 1.5)


def problem_on(space, samples, seed=0, **arguments):
    return Problem(space=space, rng=random.Random(seed), samples=samples, **arguments)


@contextlib.contextmanager
def global_random_numbers(seed):
    """Seed the global random numbers for a while, as a direct user of the library does."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


class AdapterContract:
    """The contract of every adapter, beyond that of all searchers."""

    def algorithm(self):
        raise NotImplementedError

    def run(self, samples=25, seed=0, **arguments):
        searcher = self.algorithm().start(problem_on(EVERYTHING, samples, seed, **arguments))
        return run_in_any_order(searcher, sometimes_fails, random.Random(seed))

    def test_every_kind_of_hyperparameter_keeps_its_values_type_and_condition(self):
        trials = self.run()
        assert len(trials) == 25
        for trial in trials:
            assert is_small(trial.params)
            active = list(EVERYTHING.assemble(trial.params.__getitem__))
            assert list(trial.params) == active
            for name, value in trial.params.items():
                assert value in EVERYTHING[name]
                assert type(value) in (
                    type(None),
                    bool,
                    int,
                    float,
                    str,
                    tuple,
                )  # as JSON takes them
        names = {frozenset(trial.params) for trial in trials}
        assert len(names) > 1

    def test_points_come_first_and_are_literal(self):
        points = [point(seed) for seed in range(4)]
        trials = self.run(points=points)
        assert [trial.params for trial in trials[:4]] == points
        assert len(trials) == 25

    def test_a_point_may_lie_between_two_steps(self):
        between = point(1) | {"rate": 0.27}
        assert self.run(points=[between])[0].params == between

    @pytest.mark.parametrize("seed", range(1))
    def test_a_searcher_with_points_and_prior_observations_is_rebuilt_by_the_same_calls(self, seed):
        points = [point(seed) for seed in range(3)]
        known = [Evaluated(point(seed), seed if seed % 3 else None) for seed in range(9)]

        def make():
            problem = problem_on(EVERYTHING, 20, points=points, known=known)
            return self.algorithm().start(problem)

        assert_rebuilt(make, random.Random(seed))

    def test_prior_observations_are_learned(self):
        known = [Evaluated(point(seed), seed * 1.5 if seed % 7 else None) for seed in range(30)]
        assert self.run(known=known) != self.run()

    def test_settings_can_be_used_again_and_have_a_form_in_json(self):
        algorithm = self.algorithm()
        first, second = (
            run_in_any_order(
                algorithm.start(problem_on(EVERYTHING, 12)), sometimes_fails, random.Random(1)
            )
            for _ in range(2)
        )
        assert first == second
        assert algorithm.to_json() == self.algorithm().to_json()
