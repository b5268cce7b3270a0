import json
import math
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from deap import cma
from optuna.samplers import CmaEsSampler, NSGAIISampler, TPESampler

from search.adapters import DeapSearcher, DehbSearcher, NevergradSearcher, OptunaSearcher
from search.adapters.adapted import AdaptedSearch, described
from search.direction import Direction, Directions
from search.errors import InvalidArgument, NothingAllowed
from search.searcher import Problem, ask_again, drive
from search.space.domains import nearest
from search.space.sampling import TRIES
from search.space.spaces import Float, Integer, Space
from search.trial import Evaluated, Outcome, Trial
from tests import ROOT
from tests.search.adapters.spaces import PLANE, bowl, global_random_numbers, problem_on
from tests.search.fakes import evaluated_by, outcome, recorded, run_in_any_order


class Counting:
    """Proposes x = 0, 1, 2, ..., and records its calls."""

    def __init__(self, learns=True, last=math.inf):
        self.learns, self.last = learns, last
        self.proposed, self.events = 0, []

    @property
    def exhausted(self):
        return self.proposed > self.last

    def propose(self):
        number = self.proposed
        self.proposed += 1
        return f"proposal {number}", {"x": float(number), "y": random.random() + np.random.rand()}

    def learn(self, proposal, value):
        self.events.append(("learn", proposal, value))

    def reject(self, proposal):
        self.events.append(("reject", proposal))

    def add(self, params, value):
        self.events.append(("add", params["x"], value))
        return self.learns


def started(optimiser, samples=5, space=PLANE, most_in_flight=None, **arguments):
    problem = problem_on(space, samples, **arguments)
    return AdaptedSearch(problem, lambda: optimiser, most_in_flight)


