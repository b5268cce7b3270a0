import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

import search
from search import (
    DifferentialEvolution,
    Direction,
    Evaluated,
    ExperimentError,
    GridSearch,
    InvalidArgument,
    PointSearch,
    PopulationBasedTraining,
    Problem,
    RandomSearch,
    Space,
    SteadyStateEvolution,
    drive,
)
from search.algorithms import Evolution, Grid, PopulationTraining, Random
from tests.search_tests.fakes import all_fail, evaluated_by, outcome, recorded, run_in_any_order

MIXED = Space.of_bounds(
    {
        "lr": [0.1, 0.0001],
        "dropout": [0.0, 0.5],
        "units": [4, 12],
        "optimizer": ["adam", "sgd", "rmsprop"],
        "bias": [True, False],
    }
)
LISTS = Space.of_grid({"units": [4, 8, 16], "layers": [(8,), (8, 4)], "bias": [True, False]})
POINTS = [
    {"units": 4, "layers": (8, 4), "bias": True},
    {"units": 16, "layers": (8,), "bias": False},
    {"units": 8, "layers": (8,), "bias": True},
]
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


def asked_by(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


class Noted:
    """A searcher whose asks and tells are noted down, as by a journal: only those with a trial."""

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


class Impatient(Noted):
    def ask(self):
        trial = super().ask()
        if trial is None:
            assert [self._searcher.ask() for _ in range(3)] == [None] * 3
        return trial


def assert_rebuilt(make, seed):
    """Run a searcher in some order; see that asks and tells replayed make the same trials."""
    searcher, events = make(), []
    noted = Noted(searcher, events)
    trials = run_in_any_order(noted, evaluated_by(units), random.Random(seed))
    for cut in range(0, len(events), 7):
        rebuilt = make()
        for what, item in events[:cut]:
            assert rebuilt.ask() == item if what == "ask" else rebuilt.tell(item) is None
        rest = [rebuilt.ask() if w == "ask" else rebuilt.tell(item) for w, item in events[cut:]]
        asked = [item for what, item in events[:cut] if what == "ask"]
        assert asked + [trial for trial in rest if trial is not None] == trials


class SearcherContract:
    """What every searcher keeps; a test class of its own for each of them inherits this."""

    space = MIXED
    total = 0

    def make(self, seed=0):
        raise NotImplementedError

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

    def test_ask_gives_none_once_finished(self):
        searcher = self.make()
        trials = asked_by(searcher, evaluated_by(units))
        assert len(trials) == self.total
        assert [searcher.ask() for _ in range(3)] == [None] * 3
        assert searcher.finished

    def test_ask_gives_none_while_the_last_trials_are_out(self):
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

    @pytest.mark.parametrize("seed", range(5))
    def test_a_searcher_is_rebuilt_by_the_same_asks_and_tells(self, seed):
        assert_rebuilt(self.make, seed)

    @pytest.mark.parametrize("seed", range(5))
    def test_asks_for_which_there_is_no_trial_change_nothing(self, seed):
        once, often = (
            run_in_any_order(kind(self.make()), evaluated_by(units), random.Random(seed))
            for kind in (Noted, Impatient)
        )
        assert once == often

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

    def test_drive_gives_one_outcome_per_trial_in_order(self):
        outcomes = drive(self.make(), lambda trial: outcome(trial, trial.id * 0.5))
        assert [item.trial for item in outcomes] == list(range(self.total))
        assert [item.value for item in outcomes] == [number * 0.5 for number in range(self.total)]


class OrderlessContract(SearcherContract):
    """What those keep, too, for which the order of outcomes means nothing."""

    @pytest.mark.parametrize("seed", range(5))
    def test_outcomes_may_be_told_in_any_order(self, seed):
        rng = random.Random(seed)
        in_order = asked_by(self.make(), evaluated_by(units))
        assert run_in_any_order(self.make(), evaluated_by(units), rng) == in_order


class RandomSearcherContract(SearcherContract):
    """What those keep, too, that draw random numbers."""

    def test_another_seed_gives_other_trials(self):
        one, other = (asked_by(self.make(seed), evaluated_by(units)) for seed in (1, 2))
        assert one != other

    def test_global_random_numbers_are_neither_drawn_nor_used(self):
        random.seed(1)
        before = random.getstate()
        one = asked_by(self.make(), sometimes_without_value)
        assert random.getstate() == before
        random.seed(2)
        assert asked_by(self.make(), sometimes_without_value) == one


class PointsContract:
    """What those keep, too, that try given points first.

    Attributes:
        algorithm: That starts the searcher.
        samples: For algorithms that do not know.
    """

    algorithm = None
    samples = None

    def started(self, points=(), known=(), seed=0, space=MIXED):
        rng = random.Random(seed)
        given = {"points": points, "known": known, "samples": self.samples}
        return self.algorithm.start(Problem(space=space, rng=rng, **given))

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

    @pytest.mark.parametrize("seed", range(5))
    def test_a_searcher_with_points_is_rebuilt_by_the_same_asks_and_tells(self, seed):
        assert_rebuilt(lambda: self.started(points=FIRST), seed)

    def test_changing_a_point_later_changes_no_trial(self):
        points = [dict(point) for point in FIRST]
        searcher = self.started(points=points)
        searcher.ask().params["units"] = 5
        assert points == FIRST


class KnownContract(PointsContract):
    """What those keep, too, that learn from what was evaluated before."""

    def test_what_is_known_is_not_among_the_trials(self):
        searcher = self.started(known=KNOWN)
        trials = asked_by(searcher, evaluated_by(units))
        assert [trial.id for trial in trials] == list(range(self.total))
        assert searcher.total == self.total

    def test_what_is_known_may_be_all_that_there_is(self):
        space = Space.of_bounds({"a": [0, 1], "b": [True, False]})
        known = [Evaluated({"a": a, "b": b}, 1.0) for a in (0, 1) for b in (True, False)]
        searcher = self.started(known=known, space=space)
        assert len(drive(searcher, evaluated_by(lambda params: 0.0))) == self.total

    def test_points_come_first_where_something_is_known(self):
        known = [*KNOWN, Evaluated(FIRST[1], 0.5)]
        trials = asked_by(self.started(points=FIRST, known=known), evaluated_by(units))
        assert [trial.params for trial in trials[:3]] == FIRST

    @pytest.mark.parametrize("value", [None, math.nan])
    def test_what_is_known_may_have_failed(self, value):
        known = [Evaluated(item.params, value) for item in KNOWN]
        assert len(drive(self.started(known=known), evaluated_by(units))) == self.total
        assert len(drive(self.started(known=known), all_fail)) == self.total

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("count", [2, 30])
    def test_a_searcher_that_knows_something_is_rebuilt_by_the_same_asks_and_tells(
        self, seed, count
    ):
        assert_rebuilt(lambda: self.started(points=FIRST, known=KNOWN[:count]), seed)


class NoveltyContract(KnownContract):
    """What those keep, too, that try nothing that is known, as long as there is anything else."""

    def test_what_is_known_never_comes_again(self):
        space = Space.of_bounds({"a": [0, 7], "b": list("abcdef")})
        grid = [{"a": a, "b": b} for a in range(8) for b in "abcdef"]
        random.Random(0).shuffle(grid)
        known = [Evaluated(params, float(params["a"])) for params in grid[:20]]
        for seed in range(5):
            searcher = self.started(known=known, seed=seed, space=space)
            trials = asked_by(searcher, evaluated_by(lambda params: float(params["a"])))
            assert not [trial for trial in trials if trial.params in grid[:20]]


class TestGridSearch(OrderlessContract):
    space = LISTS
    total = 12

    def make(self, seed=0):
        return GridSearch(LISTS)


class TestPointSearch(OrderlessContract):
    space = LISTS
    total = 3

    def make(self, seed=0):
        return PointSearch(POINTS)


class TestRandomSearch(RandomSearcherContract, OrderlessContract, NoveltyContract):
    total = 13
    algorithm = Random()
    samples = 13

    def make(self, seed=0):
        return RandomSearch(MIXED, samples=13, rng=random.Random(seed))


class TestDifferentialEvolution(RandomSearcherContract, OrderlessContract, KnownContract):
    total = 20
    algorithm = Evolution(popsize=5, generational=True)

    def make(self, seed=0):
        return DifferentialEvolution(MIXED, rng=random.Random(seed), popsize=5, generations=3)


class TestSteadyStateEvolution(RandomSearcherContract, NoveltyContract):
    total = 20
    algorithm = Evolution(popsize=5)

    def make(self, seed=0):
        return SteadyStateEvolution(MIXED, rng=random.Random(seed), popsize=5, generations=3)


class TestNoisySteadyStateEvolution(RandomSearcherContract, KnownContract):
    total = 40
    algorithm = Evolution(popsize=5, generations=7, noisy=True)

    def make(self, seed=0):
        rng = random.Random(seed)
        return SteadyStateEvolution(MIXED, rng=rng, popsize=5, generations=7, noisy=True)


class TestPopulationBasedTraining(RandomSearcherContract, OrderlessContract, PointsContract):
    total = 20
    algorithm = PopulationTraining(popsize=5, generations=3)

    def make(self, seed=0):
        return PopulationBasedTraining(MIXED, rng=random.Random(seed), popsize=5, generations=3)


@pytest.mark.parametrize("given", [{"points": POINTS}, {"known": [Evaluated(POINTS[0], 1.0)]}])
def test_a_grid_takes_neither_points_nor_what_is_known(given):
    name = "points" if "points" in given else "warm_start"
    with pytest.raises(InvalidArgument, match=f"^{name}: expected nothing for a grid"):
        Grid().start(Problem(space=LISTS, rng=random.Random(0), **given))


def test_population_based_training_takes_nothing_that_is_known():
    problem = Problem(space=MIXED, rng=random.Random(0), known=KNOWN)
    with pytest.raises(InvalidArgument, match=r"^warm_start: .* checkpoints of the same run"):
        PopulationTraining().start(problem)


def test_drive_ends_where_the_searcher_waits_for_an_outcome_of_someone_else():
    searcher = DifferentialEvolution(MIXED, rng=random.Random(0), popsize=4)
    for _ in range(4):
        searcher.ask()
    with pytest.raises(ExperimentError, match="DifferentialEvolution waits for an outcome"):
        drive(searcher, all_fail)


def test_drive_continues_a_search_that_was_begun():
    searcher = GridSearch(LISTS)
    searcher.tell(outcome(searcher.ask(), 1.0))
    assert [item.trial for item in drive(searcher, all_fail)] == list(range(1, 12))


def test_drive_of_a_finished_searcher_gives_nothing():
    assert drive(PointSearch([]), all_fail) == []


def test_import_of_search_loads_no_heavy_package():
    heavy = ["pyspark", "tensorflow", "tensorboard", "hdfs", "grpc", "pandas"]
    code = "import json, search, sys; print(json.dumps([search.__file__, *sys.modules]))"
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(search.__file__).parents[1],
    )
    path, *modules = json.loads(finished.stdout)
    assert path == search.__file__
    assert [name for name in modules if name.split(".")[0] in heavy] == []
