import math
import random
from collections import Counter

import pytest

from search.algorithms import Evolution, Random
from search.direction import Direction
from search.errors import InvalidArgument, NothingAllowed
from search.evolution.population_based import PopulationTraining
from search.grouped import Grouped, GroupedSearch
from search.random_search import RandomSearch
from search.searcher import Problem, Selection, drive, judge_of
from search.sequential.bayesian import BayesianOptimization
from search.space.groups import read_groups, union
from search.space.points import read_first_points
from search.space.spaces import Choice, Float, Space
from search.space.tried import NONE_LEFT
from search.stopping.judges_of_groups import JudgesOfGroups
from search.stopping.rules import SuccessiveHalving
from search.trial import Evaluated
from tests.search.fakes import evaluated_by, outcome, recorded, started

LINE = Space({"x": Float(0.0, 1.0)})


def sampled(samples, seed=0):
    return RandomSearch(Problem(space=LINE, samples=samples, rng=random.Random(seed)))


def bayesian(samples, seed=0):
    return started(BayesianOptimization, LINE, seed, samples=samples, direction=Direction.MIN)


def groups_of(trials):
    return "".join(trial.params["group"] for trial in trials)


def asked_by(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


def test_the_groups_take_turns_until_all_are_done():
    searcher = GroupedSearch({"a": sampled(4), "b": sampled(2), "c": sampled(3)})
    assert searcher.total == 9
    trials = asked_by(searcher, evaluated_by(lambda params: params["x"]))
    assert groups_of(trials) == "abcabcaca"
    assert list(trials[0].params) == ["group", "x"]


def test_groups_whose_spaces_are_used_up_are_named():
    few = Problem(space=Space.of_bounds({"x": [1, 2]}), samples=4, rng=random.Random(0))
    searcher = GroupedSearch({"a": sampled(4), "b": RandomSearch(few)})
    assert searcher.totals == {"a": 4, "b": 2}
    assert searcher.exhausted_groups == {"b": NONE_LEFT}
    assert searcher.exhausted == f"'b': {NONE_LEFT}"
    assert groups_of(asked_by(searcher, evaluated_by(lambda params: 0.0))) == "ababaa"


def test_a_group_without_a_trial_loses_its_turn():
    by_generation = Evolution(popsize=4, generations=1, generational=True)
    waiting = by_generation.start(Problem(space=LINE, rng=random.Random(0)))
    searcher = GroupedSearch({"a": waiting, "b": sampled(6)})
    trials = [searcher.ask() for _ in range(10)]
    assert groups_of(trials) == "ababababbb"
    assert searcher.ask() is None
    assert not searcher.finished
    for trial in trials:
        searcher.tell(outcome(trial, 0.5))
    assert groups_of([searcher.ask() for _ in range(4)]) == "aaaa"
    assert searcher.finished


def test_trials_of_a_group_do_not_depend_on_the_others():
    def loss(params):
        targets = {"a": 0.2, "b": 0.7}
        return (params["x"] - targets[params["group"]]) ** 2

    searcher = GroupedSearch({"a": bayesian(15), "b": bayesian(15, seed=1)})
    trials = asked_by(searcher, evaluated_by(loss))
    alone = asked_by(bayesian(15), evaluated_by(lambda params: (params["x"] - 0.2) ** 2))
    own = [trial.params["x"] for trial in trials if trial.params["group"] == "a"]
    assert own == [trial.params["x"] for trial in alone]
    for group, target in (("a", 0.2), ("b", 0.7)):
        best = min((t for t in trials if t.params["group"] == group), key=lambda t: loss(t.params))
        assert best.params["x"] == pytest.approx(target, abs=0.01)


def test_a_member_resumes_from_a_trial_of_its_own_group():
    kinds = {
        group: started(PopulationTraining, LINE, seed, popsize=4, generations=3)
        for seed, group in enumerate("ab")
    }
    trials = asked_by(GroupedSearch(kinds), evaluated_by(lambda params: params["x"]))
    parents = [(trial, trials[trial.parent]) for trial in trials if trial.parent is not None]
    assert len(parents) == 24
    for trial, parent in parents:
        assert trial.params["group"] == parent.params["group"]
        assert trial.generation == parent.generation + 1


def test_a_group_with_too_many_failures_ends_and_the_others_continue():
    searcher = GroupedSearch({"a": sampled(10), "b": sampled(5)}, max_failures=2)

    def evaluate(trial):
        return outcome(trial, None if trial.params["group"] == "a" else 1.0)

    trials = asked_by(searcher, evaluate)
    assert groups_of(trials) == "abababbb"[:5] + "bbb"
    assert searcher.total == len(trials) == 8
    assert searcher.finished


@pytest.mark.parametrize("direction", Direction)
def test_a_group_that_has_reached_the_target_gets_no_more(direction):
    searcher = GroupedSearch(
        {"a": sampled(10), "b": sampled(5)}, direction=direction, target=direction.weight
    )

    def evaluate(trial):
        good = trial.id == 4 or (trial.params["group"] == "b" and trial.id > 5)
        return outcome(trial, direction.weight * (1.0 if good else 0.5))

    assert groups_of(asked_by(searcher, evaluate)) == "ababa" + "bb"
    assert searcher.total == 7


def test_a_search_whose_groups_have_all_ended_ends():
    searcher = GroupedSearch({"a": sampled(10), "b": sampled(5)}, max_failures=0)
    out = [searcher.ask() for _ in range(4)]
    for trial in out:
        searcher.tell(outcome(trial, None))
    assert searcher.finished
    assert searcher.ask() is None
    assert searcher.total == 4


def test_trials_are_asked_again_in_another_order_of_groups():
    """As with more samples than before: the groups took turns in another order."""
    before = asked_by(
        GroupedSearch({"a": bayesian(2), "b": bayesian(4, 1)}), evaluated_by(lambda p: p["x"])
    )
    assert groups_of(before) == "ababbb"[:4] + "bb"
    searcher = GroupedSearch({"a": bayesian(4), "b": bayesian(6, 1)})
    for trial in before:
        assert searcher.ask_again(trial) == trial
        searcher.tell(outcome(trial, trial.params["x"]))
    assert groups_of([searcher.ask() for _ in range(4)]) == "abab"
    assert searcher.finished


def test_trials_of_an_unknown_group_are_not_asked_again():
    [trial] = asked_by(GroupedSearch({"c": sampled(1)}), evaluated_by(lambda p: p["x"]))
    assert GroupedSearch({"a": sampled(1)}).ask_again(trial) is None


BOUNDS = {"eu": {"lr": [0.1, 0.001], "n": [1, 4]}, "us": {"lr": [1.0, 0.01], "n": [2, 8]}}


class Noting(RandomSearch):
    """Records its trials' reports, and stops those that report a negative number."""

    @property
    def judge(self):
        return self

    def report(self, trial, step, value):
        return f"trial {trial} reported {value}" if value < 0 else None

    def ended(self, trial, status):
        self.last_ended = trial, status


def test_each_group_judges_its_own_trials_by_their_own_numbers():
    noting = Noting(Problem(space=LINE, samples=3, rng=random.Random(0)))
    searcher = GroupedSearch({"a": sampled(3), "b": noting})
    assert groups_of([searcher.ask() for _ in range(4)]) == "abab"
    judge = judge_of(searcher)
    assert judge.report(3, 0, -1.0) == "trial 1 reported -1.0"
    assert judge.report(3, 1, 1.0) is None
    assert judge.report(2, 0, -1.0) is None
    judge.ended(3, "stopped")
    judge.ended(2, "finished")
    assert noting.last_ended == (1, "stopped")
    assert judge_of(GroupedSearch({"a": sampled(3)})) is None


def test_rules_compare_the_trials_of_a_group_only():
    searcher = GroupedSearch({"a": sampled(3), "b": sampled(3)})
    assert groups_of([searcher.ask() for _ in range(4)]) == "abab"
    judge = JudgesOfGroups([SuccessiveHalving()], Direction.MAX, searcher.group_of)
    assert judge.report(0, 1, 9.0) is None
    assert judge.report(1, 1, 1.0) is None
    assert judge.report(2, 1, 5.0) is not None
    assert judge.report(3, 1, 2.0) is None


class Selecting(RandomSearch):
    """Lets each trial take the place of the one before it."""

    selections = ()

    def tell(self, outcome):
        super().tell(outcome)
        holder = outcome.trial - 1 if outcome.trial else None
        self.selections = [Selection(outcome.trial, True, holder)]


def test_the_selections_of_a_group_name_the_trials_of_the_whole_search():
    selecting = Selecting(Problem(space=LINE, samples=2, rng=random.Random(0)))
    searcher = GroupedSearch({"a": sampled(2), "b": selecting})
    assert searcher.selections == ()
    said = []
    for trial in [searcher.ask() for _ in range(4)]:
        searcher.tell(outcome(trial, 0.5))
        said.append(list(searcher.selections))
    assert said == [[], [Selection(1, True, None)], [], [Selection(3, True, 1)]]


class Expecting(RandomSearch):
    """Expects ten times a trial's own number of it."""

    def acquisition_of(self, trial):
        return trial * 10.0


def test_the_acquisition_of_a_trial_is_that_of_its_group():
    expecting = Expecting(Problem(space=LINE, samples=2, rng=random.Random(0)))
    searcher = GroupedSearch({"a": sampled(2), "b": expecting})
    trials = [searcher.ask() for _ in range(4)]
    assert [searcher.acquisition_of(trial.id) for trial in trials] == [None, 0.0, None, 10.0]


def test_a_constraint_that_allows_a_group_nothing_is_refused_at_the_start():
    spaces = read_groups(BOUNDS, "group", lambda params: params["group"] != "us")
    problem = Problem(space=union(spaces, "group"), rng=random.Random(0), samples=3)
    with pytest.raises(NothingAllowed) as caught:
        Grouped(Random(), spaces).start(problem)
    assert caught.value.name == "constraint"
    assert caught.value.got.startswith("group 'us': none among 10,000 drawn at random")


def test_an_error_of_a_constraint_names_the_group():
    def constraint(params):
        raise RuntimeError("boom")

    with pytest.raises(InvalidArgument) as caught:
        Grouped(Random(), read_groups(BOUNDS, "group", constraint)).start(problem()[1])
    assert caught.value.got.startswith("group 'eu': RuntimeError: boom, for {")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_constraint_gets_the_group():
    def constraint(params):
        return params["group"] == "eu" or params["n"] < 5

    spaces = read_groups(BOUNDS, "group", constraint)
    assert spaces["eu"].allows_params({"lr": 0.01, "n": 4})
    assert not spaces["us"].allows_params({"lr": 0.01, "n": 8})
    with pytest.raises(InvalidArgument, match="^constraint: expected a function"):
        read_groups(BOUNDS, "group", 5)


def problem(**arguments):
    spaces = read_groups(BOUNDS, "group")
    space = union(spaces, "group")
    return spaces, Problem(space=space, rng=random.Random(0), samples=3, **arguments)


def test_points_and_prior_observations_go_to_their_group():
    points = [{"group": "us", "lr": 0.5, "n": 7}, {"group": "eu", "lr": 0.05, "n": 2}]
    known = [Evaluated({"group": "us", "lr": 0.25, "n": 3}, 1.0)]
    spaces, whole = problem(points=points, known=known)
    started = []

    class Noting(Random):
        def start(self, problem):
            started.append(problem)
            return super().start(problem)

    Grouped(searcher=Noting(), spaces=spaces).start(whole)
    eu, us = started
    assert (eu.space, us.space) == (spaces["eu"], spaces["us"])
    assert eu.rng.random() != us.rng.random()
    assert (eu.points, us.points) == ([{"lr": 0.05, "n": 2}], [{"lr": 0.5, "n": 7}])
    assert (eu.known, us.known) == ([], [Evaluated({"lr": 0.25, "n": 3}, 1.0)])


@pytest.mark.parametrize("given", ["points", "known"])
def test_points_outside_their_groups_bounds_are_refused(given):
    params = {"group": "eu", "lr": 0.5, "n": 2}
    arguments = {given: [params if given == "points" else Evaluated(params, 1.0)]}
    spaces, whole = problem(**arguments)
    with pytest.raises(InvalidArgument) as caught:
        Grouped(searcher=Random(), spaces=spaces).start(whole)
    assert caught.value.name == "bounds['eu']['lr']"


@pytest.mark.parametrize("seed", range(5))
def test_what_a_point_leaves_out_is_drawn_from_the_bounds_of_its_group(seed):
    bounds = {"eu": {"x": [0.0, 1.0], "n": [1, 9]}, "us": {"x": [10.0, 2000.0], "n": [1, 20]}}
    spaces = read_groups(bounds, "group", lambda p: (p["group"], p["n"]) != ("us", 7))
    settings, space = Grouped(Random(), spaces), union(spaces, "group")
    given = [{"group": "eu"}, {"n": 3}, {"n": 15}, {"n": 7}, {"group": "us", "x": 0.5}]
    rng = random.Random(seed)
    points = read_first_points(space, given, rng, complete=settings.completed_each)
    assert all(list(point) == ["group", "x", "n"] for point in points)
    assert all(point.items() >= own.items() for point, own in zip(points, given, strict=True))
    for point in points[:4]:  # the last one has a value of another group
        own = dict(point)
        assert own["x"] in spaces[own.pop("group")]["x"]
        Grouped(Random(), spaces).start(
            Problem(space=space, rng=random.Random(0), samples=3, points=[point])
        )
    assert [point["group"] for point in points[2:5]] == ["us", "eu", "us"]


@pytest.mark.parametrize("seed", range(5))
def test_points_without_a_group_are_spread_over_the_groups(seed):
    spaces = read_groups({"eu": {"x": [0.0, 1.0]}, "us": {"x": [0.0, 1.0]}}, "group")
    settings, space = Grouped(Random(), spaces), union(spaces, "group")
    given, rng = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}, {"group": "us"}], random.Random(seed)
    points = read_first_points(space, given, rng, complete=settings.completed_each)
    assert Counter(point["group"] for point in points) == {"eu": 2, "us": 2}


