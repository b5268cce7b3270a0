"""The parts of the benchmark of searches for several objectives."""

import random

import numpy as np
import pytest

from tests.benchmarks.searches.pareto import (
    METHODS,
    PROBLEMS,
    RANDOM,
    front,
    lacking,
    rows,
    run_task,
    tasks,
)

CHEAP = [name for name, method in METHODS.items() if method.seeds is None]


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "digits"])
def test_a_problem_has_as_many_values_as_objectives(name):
    problem = PROBLEMS[name]()
    rng = random.Random(0)
    values = problem.values(problem.space.decode([rng.random() for _ in problem.space]))
    assert len(values) == problem.objectives
    assert np.isfinite(values).all()


def test_the_best_points_of_zdt_are_those_of_its_authors():
    """With all coordinates but the first at their optimum, ZDT1 is 1 - sqrt(x)."""
    for name, rest in (("ZDT1", 0.0), ("ZDT4", 0.5)):
        problem = PROBLEMS[name]()
        first, *others = problem.space
        params = {first: 0.25, **dict.fromkeys(others, rest)}
        assert problem.values(params) == pytest.approx((0.25, 0.5))


@pytest.mark.parametrize("name", CHEAP)
def test_every_search_spends_its_budget(name):
    assert run_task((name, "ZDT1", 0)).shape == (METHODS[name].budget, 2)


def test_a_front_has_what_nothing_dominates():
    values = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0]])
    assert front(values).tolist() == [[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]


def test_the_best_lacks_nothing_and_random_search_all_of_its_own_volume():
    chance = np.array([[1.0, 0.5], [0.5, 1.0], [0.8, 0.8]])
    found = {(RANDOM, "P", 0): chance, ("best", "P", 0): np.array([[0.0, 0.0], *chance[:2]])}
    assert lacking(found, 3) == {(RANDOM, "P", 0): 1.0, ("best", "P", 0): 0.0}


def test_searches_with_fewer_trials_are_left_out():
    found = {
        (RANDOM, "P", 0): np.array([[1.0, 0.5], [0.5, 1.0]]),
        ("short", "P", 0): np.zeros((1, 2)),
    }
    assert set(lacking(found, 2)) == {(RANDOM, "P", 0)}


def test_a_table_has_a_row_for_each_method():
    found = {task: run_task(task) for task in tasks([0], [RANDOM, "NSGA2"]) if task[1] != "digits"}
    head, *table = rows(found)
    assert [row[0] for row in table] == ["NSGA2", RANDOM]
    assert {len(row) for row in (head, *table)} == {len(head)}
