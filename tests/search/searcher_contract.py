"""The contract of algorithms, in parts: a test class inherits those that its algorithm keeps."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.errors import InvalidArgument
from search.searcher import Problem, ask_again, drive, why_exhausted
from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import NONE_LEFT
from search.trial import Evaluated
from tests.properties import examples
from tests.search.fakes import (
    all_fail,
    evaluated_by,
    outcome,
    recorded,
    run_in_any_order,
)

MIXED = Space.of_bounds(
    {
        "lr": [0.1, 0.0001],
        "dropout": [0.0, 0.5],
        "units": [4, 12],
        "optimizer": ["adam", "sgd", "rmsprop"],
        "bias": [True, False],
    }
)


CHOICES = Space.of_bounds({"units": [4, 8, 16, 32], "first": list("abc"), "second": list("xyz")})


SMALL = Space.of_bounds({"units": [4, 6], "bias": [True, False], "region": Choice(["eu"])})


ONE = Space.of_bounds({"units": [4, 4]})


USED_UP = Space.of_bounds({"units": [1, 9]}, constraint=lambda params: params["units"] % 2 == 1)


LARGE = Space.of_bounds(
    {"units": [1, 9], "n": Integer(0, 20_000, when={"units": 1})},
    constraint=lambda params: params["units"] in {2, 4, 6},
)
"""Too many configurations to count beforehand, of which three are allowed."""


SPACES = {
    "mixed": MIXED,
    "choices": CHOICES,
    "smaller than the budget": SMALL,
    "real numbers": Space.of_bounds({"units": [4.0, 12.0], "lr": [0.1, 0.0001]}),
    "steps and an order": Space.of_bounds(
        {
            "units": Integer(8, 64, step=8),
            "rate": Float(0.0, 0.5, step=0.1),
            "size": Choice(["small", "medium", "large"], ordered=True),
        }
    ),
    "conditions": Space.of_bounds(
        {
            "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
            "optimizer": Choice(["adam", "sgd"]),
            "nesterov": Choice([True, False], when={"optimizer": "sgd"}),
            "decay": Choice([0.1, 0.01], when={"nesterov": True}),
            "units": Integer(4, 12),
        }
    ),
    "a constraint": Space.of_bounds(
        {"units": [4, 12], "layers": [1, 4], "bias": [True, False]},
        constraint=lambda params: params["units"] * params["layers"] <= 24,
    ),
}


FIRST = [
    {"lr": 0.0003, "dropout": 0.1, "units": 7, "optimizer": "sgd", "bias": True},
    {"lr": 0.1, "dropout": 0.30000000000000004, "units": 12, "optimizer": "adam", "bias": False},
    {"lr": 0.0001, "dropout": 0.0, "units": 4, "optimizer": "rmsprop", "bias": True},
]


KNOWN = [
    Evaluated(
        {
            "lr": 0.001 + number / 1e4,
            "dropout": number / 60,
            "units": 4 + number % 9,
            "optimizer": ("adam", "sgd", "rmsprop")[number % 3],
            "bias": number % 2 == 0,
        },
        None if number % 5 == 1 else number / 7,
    )
    for number in range(30)
]


def units(params):
    return float(params["units"])


def sometimes_without_value(trial):
    """Fail a third of the trials, and give NaN to another third, beginning with the first."""
    return outcome(trial, (math.nan, None, trial.params["units"])[trial.id % 3])


def without_value(value):
    """Return an evaluation that gives every third trial its own value, and all others `value`."""
    return lambda trial: outcome(trial, units(trial.params) if trial.id % 3 == 2 else value)


def lies_in(space, params):
    """Whether it is a configuration: the active names only, each with a value of its domain."""
    active = space.decode(space.encode(params))
    return (
        list(params) == list(active)
        and space.allows_params(params)
        and all(
            value in space[name] and type(value) is type(active[name])
            for name, value in params.items()
        )
    )


def configuration(params):
    return tuple((name, type(value), str(value)) for name, value in params.items())


def asked_by(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


class Noted:
    """A searcher whose calls are recorded, as by a journal: only those with a trial."""

    def __init__(self, searcher, events=None):
        self._searcher, self._events = searcher, [] if events is None else events

    @property
    def finished(self):
        return self._searcher.finished

    def ask(self):
        trial = self._searcher.ask()
        if trial is not None:
            self._events.append(("ask", trial))
        return trial

    def tell(self, outcome):
        self._events.append(("tell", outcome))
        self._searcher.tell(outcome)


class Ending(Noted):
    """Checks that a searcher is finished from its last trial on, and not before."""

    def __init__(self, searcher, total):
        super().__init__(searcher)
        self._left = total

    def ask(self):
        assert self._searcher.finished == (self._left == 0)
        trial = super().ask()
        self._left -= trial is not None
        assert self._searcher.finished == (self._left == 0)
        return trial

    def tell(self, outcome):
        super().tell(outcome)
        assert self._searcher.finished == (self._left == 0)


class Impatient(Noted):
    def ask(self):
        trial = super().ask()
        if trial is None:
            assert [self._searcher.ask() for _ in range(3)] == [None] * 3
        return trial


def assert_rebuilt(make, order, evaluate=None):
    """Run a searcher in some order; check that each ask returns the same after the same events.

    Also where it was asked again, as by a journal, for the first half of them.

    Returns:
        The trials.
    """
    events = []
    trials = run_in_any_order(Noted(make(), events), evaluate or evaluated_by(units), order)
    rebuilt, resumed = make(), make()
    for number, (what, item) in enumerate(events):
        if what == "ask":
            assert rebuilt.ask() == item
            first_half = number < len(events) / 2
            assert (ask_again(resumed, item) if first_half else resumed.ask()) == item
        else:
            rebuilt.tell(item)
            resumed.tell(item)
    assert rebuilt.finished
    assert resumed.finished
    return trials


class SearcherContract:
    """The contract of every searcher; the test class of each of them inherits this.

    One that searches any space inherits `SpacesContract`, and whatever else it promises:
    `OrderlessContract`, `NoRepeatsContract`, `LearningContract`, ...

    Attributes:
        algorithm: The settings that the searcher is started from.
        samples: For algorithms that do not know how many trials there are.
        total: How many there are.
        space: That `make` searches; every space has "units".
        examples: In how many orders each property is looked at; few where a trial takes long.
    """

    algorithm = None
    samples = None
    total = 0
    space = MIXED
    examples = 10

    def most(self, configurations):
        """Return the number of trials in a space with so many configurations left."""
        return self.total

    def make(self, seed=0):
        return self.started(seed=seed)

    def started(self, points=(), known=(), seed=0, space=None, direction=Direction.MAX):
        problem = Problem(
            space=self.space if space is None else space,
            rng=random.Random(seed),
            direction=direction,
            samples=self.samples,
            points=points,
            known=known,
        )
        return self.algorithm.start(problem)

    def in_any_order(self, check):
        """Call `check` with many generators, by which it mixes the calls of ask and tell."""

        @examples(self.examples)
        @given(st.randoms(use_true_random=True))
        def check_one(order):
            check(order)

        check_one()

    def test_total_is_the_number_of_trials(self):
        searcher = self.make()
        assert searcher.total == self.total
        assert len(drive(searcher, evaluated_by(units))) == self.total
        assert searcher.total == self.total

    def test_ids_count_from_zero(self):
        trials = asked_by(self.make(), evaluated_by(units))
        assert [trial.id for trial in trials] == list(range(self.total))

    def test_every_point_lies_in_the_space(self):
        for trial in asked_by(self.make(), evaluated_by(units)):
            assert lies_in(self.space, trial.params)
            point = self.space.encode(trial.params)
            assert all(0 <= coordinate <= 1 for coordinate in point)
            again = self.space.decode(point)
            assert list(again) == list(trial.params) == list(self.space)
            for name, value in trial.params.items():
                assert type(again[name]) is type(value)
                assert again[name] == (pytest.approx(value) if type(value) is float else value)

    def test_finished_with_the_last_ask_and_not_before(self):
        searcher = self.make()
        last = None
        for _ in range(self.total):
            assert not searcher.finished
            if last is not None:
                searcher.tell(outcome(last, 1.0))
            assert not searcher.finished
            last = searcher.ask()
        assert searcher.finished
        searcher.tell(outcome(last, 1.0))
        assert searcher.finished

    def test_ask_returns_none_once_finished(self):
        searcher = self.make()
        trials = asked_by(searcher, evaluated_by(units))
        assert len(trials) == self.total
        assert [searcher.ask() for _ in range(3)] == [None] * 3
        assert searcher.finished

    def test_ask_returns_none_while_the_last_trials_are_in_flight(self):
        searcher = self.make()
        for number in range(self.total):
            trial = searcher.ask()
            if number < self.total - 1:
                searcher.tell(outcome(trial, 1.0))
        assert searcher.ask() is None
        searcher.tell(outcome(trial, 1.0))
        assert searcher.ask() is None

    def test_same_seed_gives_the_same_trials(self):
        one, same = (asked_by(self.make(seed=5), evaluated_by(units)) for _ in range(2))
        assert one == same

    @pytest.mark.property
    def test_in_any_order_of_outcomes_each_trial_comes_once_and_finished_follows_the_last(self):
        def check(order):
            searcher = self.make()
            trials = run_in_any_order(Ending(searcher, self.total), sometimes_without_value, order)
            assert [trial.id for trial in trials] == list(range(self.total))
            assert searcher.ask() is None

        self.in_any_order(check)

    @pytest.mark.property
    def test_a_searcher_is_rebuilt_by_the_same_ask_and_tell_calls(self):
        self.in_any_order(lambda order: assert_rebuilt(self.make, order))

    def test_two_searchers_at_once_share_nothing(self):
        alone = asked_by(self.make(), evaluated_by(units))
        one, other = self.make(), self.make()
        for trial in alone:
            for searcher in (one, other):
                assert searcher.ask() == trial
                searcher.tell(evaluated_by(units)(trial))

    @pytest.mark.property
    def test_a_value_that_is_no_number_is_a_failure(self):
        def check(order):
            state = order.getstate()
            failed = run_in_any_order(self.make(), without_value(None), order)
            order.setstate(state)
            assert run_in_any_order(self.make(), without_value(math.nan), order) == failed

        self.in_any_order(check)

    @pytest.mark.property
    def test_an_ask_that_returns_none_changes_nothing(self):
        def check(order):
            state = order.getstate()
            once = run_in_any_order(self.make(), evaluated_by(units), order)
            order.setstate(state)
            assert run_in_any_order(Impatient(self.make()), evaluated_by(units), order) == once

        self.in_any_order(check)

    def test_failed_and_nan_outcomes_are_accepted_and_never_the_best(self):
        for direction in Direction:
            outcomes = drive(self.make(), sometimes_without_value)
            assert len(outcomes) == self.total
            best = direction.best(outcomes, lambda item: item.value)
            numbers = [item.value for item in outcomes if item.trial % 3 == 2]
            assert best.value == (max if direction is Direction.MAX else min)(numbers)

    @pytest.mark.parametrize("value", [None, math.nan])
    def test_a_search_whose_trials_all_fail_ends(self, value):
        outcomes = drive(self.make(), lambda trial: outcome(trial, value))
        assert len(outcomes) == self.total
        assert Direction.MAX.best(outcomes, lambda item: item.value) is None

    def test_drive_returns_one_outcome_per_trial_in_order(self):
        outcomes = drive(self.make(), lambda trial: outcome(trial, trial.id * 0.5))
        assert [item.trial for item in outcomes] == list(range(self.total))
        assert [item.value for item in outcomes] == [number * 0.5 for number in range(self.total)]


class OrderlessContract(SearcherContract):
    """The contract of searchers for which the order of outcomes does not matter."""

    @pytest.mark.property
    def test_outcomes_may_come_in_any_order(self):
        in_order = asked_by(self.make(), sometimes_without_value)

        def check(order):
            assert run_in_any_order(self.make(), sometimes_without_value, order) == in_order

        self.in_any_order(check)


class RandomSearcherContract(SearcherContract):
    """The contract of searchers that draw random numbers."""

    def test_another_seed_gives_other_trials(self):
        one, other = (asked_by(self.make(seed), evaluated_by(units)) for seed in (1, 2))
        assert one != other

    def test_global_random_numbers_are_neither_drawn_nor_used(self):
        random.seed(2)
        # The first search imports packages, some of which draw (rich, which scikit-learn imports).
        one = asked_by(self.make(), sometimes_without_value)
        random.seed(1)
        before = random.getstate()
        assert asked_by(self.make(), sometimes_without_value) == one
        assert random.getstate() == before


class SpacesContract(SearcherContract):
    """The contract of searchers that search any space."""

    def most_in(self, space):
        return self.most(6 if space is SMALL else self.total)

    @pytest.mark.property
    @pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
    def test_every_point_lies_in_its_space_and_the_same_ask_and_tell_calls_rebuild(self, space):
        def check(order):
            seed = order.randrange(100)
            trials = assert_rebuilt(
                lambda: self.started(space=space, seed=seed), order, sometimes_without_value
            )
            assert len(trials) == self.most_in(space)
            assert all(lies_in(space, trial.params) for trial in trials)

        self.in_any_order(check)

    @pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
    def test_a_search_of_any_space_whose_trials_all_fail_ends(self, space):
        assert len(drive(self.started(space=space), all_fail)) == self.most_in(space)


class LearningContract(SpacesContract):
    """The contract of searchers that learn from outcomes.

    Attributes:
        learner: Settings with which it has learnt something at the end; None: those of `algorithm`.
    """

    learner = None
    seeds = 20

    @pytest.mark.parametrize("value", [None, math.nan])
    @pytest.mark.parametrize("direction", Direction)
    def test_failed_trials_attract_no_others(self, direction, value):
        """A third of the space fails; zero would be better than anything else."""
        space = Space.of_bounds(
            {"units": [4, 40], "kind": ["good", "bad", "fair"], "x": [0.0, 1.0]}
        )
        self.algorithm = self.learner or self.algorithm

        def evaluate(trial):
            score = -direction.weight * (trial.params["units"] + 1.0)
            return outcome(trial, value if trial.params["kind"] == "bad" else score)

        last = []
        for seed in range(self.seeds):
            searcher = self.started(space=space, seed=seed, direction=direction)
            last += asked_by(searcher, evaluate)[-(searcher.total // 3) :]
        bad = sum(trial.params["kind"] == "bad" for trial in last)
        assert bad < len(last) / 4

    @pytest.mark.parametrize("direction", Direction)
    def test_the_directions_are_mirror_images(self, direction):
        def negated(trial):
            return outcome(trial, -units(trial.params))

        other = Direction.MIN if direction is Direction.MAX else Direction.MAX
        trials = asked_by(self.started(direction=direction), evaluated_by(units))
        assert asked_by(self.started(direction=other), negated) == trials


class PointsContract(SearcherContract):
    """The contract of searchers that try given points first."""

    def test_points_come_first_in_their_order_and_exactly(self):
        trials = asked_by(self.started(points=FIRST), evaluated_by(units))
        assert [trial.params for trial in trials[:3]] == FIRST
        assert [list(map(type, trial.params.values())) for trial in trials[:3]] == [
            list(map(type, point.values())) for point in FIRST
        ]

    def test_points_are_among_the_trials(self):
        searcher = self.started(points=FIRST)
        trials = asked_by(searcher, evaluated_by(units))
        assert searcher.total == len(trials) == self.total
        assert [trial.id for trial in trials] == list(range(self.total))

    def test_a_point_that_was_given_twice_is_tried_twice(self):
        trials = asked_by(self.started(points=FIRST[:1] * 2), evaluated_by(units))
        assert [trial.params for trial in trials[:2]] == FIRST[:1] * 2

    def test_more_points_than_can_be_tried_first_are_refused(self):
        with pytest.raises(InvalidArgument, match=r"^points: expected at most \d+, the number of"):
            self.started(points=FIRST * 50)

    def test_points_may_fail(self):
        assert len(drive(self.started(points=FIRST), all_fail)) == self.total

    @pytest.mark.property
    def test_a_searcher_with_points_is_rebuilt_by_the_same_ask_and_tell_calls(self):
        self.in_any_order(lambda order: assert_rebuilt(lambda: self.started(points=FIRST), order))

    def test_changing_a_point_later_changes_no_trial(self):
        points = [dict(point) for point in FIRST]
        searcher = self.started(points=points)
        trial = searcher.ask()
        points[0]["units"] = 5
        assert trial.params == FIRST[0]


class KnownContract(PointsContract):
    """The contract of searchers that learn from prior observations."""

    def test_prior_observations_are_not_among_the_trials(self):
        searcher = self.started(known=KNOWN)
        trials = asked_by(searcher, evaluated_by(units))
        assert [trial.id for trial in trials] == list(range(self.total))
        assert searcher.total == self.total

    def test_prior_observations_may_cover_the_whole_space(self):
        space = Space.of_bounds({"a": [0, 1], "b": [True, False]})
        known = [Evaluated({"a": a, "b": b}, 1.0) for a in (0, 1) for b in (True, False)]
        searcher = self.started(known=known, space=space)
        assert len(drive(searcher, evaluated_by(lambda params: 0.0))) == self.most(0)

    def test_points_come_first_with_prior_observations_too(self):
        known = [*KNOWN, Evaluated(FIRST[1], 0.5)]
        trials = asked_by(self.started(points=FIRST, known=known), evaluated_by(units))
        assert [trial.params for trial in trials[:3]] == FIRST

    @pytest.mark.parametrize("value", [None, math.nan])
    def test_prior_observations_may_have_failed(self, value):
        known = [Evaluated(item.params, value) for item in KNOWN]
        assert len(drive(self.started(known=known), evaluated_by(units))) == self.total
        assert len(drive(self.started(known=known), all_fail)) == self.total

    @pytest.mark.property
    @pytest.mark.parametrize("count", [2, 30])
    def test_a_searcher_with_prior_observations_is_rebuilt_by_the_same_ask_and_tell_calls(
        self, count
    ):
        def make():
            return self.started(points=FIRST, known=KNOWN[:count])

        self.in_any_order(lambda order: assert_rebuilt(make, order))


class NoveltyContract(KnownContract):
    """The contract of searchers that do not repeat prior observations while there are others."""

    def test_prior_observations_are_never_tried_again(self):
        space = Space.of_bounds({"a": [0, 7], "b": list("abcdef")})
        grid = [{"a": a, "b": b} for a in range(8) for b in "abcdef"]
        random.Random(0).shuffle(grid)
        known = [Evaluated(params, float(params["a"])) for params in grid[:20]]
        for seed in range(5):
            searcher = self.started(known=known, seed=seed, space=space)
            trials = asked_by(searcher, evaluated_by(lambda params: float(params["a"])))
            assert not [trial for trial in trials if trial.params in grid[:20]]


class NoRepeatsContract(NoveltyContract):
    """The contract of searchers that try no configuration twice."""

    def most(self, configurations):
        return min(configurations, self.total)

    @pytest.mark.property
    @pytest.mark.parametrize("kind", ["one configuration", "used up", *SPACES])
    def test_no_configuration_is_tried_twice(self, kind):
        space = {"one configuration": ONE, "used up": USED_UP, **SPACES}[kind]
        # The others have more than enough.
        size = {"one configuration": 1, "used up": 5, "smaller than the budget": 6}.get(kind)

        def check(order):
            searcher = self.started(space=space, seed=order.randrange(100))
            trials = run_in_any_order(searcher, sometimes_without_value, order)
            assert len({configuration(trial.params) for trial in trials}) == len(trials)
            assert len(trials) == searcher.total == min(size or self.total, self.total)
            assert (why_exhausted(searcher) is None) == (len(trials) == self.total)

        self.in_any_order(check)

    def test_a_space_that_is_too_small_is_known_before_the_first_trial(self):
        searcher = self.started(space=SMALL)
        assert (searcher.total, why_exhausted(searcher)) == (6, NONE_LEFT)

    @pytest.mark.parametrize("tried", [0, 1])
    def test_what_lies_between_two_steps_leaves_the_values_next_to_it(self, tried):
        space = Space({"units": Integer(0, 10, step=5)})
        points = [{"units": 3}, {"units": 10}]
        known = [Evaluated(params, 1.0) for params in points[:tried]]

        def make():
            return self.started(space=space, points=points[tried:], known=known)

        assert_rebuilt(make, random.Random(0))
        searcher = make()
        assert searcher.total == 4 - tried
        trials = asked_by(searcher, evaluated_by(units))
        assert [trial.params for trial in trials[: 2 - tried]] == points[tried:]
        expected = [0, 5, 10] if tried else [0, 3, 5, 10]
        assert sorted(trial.params["units"] for trial in trials) == expected

    def test_a_space_that_is_too_large_to_count_may_be_used_up_too(self):
        searcher = self.started(space=LARGE)
        assert searcher.total == self.total
        trials = asked_by(searcher, evaluated_by(lambda params: float(params["units"])))
        assert {trial.params["units"] for trial in trials} == {2, 4, 6}
        assert (len(trials), searcher.total, why_exhausted(searcher)) == (3, 3, NONE_LEFT)