def test_a_group_with_more_points_than_trials_is_named():
    spaces = read_groups(BOUNDS, "group")
    points = [{"group": "us", "n": number} for number in (3, 4, 5)]
    whole = Problem(space=union(spaces, "group"), rng=random.Random(0), samples=2, points=points)
    with pytest.raises(InvalidArgument, match=r"points: expected at most 2, .*got group 'us': 3$"):
        Grouped(Random(), spaces).start(whole)


def test_a_point_that_no_group_allows_is_refused_by_its_name():
    spaces = read_groups(BOUNDS, "group", lambda params: params["n"] != 3)
    complete = Grouped(Random(), spaces).completed_each
    with pytest.raises(InvalidArgument, match=r"^points\[1\]: expected a configuration"):
        points = [{"n": 2}, {"n": 3}]
        read_first_points(union(spaces, "group"), points, random.Random(0), complete=complete)


def test_a_point_beyond_the_bounds_of_all_groups_is_refused_by_its_name():
    spaces = read_groups({"eu": {"x": [0.0, 1.0]}, "us": {"x": [10.0, 2000.0]}}, "group")
    complete = Grouped(Random(), spaces).completed_each
    with pytest.raises(InvalidArgument) as caught:
        read_first_points(union(spaces, "group"), [{"x": 5.0}], random.Random(0), complete=complete)
    assert str(caught.value) == (
        "points[0]: expected values within the bounds of a group, got {'x': 5.0}"
    )


def test_a_point_with_a_value_that_its_group_lacks_is_refused():
    bounds = {"eu": {"kind": Choice(["a", "b"])}, "us": {"kind": Choice(["b", "c"])}}
    spaces = read_groups(bounds, "group")
    points = [{"group": "us", "kind": "b"}, {"group": "eu", "kind": "c"}]
    whole = Problem(space=union(spaces, "group"), rng=random.Random(0), samples=3, points=points)
    with pytest.raises(InvalidArgument) as caught:
        Grouped(searcher=Random(), spaces=spaces).start(whole)
    assert caught.value.name == "bounds['eu']['kind']"


def test_the_settings_as_json_determine_the_trials():
    spaces, whole = problem()
    settings = Grouped(searcher=Random(), spaces=spaces, max_failures=3)
    assert settings.to_json() == {
        "type": "search each",
        "searcher": {"type": "random"},
        "by": "group",
        "bounds": {group: space.to_json() for group, space in spaces.items()},
    }
    trials = asked_by(settings.start(whole), evaluated_by(lambda params: math.log(params["lr"])))
    assert groups_of(trials) == "euus" * 3
    assert all(trial.params["lr"] <= 0.1 for trial in trials if trial.params["group"] == "eu")
