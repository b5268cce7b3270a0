"""Searches that are refused before they start."""

from __future__ import annotations

import pytest

from experiment.setup.building_specs import spec_of_algorithm
from experiment.setup.settings import Settings
from search.algorithms import Random
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.population_based import PopulationTraining
from search.fidelity.hyperband import Hyperband
from search.grouped import Grouped
from search.space.groups import read_groups, union
from search.space.spaces import Float, Space
from search.stopping.racing import StudentRacing, WilcoxonRacing
from search.stopping.rules import SuccessiveHalving

SPACE = Space({"x": Float(0.0, 1.0)})
GROUPS = {"a": SPACE, "b": SPACE}


def refusal(algorithm, space=SPACE, **settings):
    with pytest.raises(InvalidArgument) as refused:
        spec_of_algorithm(
            algorithm,
            call="run",
            spark=None,
            train=lambda x: x,
            space=space,
            settings=Settings(direction="min", **settings),
        )
    return refused.value


def test_what_a_point_leaves_out_is_drawn_from_the_bounds_of_its_group():
    groups = {"a": SPACE, "b": Space({"x": Float(10.0, 20.0)})}
    spec = spec_of_algorithm(
        Grouped(Random(), groups),
        call="search_each",
        spark=None,
        train=lambda x, group: x,
        space=union(groups, "group"),
        settings=Settings(seed=0),
        samples=2,
        points=[{"group": "b"}, {"group": "a"}],
    )
    points = spec.algorithm["points"]
    assert [point["x"] in groups[point["group"]]["x"] for point in points] == [True, True]


def test_a_constraint_is_called_with_configurations_of_groups_alone():
    costs = {"eu": {"small": 1, "large": 3}, "us": {"tiny": 1, "huge": 9}}

    def constraint(params):
        return costs[params["group"]][params["size"]] < 5  # `costs["eu"]` has no "tiny"

    bounds = {group: {"size": list(sizes)} for group, sizes in costs.items()}
    groups = read_groups(bounds, "group", constraint)
    spec = spec_of_algorithm(
        Grouped(Random(), groups),
        call="search_each",
        spark=None,
        train=lambda size, group: costs[group][size],
        space=union(groups, "group", constraint),
        settings=Settings(seed=0),
        samples=1,
    )
    trials = [spec.searcher.ask().params for _ in groups]
    assert [trial["group"] for trial in trials] == ["eu", "us"]
    assert all(constraint(trial) for trial in trials)


def in_groups(algorithm):
    return Grouped(algorithm, GROUPS)


@pytest.mark.parametrize("algorithm", [Hyperband(), PopulationTraining()])
def test_repeats_are_refused_where_trials_resume_from_others(algorithm):
    assert refusal(algorithm, repeats=3).name == "repeats"
    assert refusal(in_groups(algorithm), union(GROUPS, "group"), repeats=3).name == "repeats"


@pytest.mark.parametrize("algorithm", [Hyperband(), PopulationTraining()])
@pytest.mark.parametrize("rule", [SuccessiveHalving(), StudentRacing(), WilcoxonRacing()])
def test_rules_that_compare_trials_from_their_first_step_are_refused(rule, algorithm):
    assert refusal(algorithm, stopping=rule).name == "stopping"
    in_each = refusal(in_groups(algorithm), union(GROUPS, "group"), stopping=[rule])
    assert in_each.name == "stopping"


def test_halving_would_compare_a_trial_that_resumes_at_steps_that_it_has_not_trained():
    judge = SuccessiveHalving(reduction_factor=2).start(Direction.MAX)
    assert judge.report(0, 1, 0.5) is None
    assert judge.report(1, 9, 0.9) is None  # its first report, after a checkpoint of step 8
    assert judge.report(2, 1, 0.6) == "step 1: 0.6 is not among the best 1 of 3 trials"