def test_the_optimiser_learns_its_proposals_and_points_like_prior_observations():
    optimiser = Counting()
    points, known = [{"x": 4.0, "y": 0.0}], [Evaluated({"x": 5.0, "y": 0.0}, None)]
    searcher = started(optimiser, samples=3, points=points, known=known)
    values = iter([1.5, None, 2.5])
    outcomes = drive(searcher, lambda trial: outcome(trial, next(values)))
    assert len(outcomes) == 3
    assert optimiser.events == [
        ("add", 5.0, None),
        ("add", 4.0, 1.5),
        ("learn", "proposal 0", None),
        ("learn", "proposal 1", 2.5),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_optimiser_gets_finite_numbers_only(value):
    optimiser = Counting()
    known = [Evaluated({"x": 5.0, "y": 0.0}, value)]
    searcher = started(optimiser, points=[{"x": 4.0, "y": 0.0}], known=known)
    drive(searcher, lambda trial: outcome(trial, value))
    assert {event[-1] for event in optimiser.events} == {None}


def test_disallowed_proposals_are_rejected_and_replaced():
    optimiser = Counting()
    space = Space(PLANE, constraint=lambda params: params["x"] % 3 == 2)
    trials = []
    drive(started(optimiser, 2, space), lambda t: trials.append(t) or outcome(t, 1.0))
    assert [trial.params["x"] for trial in trials] == [2.0, 5.0]
    assert [event[:2] for event in optimiser.events] == [
        ("reject", "proposal 0"),
        ("reject", "proposal 1"),
        ("learn", "proposal 2"),
        ("reject", "proposal 3"),
        ("reject", "proposal 4"),
        ("learn", "proposal 5"),
    ]


def test_random_points_replace_proposals_that_are_never_allowed():
    optimiser = Counting()
    space = Space(PLANE, constraint=lambda params: params["x"] < 0)
    trials = []
    drive(started(optimiser, 2, space), lambda t: trials.append(t) or outcome(t, 1.0))
    assert all(-5.0 <= trial.params["x"] < 0 for trial in trials)
    kinds = [event[0] for event in optimiser.events]
    assert kinds == ["reject"] * TRIES + ["add"] + ["reject"] * TRIES + ["add"]


def test_a_constraint_that_allows_nothing_ends_in_an_error():
    space = Space(PLANE, constraint=lambda params: False)
    with pytest.raises(NothingAllowed, match="none among 100,000"):
        started(Counting(), 2, space).ask()


def test_no_more_trials_are_in_flight_than_the_optimiser_supports():
    searcher = started(Counting(), 5, most_in_flight=2, points=[{"x": 4.0, "y": 0.0}])
    first = searcher.ask()
    searcher.ask()
    assert searcher.ask() is None
    assert not searcher.finished
    searcher.tell(outcome(first, 1.0))
    assert searcher.ask().id == 2
    assert searcher.ask() is None


def test_an_optimiser_that_has_tried_everything_ends_the_search():
    searcher = started(Counting(last=2), 50)
    assert searcher.total == 50
    assert len(drive(searcher, evaluated_by(bowl))) == 3
    assert searcher.total == 3
    assert searcher.finished
    assert searcher.ask() is None


def test_a_warm_start_is_refused_by_optimisers_that_cannot_learn_it():
    known = [Evaluated({"x": 5.0, "y": 0.0}, 1.0)]
    with pytest.raises(InvalidArgument, match="warm_start: expected none.* got 1 trial"):
        started(Counting(learns=False), known=known)
    drive(started(Counting(learns=False), points=[{"x": 4.0, "y": 0.0}]), evaluated_by(bowl))


class Nudged(Counting):
    """Computes another last digit, as on another processor."""

    def propose(self):
        proposal, params = super().propose()
        return proposal, {**params, "y": math.nextafter(params["y"], math.inf)}


def test_a_search_that_is_resumed_on_another_processor_keeps_its_trials():
    trials = []
    drive(started(Counting()), recorded(evaluated_by(bowl), trials))
    searcher = started(Nudged())
    for trial in trials:
        assert ask_again(searcher, trial) == trial
        searcher.tell(outcome(trial, 1.0))
    assert searcher.finished


@pytest.mark.parametrize("params", [{"x": 0.0, "y": 1e-3}, {"x": 1e-3}, {}])
def test_a_recorded_trial_that_differs_by_more_than_digits_is_not_asked_for_again(params):
    assert ask_again(started(Counting()), Trial(0, params)) == started(Counting()).ask()


def test_no_trial_is_asked_for_again_beyond_those_that_may_be_in_flight():
    searcher = started(Counting(), most_in_flight=1)
    first = searcher.ask()
    assert searcher.ask_again(Trial(1, {"x": 1.0, "y": 0.5})) is None
    searcher.tell(outcome(first, 1.0))
    assert searcher.ask_again(Trial(1, {"x": 1.0, "y": 0.5})).id == 1


@pytest.mark.parametrize("samples", [None, 0, 2.5])
def test_samples_are_required(samples):
    with pytest.raises(InvalidArgument, match="samples"):
        started(Counting(), samples)


def test_global_random_numbers_are_the_searchers_own_inside_and_untouched_outside():
    def asked(searcher, other):
        trials = []
        for _ in range(5):
            random.seed(other)
            np.random.seed(other)
            before = random.getstate(), np.random.get_state()[1].tolist()
            trials.append(searcher.ask())
            assert (random.getstate(), np.random.get_state()[1].tolist()) == before
        return trials

    assert asked(started(Counting()), 1) == asked(started(Counting()), 2)
    assert asked(started(Counting(), seed=3), 1) != asked(started(Counting()), 1)


def test_two_searches_at_once_have_random_numbers_of_their_own():
    def run(seed):
        trials = []
        searcher = started(Counting(), 100, seed=seed)
        drive(searcher, lambda trial: trials.append(trial) or outcome(trial, 1.0))
        return trials

    alone = [run(seed) for seed in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(run, range(4))) == alone
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("algorithm", [OptunaSearcher(), DehbSearcher("x")])
def test_libraries_with_generators_of_their_own_leave_alone_what_other_threads_draw(algorithm):
    def called_meanwhile(params):
        random.seed(7)
        np.random.seed(7)
        return True

    space = Space({"x": Float(1.0, 9.0), "y": Float(0.0, 1.0)}, constraint=called_meanwhile)
    with global_random_numbers(0):
        algorithm.start(problem_on(space, 5)).ask()
        drawn = random.random(), np.random.rand()
    assert drawn == (random.Random(7).random(), np.random.RandomState(7).rand())


def test_random_numbers_are_restored_if_the_library_raises():
    class Broken(Counting):
        def propose(self):
            random.seed(0)
            raise RuntimeError("broken")

    searcher, before = started(Broken()), random.getstate()
    with pytest.raises(RuntimeError, match="broken"):
        searcher.ask()
    assert random.getstate() == before


def test_a_description_has_the_class_and_plain_attributes():
    class Part:
        def __init__(self, **attributes):
            vars(self).update(attributes)

    inner = Part(_seed=1, size=2)
    thing = Part(_popsize=5, _worst=math.inf, seed=7, _cache={}, inner=inner, name_="n", none=None)
    assert described(thing, Part) == {
        "class": "Part",
        "inner": {"class": "Part", "size": 2},
        "name_": "n",
        "none": None,
        "popsize": 5,
        "worst": "inf",
    }
    json.dumps(described(thing, Part), allow_nan=False)


@pytest.mark.parametrize(
    ("domain", "number", "value"),
    [
        (Float(0.0, 1.0), 0.3, 0.3),
        (Float(0.0, 1.0), 1.0000001, 1.0),
        (Float(0.1, 0.5, step=0.1), 0.1 + 0.1 + 0.1, 0.3),
        (Integer(1, 9), np.float64(2.6), 3),
        (Integer(1, 9), 0.2, 1),
        (Integer(-(2**53), 2**53), 2**53 - 1, 2**53 - 1),
        (Integer(10, 100, step=20), 49.0, 50),
        (Integer(1, 1000, log=True), 33.4, 33),
    ],
)
def test_the_nearest_value_of_a_domain(domain, number, value):
    found = nearest(domain, number)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("missing", "made"),
    [
        ("optuna", "OptunaSearcher()"),
        ("nevergrad", "NevergradSearcher('CMA')"),
        ("dehb", "DehbSearcher('epochs')"),
    ],
)
def test_a_missing_library_is_an_error_with_the_command_to_install_it(missing, made):
    program = f"""
import sys
sys.modules[{missing!r}] = None
import experiment

try:
    experiment.run("no session", print, {{"x": [0.0, 1.0]}}, searcher=experiment.{made}, samples=3)
except experiment.InvalidArgument as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert ended.stderr == ""
    assert ended.stdout.startswith(
        f"searcher: expected the packages that {made.partition('(')[0]} needs, got "
    )
    assert missing in ended.stdout.partition(";")[0]
    assert f"; type: pip install {missing}" in ended.stdout


@pytest.mark.parametrize(
    "algorithm",
    [
        OptunaSearcher(CmaEsSampler()),
        DeapSearcher(lambda n: cma.Strategy([0.5] * n, 0.3)),
        DehbSearcher("x"),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_several_objectives_are_refused(algorithm):
    several = Directions({"a": Direction.MAX, "b": Direction.MIN})
    space = Space({"x": Float(1.0, 9.0), "y": Float(0.0, 1.0)})
    problem = Problem(space=space, rng=random.Random(0), direction=several, samples=5)
    with pytest.raises(InvalidArgument, match="'max' or 'min', of one objective"):
        algorithm.start(problem)


SEVERAL = Directions({"near": Direction.MAX, "left": Direction.MIN})


def two_values(trial):
    if trial.id % 7 == 0:  # also the first one
        return outcome(trial, None)
    near = -(trial.params["x"] ** 2) - trial.params["y"] ** 2
    return Outcome(trial.id, "finished", values={"near": near, "left": trial.params["x"]})


# Nevergrad's CMA draws it from pycma, alone as well.
@pytest.mark.filterwarnings("ignore:.*orphanated injected solution")
@pytest.mark.parametrize(
    "algorithm",
    [
        OptunaSearcher(TPESampler(n_startup_trials=4)),
        OptunaSearcher(NSGAIISampler(population_size=4)),
        NevergradSearcher("DE", num_workers=3),
        NevergradSearcher("CMA", num_workers=3),
    ],
    ids=["TPE", "NSGA-II", "DE", "CMA"],
)
class TestSeveralObjectives:
    def test_a_searcher_is_rebuilt_by_the_same_ask_and_tell_calls(self, algorithm):
        points = [{"x": 1.0, "y": 1.0}]
        values = {"near": -8.0, "left": 2.0}
        known = [Evaluated({"x": 2.0, "y": 2.0}, None, values)]

        def make():
            problem = problem_on(PLANE, 20, direction=SEVERAL, points=points, known=known)
            return algorithm.start(problem)

        trials = run_in_any_order(make(), two_values, random.Random(1))
        assert run_in_any_order(make(), two_values, random.Random(1)) == trials
        assert len(trials) == 20

    def test_an_outcome_counts_in_each_objective(self, algorithm):
        def run(of):
            searcher = algorithm.start(problem_on(PLANE, 80, direction=SEVERAL))
            trials = []
            drive(searcher, lambda trial: trials.append(trial) or of(trial))
            return [dict(trial.params) for trial in trials]

        def left_reversed(trial):
            given = two_values(trial)
            values = {name: -v if name == "left" else v for name, v in given.values.items()}
            return msgspec.structs.replace(given, values=values)

        assert run(two_values) == run(two_values) != run(left_reversed)


def test_a_point_that_fails_first_is_left_out_by_an_optimizer_that_learns_its_proposals_only():
    problem = problem_on(PLANE, 5, direction=SEVERAL, points=[{"x": 1.0, "y": 1.0}])
    searcher = NevergradSearcher("EDA").start(problem)
    assert len(drive(searcher, two_values)) == 5
