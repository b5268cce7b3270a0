import contextlib
import copy
import importlib.util
import itertools
import logging
import math
import random
import sys
import warnings

import optuna
import pytest
from optuna import samplers

from search.adapters import OptunaSearcher
from search.checked_searcher import CheckedSearcher, SearcherFailed
from search.direction import Direction, Directions
from search.errors import InvalidArgument
from search.searcher import Problem, drive, judge_of
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated, Outcome
from tests.search.adapters.spaces import (
    EVERYTHING,
    PLANE,
    AdapterContract,
    bowl,
    global_random_numbers,
    problem_on,
)
from tests.search.fakes import evaluated_by, outcome, recorded
from tests.search.searcher_contract import (
    MIXED,
    KnownContract,
    RandomSearcherContract,
    SpacesContract,
    units,
)

MODEL = Space(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "rate": Float(1e-4, 0.1, log=True),
        "layers": Integer(1, 5),
        "momentum": Float(0.0, 1.0, when={"optimizer": "sgd"}),
    }
)


def experimental(make, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return make(**arguments)


@contextlib.contextmanager
def experimental_ignored():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def needs(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"needs the package {package}"
    )


RANDOM = samplers.RandomSampler(seed=1)
SAMPLERS = [
    pytest.param(samplers.RandomSampler, id="random"),
    pytest.param(lambda **seed: samplers.TPESampler(n_startup_trials=5, **seed), id="tpe"),
    pytest.param(
        lambda **seed: samplers.TPESampler(n_startup_trials=5, multivariate=False, **seed),
        id="tpe univariate",
    ),
    pytest.param(lambda **seed: samplers.NSGAIISampler(population_size=6, **seed), id="nsga2"),
    pytest.param(lambda **seed: experimental(samplers.QMCSampler, scramble=True, **seed), id="qmc"),
    pytest.param(samplers.CmaEsSampler, id="cma-es", marks=needs("cmaes")),
    pytest.param(
        lambda **seed: samplers.GPSampler(n_startup_trials=5, **seed), id="gp", marks=needs("torch")
    ),
    pytest.param(
        lambda **seed: experimental(
            samplers.PartialFixedSampler,
            fixed_params={"layers": 2},
            base_sampler=samplers.TPESampler(n_startup_trials=5, **seed),
        ),
        id="partly fixed",
    ),
]


def model(params):
    rate = -abs(params["rate"] - 0.01) * 10 - abs(params["layers"] - 3)
    return rate + params.get("momentum", 0.5)


def suggested(trial):
    """The objective that a user of Optuna would write for `MODEL`."""
    params = {
        "optimizer": trial.suggest_categorical("optimizer", ["adam", "sgd"]),
        "rate": trial.suggest_float("rate", 1e-4, 0.1, log=True),
        "layers": trial.suggest_int("layers", 1, 5),
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = trial.suggest_float("momentum", 0.0, 1.0)
    return params


def native_trials(sampler, samples, direction="maximize"):
    study = optuna.create_study(sampler=sampler, direction=direction)
    trials = []
    for number in range(samples):
        trial = study.ask()
        params = suggested(trial)
        trials.append(params)
        if number % 5 == 3:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, model(params))
    return trials


def our_trials(sampler, samples, seed=0, direction=Direction.MAX):
    trials = []

    def evaluate(trial):
        trials.append(dict(trial.params))
        return outcome(trial, None if trial.id % 5 == 3 else model(trial.params))

    problem = problem_on(MODEL, samples, seed, direction=direction)
    drive(OptunaSearcher(sampler).start(problem), evaluate)
    return trials


class TestTpe(RandomSearcherContract, SpacesContract, KnownContract):
    algorithm = OptunaSearcher()
    samples = total = 23
    examples = 4


class TestNsga(RandomSearcherContract, SpacesContract):
    algorithm = OptunaSearcher(samplers.NSGAIISampler(population_size=4))
    samples = total = 13
    examples = 4


class TestOptuna(AdapterContract):
    def algorithm(self):
        return OptunaSearcher(samplers.TPESampler(n_startup_trials=5))


@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize("direction", list(Direction))
def test_trials_are_those_of_the_sampler_in_a_study_of_its_own(make, direction):
    name = {"max": "maximize", "min": "minimize"}[direction]
    native = native_trials(make(seed=7), 10, name)
    assert our_trials(make(seed=7), 10, direction=direction) == native
    assert len({tuple(params.items()) for params in native}) > 5


@pytest.mark.parametrize("make", SAMPLERS)
def test_a_sampler_without_a_seed_is_seeded_by_the_search(make):
    seed = random.Random(3).getrandbits(32)
    assert our_trials(make(), 9, seed=3) == native_trials(make(seed=seed), 9)
    assert our_trials(make(), 9, seed=3) != our_trials(make(), 9, seed=4)


@pytest.mark.parametrize("make", SAMPLERS)
def test_the_users_sampler_is_not_changed(make):
    sampler = make(seed=7)
    algorithm = OptunaSearcher(sampler)
    written = algorithm.to_json()
    first = our_trials(sampler, 8)
    assert our_trials(sampler, 8) == first
    assert algorithm.to_json() == written


def test_prior_observations_are_in_the_study_like_trials():
    known = [
        {"optimizer": "sgd", "momentum": 0.5, "rate": 0.02, "layers": 2},
        {"optimizer": "adam", "rate": 0.001, "layers": 5},
    ] * 6
    distributions = {
        "optimizer": optuna.distributions.CategoricalDistribution(["adam", "sgd"]),
        "momentum": optuna.distributions.FloatDistribution(0.0, 1.0),
        "rate": optuna.distributions.FloatDistribution(1e-4, 0.1, log=True),
        "layers": optuna.distributions.IntDistribution(1, 5),
    }
    study = optuna.create_study(sampler=samplers.TPESampler(seed=7), direction="maximize")
    for params in known:
        own = {name: distributions[name] for name in params}
        trial = optuna.trial.create_trial(params=params, distributions=own, value=model(params))
        study.add_trial(trial)
    params = suggested(study.ask())

    evaluated = [Evaluated(params, model(params)) for params in known]
    problem = problem_on(MODEL, 1, known=evaluated)
    assert OptunaSearcher(samplers.TPESampler(seed=7)).start(problem).ask().params == params


def test_tpe_comes_near_the_best():
    searcher = OptunaSearcher().start(problem_on(PLANE, 80))
    assert max(item.value for item in drive(searcher, evaluated_by(bowl))) > -0.2


def test_a_grid_ends_the_search_when_it_is_exhausted():
    grid = samplers.GridSampler({"x": [-1.0, 0.0, 1.0], "y": [2.0, 3.0]})
    searcher, trials = OptunaSearcher(grid).start(problem_on(PLANE, 50)), []
    drive(searcher, lambda t: trials.append(tuple(t.params.values())) or outcome(t, 1.0))
    assert sorted(trials) == [(x, y) for x in (-1.0, 0.0, 1.0) for y in (2.0, 3.0)]
    assert searcher.total == 6
    assert searcher.finished
    assert searcher.exhausted == "the searcher proposes no more configurations"


@pytest.mark.parametrize("refused", list(itertools.product([-1.0, 1.0], [2.0, 3.0])))
def test_a_grid_without_its_last_configuration_ends_the_search(refused):  # one of these is the last
    space = Space(PLANE, constraint=lambda params: tuple(params.values()) != refused)
    grid = samplers.GridSampler({"x": [-1.0, 1.0], "y": [2.0, 3.0]}, seed=0)
    searcher, trials = OptunaSearcher(grid).start(problem_on(space, 50)), []
    drive(searcher, lambda t: trials.append(tuple(t.params.values())) or outcome(t, 1.0))
    assert sorted([*trials, refused]) == [(-1.0, 2.0), (-1.0, 3.0), (1.0, 2.0), (1.0, 3.0)]
    assert searcher.exhausted == "the searcher proposes no more configurations"


def test_a_search_of_every_configuration_ends_when_all_were_tried():
    space = Space({"a": Integer(1, 3), "b": Choice([True, None]), "c": Float(0.1, 0.3, step=0.1)})
    sampler = experimental(samplers.BruteForceSampler)
    trials = set()
    searcher = OptunaSearcher(sampler).start(problem_on(space, 100))
    drive(searcher, lambda t: trials.add(tuple(t.params.values())) or outcome(t, 1.0))
    assert trials == {(a, b, c) for a in (1, 2, 3) for b in (True, None) for c in (0.1, 0.2, 0.3)}


def test_a_search_of_every_configuration_goes_on_from_a_point_with_a_condition():
    space = Space(
        {
            "optimizer": Choice(["adam", "sgd"]),
            "momentum": Choice([0.5, 0.9], when={"optimizer": "sgd"}),
            "layers": Integer(1, 2),
        }
    )
    sampler = experimental(samplers.BruteForceSampler)
    problem = problem_on(space, 50, points=[{"optimizer": "sgd", "momentum": 0.5, "layers": 1}])
    trials = []
    drive(OptunaSearcher(sampler).start(problem), recorded(evaluated_by(lambda p: 0.5), trials))
    assert len({tuple(trial.params.items()) for trial in trials}) == len(trials) == 6


def test_choices_have_their_values_in_the_study_if_optuna_supports_them():
    seen = {}

    class Looking(samplers.RandomSampler):
        def sample_independent(self, study, trial, name, distribution):
            seen[name] = distribution
            return super().sample_independent(study, trial, name, distribution)

    OptunaSearcher(Looking()).start(problem_on(EVERYTHING, 1)).ask()
    assert seen["optimizer"].choices == ("adam", "sgd")
    assert seen["size"] == optuna.distributions.IntDistribution(0, 2)
    assert seen["flag"].choices == (0, 1, 2)  # True and 1 are one value to Optuna
    assert seen["units"] == optuna.distributions.IntDistribution(8, 1024, log=True)
    assert seen["batch"] == optuna.distributions.IntDistribution(16, 64, step=16)
    assert seen["rate"] == optuna.distributions.FloatDistribution(0.1, 0.6, step=0.1)
    assert seen["decay"] == optuna.distributions.FloatDistribution(1e-8, 1.0, log=True)


@pytest.mark.parametrize("domain", [Float(0, 1, step=1 / 11), Float(0, 1, step=1 / 3)], ids=repr)
def test_the_last_step_is_tried_and_learned_where_optuna_would_leave_it_out(domain):
    sampler = experimental(samplers.BruteForceSampler)
    space, known = Space({"x": domain}), [Evaluated({"x": 1.0}, 0.5)]
    searcher, trials = OptunaSearcher(sampler).start(problem_on(space, 50)), []
    drive(searcher, recorded(evaluated_by(lambda params: 0.5), trials))
    assert sorted(trial.params["x"] for trial in trials) == [
        domain.decode((index + 0.5) / domain.size) for index in range(domain.size)
    ]
    searcher = OptunaSearcher(sampler).start(problem_on(space, 50, known=known))
    left = drive(searcher, evaluated_by(lambda params: 0.5))
    assert len(left) == domain.size - 1


@pytest.mark.parametrize("domain", [Float(0, 5e-324), Float(-1e-310, 1e-310)], ids=repr)
def test_bounds_a_subnormal_number_apart_can_be_searched(domain):
    searcher = OptunaSearcher().start(problem_on(Space({"x": domain}), 15))
    trials = []
    assert len(drive(searcher, recorded(evaluated_by(lambda params: 0.5), trials))) == 15
    assert all(trial.params["x"] in domain for trial in trials)


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (0.5, 5 * 10**16), (1.0, -1)])
def test_a_choice_of_more_values_than_floats_can_count_is_a_share_of_them_in_the_study(
    share, number
):
    class Sharing(samplers.RandomSampler):
        def sample_independent(self, study, trial, name, distribution):
            assert distribution == optuna.distributions.FloatDistribution(0.0, 1.0)
            return share

    values = range(0, 10**18, 10)
    space, points = Space({"seed": Choice(values)}), [{"seed": values[10**16]}]
    searcher, trials = OptunaSearcher(Sharing()).start(problem_on(space, 2, points=points)), []
    drive(searcher, recorded(evaluated_by(lambda params: 0.5), trials))
    assert [trial.params["seed"] for trial in trials] == [values[10**16], values[number]]


def test_optuna_writes_nothing_and_keeps_the_verbosity_of_its_user(capfd):
    before = optuna.logging.get_verbosity()
    try:
        optuna.logging.set_verbosity(logging.DEBUG)
        sampler = experimental(samplers.QMCSampler, seed=1)
        problem = problem_on(MODEL, 10)  # with a condition, of which QMC warns
        drive(OptunaSearcher(sampler).start(problem), evaluated_by(model))
        assert optuna.logging.get_verbosity() == logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sampler", ["TPESampler", samplers.TPESampler, object()])
def test_invalid_samplers_are_refused(sampler):
    with pytest.raises(InvalidArgument, match="sampler: expected a sampler of Optuna"):
        OptunaSearcher(sampler)


@pytest.mark.parametrize(("name", "package"), [("CmaEsSampler", "cmaes"), ("GPSampler", "torch")])
def test_a_missing_package_of_a_sampler_is_an_error_before_the_search(name, package, monkeypatch):
    algorithm = OptunaSearcher(getattr(samplers, name)())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InvalidArgument, match=f"that {name} needs, got .*{package}.*pip install {package}$"
    ):
        algorithm.start(problem_on(PLANE, 10))


def test_a_missing_package_of_a_sampler_inside_another_is_an_error_before_the_search(monkeypatch):
    inside = experimental(samplers.GPSampler)
    fixed = {"fixed_params": {"x": 0.5}, "base_sampler": inside}
    algorithm = OptunaSearcher(experimental(samplers.PartialFixedSampler, **fixed))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidArgument, match="that GPSampler needs"):
        algorithm.start(problem_on(PLANE, 10))


@pytest.mark.parametrize(
    ("sampler", "problem"),
    [
        (
            experimental(samplers.BruteForceSampler),
            "BruteForceSampler, which raises ValueError: FloatDist",
        ),
        (samplers.GridSampler({"x": [0.5]}), "GridSampler, which raises ValueError: The param"),
    ],
    ids=["brute force", "grid"],
)
def test_a_sampler_that_cannot_search_the_space_is_refused_before_the_search(sampler, problem):
    with pytest.raises(InvalidArgument, match=rf"searcher: expected a sampler that .*{problem}"):
        OptunaSearcher(sampler).start(problem_on(PLANE, 10))


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.GridSampler({"x": [0.5, 7], "y": [0.5]}),
        experimental(samplers.PartialFixedSampler, fixed_params={"x": 7}, base_sampler=RANDOM),
    ],
    ids=["grid", "partly fixed"],
)
def test_values_of_a_sampler_outside_the_bounds_are_refused_before_the_search(sampler):
    with pytest.raises(InvalidArgument, match=r"expected values of 'x' from -5.0 to 5.0, got 7 in"):
        OptunaSearcher(sampler).start(problem_on(PLANE, 10))


@pytest.mark.filterwarnings("ignore:The value .* is out of range")
@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (Float(1.0, 2.0, step=1 / 3), [0, 1, 2, 3]),  # in the study by their positions
        (Float(0.1, 0.3), [0.1, 0.2, 0.1 + 0.2]),
        (Choice(["s", "m", "l"], ordered=True), [0, 2]),
    ],
    ids=["positions", "rounding", "ordered"],
)
def test_values_of_a_sampler_are_those_of_its_study(domain, values):
    problem = problem_on(Space({"x": domain}), len(values))
    searcher = OptunaSearcher(samplers.GridSampler({"x": values})).start(problem)
    assert len(drive(searcher, evaluated_by(lambda params: 0.5))) == len(values)


@pytest.mark.parametrize(
    ("domain", "value"),
    [(Float(0.0, 1.0), "a"), (Choice(["s", "m", "l"], ordered=True), -1)],
    ids=["text", "position"],
)
def test_a_value_of_a_sampler_that_is_none_of_its_study_is_refused(domain, value):
    with pytest.raises(InvalidArgument, match=f"values of 'x' from .*, got {value!r} in GridS"):
        grid = samplers.GridSampler({"x": [value]})
        OptunaSearcher(grid).start(problem_on(Space({"x": domain}), 3))


def test_an_error_of_the_constraint_is_not_the_samplers():
    space = Space(dict(PLANE), constraint=lambda params: 1.0)
    with pytest.raises(InvalidArgument, match="constraint: expected True or False, got 1.0"):
        OptunaSearcher().start(problem_on(space, 10))


def test_large_integers_close_to_each_other_are_told_apart():
    space = Space({"n": Integer(10**15, 10**15 + 5, log=True)})
    problem = Problem(space=space, rng=random.Random(0), direction=Direction.MAX, samples=60)
    trials = []
    drive(OptunaSearcher(RANDOM).start(problem), recorded(evaluated_by(lambda params: 0.5), trials))
    assert {trial.params["n"] - 10**15 for trial in trials} == set(range(6))


def test_the_manifest_distinguishes_samplers():
    def written(**arguments):
        return OptunaSearcher(samplers.TPESampler(**arguments)).to_json()

    assert written()["type"] == "optuna"
    assert written()["sampler"]["class"] == "TPESampler"
    assert written() == OptunaSearcher().to_json() == written(seed=3)
    assert written() != written(n_ei_candidates=30)
    assert written() != OptunaSearcher(samplers.RandomSampler()).to_json()


def test_only_unseeded_states_are_seeded():
    unseeded, seeded = samplers.TPESampler(), samplers.TPESampler(seed=5)
    kept = copy.deepcopy(seeded)
    assert our_trials(unseeded, 8, seed=1) != our_trials(unseeded, 8, seed=2)
    assert our_trials(seeded, 8, seed=1) == our_trials(kept, 8, seed=2)


class Drawing(samplers.RandomSampler):
    """A user's sampler that draws global random numbers."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return random.uniform(param_distribution.low, param_distribution.high)


@pytest.mark.parametrize(
    "sampler",
    [
        Drawing(),
        experimental(samplers.PartialFixedSampler, fixed_params={"x": 0.5}, base_sampler=Drawing()),
    ],
)
def test_a_sampler_that_draws_global_random_numbers_gets_those_of_the_search(sampler):
    def first(seed, other):
        with global_random_numbers(other):
            return OptunaSearcher(sampler).start(problem_on(PLANE, 1, seed)).ask()

    assert first(1, 1) == first(1, 2) != first(2, 1)


def test_samples_are_required():
    with pytest.raises(InvalidArgument, match="samples"):
        OptunaSearcher().start(Problem(space=PLANE, rng=random.Random(0)))


def test_units_are_learned_in_a_mixed_space():
    searcher = OptunaSearcher().start(problem_on(MIXED, 60))
    values = [item.value for item in drive(searcher, evaluated_by(units))]
    assert sum(values[30:]) > sum(values[:30])


TWO = Directions({"loss": Direction.MIN, "speed": Direction.MAX})


@pytest.mark.parametrize(
    "make",
    [
        lambda: samplers.TPESampler(n_startup_trials=4, seed=7),
        lambda: samplers.NSGAIISampler(population_size=4, seed=7),
        lambda: experimental(samplers.NSGAIIISampler, population_size=4, seed=7),
    ],
)
def test_trials_for_several_objectives_are_those_of_the_sampler(make):
    def values(params):
        return -model(params), params["layers"] * 1.5

    study = optuna.create_study(sampler=make(), directions=["minimize", "maximize"])
    native = []
    for _ in range(16):
        trial = study.ask()
        native.append(suggested(trial))
        study.tell(trial, values(native[-1]))

    trials = []

    def evaluate(trial):
        trials.append(dict(trial.params))
        return Outcome(
            trial.id, "finished", values=dict(zip(TWO.names, values(trial.params), strict=True))
        )

    drive(OptunaSearcher(make()).start(problem_on(MODEL, 16, direction=TWO)), evaluate)
    assert trials == native


def test_a_sampler_for_one_objective_is_refused_by_its_name():
    with pytest.raises(InvalidArgument, match="of one objective, for CmaEsSampler, got .*'loss'"):
        OptunaSearcher(samplers.CmaEsSampler()).start(problem_on(MODEL, 5, direction=TWO))
    pruned = OptunaSearcher(pruner=optuna.pruners.MedianPruner())
    with pytest.raises(InvalidArgument, match="pruner: expected None with several objectives"):
        pruned.start(problem_on(MODEL, 5, direction=TWO))


def test_a_pruner_is_one_of_optuna():
    hint = "pruner: expected a pruner of Optuna, or None, got 'median'; such as"
    with pytest.raises(InvalidArgument, match=hint):
        OptunaSearcher(pruner="median")
    with_one = OptunaSearcher(pruner=optuna.pruners.MedianPruner(n_warmup_steps=3)).to_json()
    assert with_one["pruner"]["class"] == "MedianPruner"
    assert with_one["pruner"]["n_warmup_steps"] == 3
    assert "pruner" not in OptunaSearcher().to_json()
    assert judge_of(OptunaSearcher().start(problem_on(MODEL, 5))) is None


PRUNERS = [
    optuna.pruners.MedianPruner(n_startup_trials=2),
    optuna.pruners.SuccessiveHalvingPruner(reduction_factor=2),
    optuna.pruners.HyperbandPruner(max_resource=8, reduction_factor=2),
    optuna.pruners.ThresholdPruner(lower=-2.0),
]


@pytest.mark.parametrize("pruner", PRUNERS, ids=lambda pruner: type(pruner).__name__)
def test_the_pruner_prunes_the_same_trials_as_in_a_study_of_its_own(pruner):
    def make():
        return samplers.TPESampler(n_startup_trials=4, seed=7)

    def curve(params):
        return [model(params) * (1 + 1 / (step + 1)) for step in range(8)]

    native = optuna.create_study(
        study_name="experiment", sampler=make(), pruner=copy.deepcopy(pruner), direction="maximize"
    )

    def objective(trial):
        values = curve(suggested(trial))
        for step, value in enumerate(values):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return values[-1]

    with experimental_ignored():
        native.optimize(objective, n_trials=25)
    expected = [
        (trial.params, trial.last_step if trial.state.name == "PRUNED" else None)
        for trial in native.trials
    ]

    searcher = OptunaSearcher(make(), pruner).start(problem_on(MODEL, 25))
    judge, found = judge_of(searcher), []
    while (trial := searcher.ask()) is not None:
        values, stopped = curve(trial.params), None
        for step, value in enumerate(values):
            if reason := judge.report(trial.id, step, value):
                assert reason == f"step {step}: {type(pruner).__name__} has pruned it"
                assert judge.report(trial.id, step, value) == reason  # a retried attempt's
                stopped = step
                break
        status = "finished" if stopped is None else "stopped"
        searcher.tell(Outcome(trial.id, status, values[-1 if stopped is None else stopped]))
        judge.ended(trial.id, status)
        found.append((dict(trial.params), stopped))
    assert found == expected
    assert {stopped is None for _, stopped in found} == {True, False}


class Unsure(optuna.pruners.BasePruner):
    """A pruner that raises."""

    def prune(self, study, trial):
        raise ValueError(f"nothing is known of step {trial.last_step}")


def test_an_error_of_a_pruner_is_shown_as_the_searchers_with_its_line():
    searcher = CheckedSearcher(OptunaSearcher(pruner=Unsure()).start(problem_on(MODEL, 5)))
    trial = searcher.ask()
    said = r"judge\.report\(\) raised ValueError: nothing is known of step 2 \(.*optuna.py, line "
    with pytest.raises(SearcherFailed, match=said):
        searcher.judge.report(trial.id, 2, 0.5)


class Leaving(optuna.pruners.BasePruner):
    """A pruner during whose call another thread leaves a context."""

    def __init__(self, context):
        self._context = context

    def __deepcopy__(self, memo):
        return self

    def prune(self, study, trial):
        self._context.close()
        return False


def test_a_report_with_a_number_leaves_alone_the_filters_of_warnings_of_other_threads():
    before = list(warnings.filters)
    with contextlib.ExitStack() as context:
        context.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        searcher = OptunaSearcher(pruner=Leaving(context)).start(problem_on(MODEL, 5))
        judge_of(searcher).report(searcher.ask().id, 0, 0.5)
        assert warnings.filters == before


@pytest.mark.parametrize("pruner", PRUNERS, ids=lambda pruner: type(pruner).__name__)
def test_the_same_reports_prune_the_same_trials_again(pruner):
    algorithm = OptunaSearcher(samplers.TPESampler(n_startup_trials=4), pruner)
    done = []  # the calls of a searcher and their results

    def do(searcher, what, *arguments):
        match what:
            case "ask":
                return searcher.ask()
            case "tell":
                return searcher.tell(*arguments)
        return judge_of(searcher).report(*arguments)

    def note(what, *arguments):
        answer = do(first, what, *arguments)
        done.append((what, arguments, answer))
        return answer

    first, rng = algorithm.start(problem_on(MODEL, 20, points=[{"layers": 2}])), random.Random(3)
    out = {}
    while out or not first.finished:
        if len(out) < 4 and not first.finished:
            trial = note("ask")
            out[trial.id] = trial, 0
            continue
        number = rng.choice(sorted(out))
        trial, step = out[number]
        value = model(trial.params) if "rate" in trial.params else -1.0
        reason = note("report", number, step, value if rng.random() < 0.9 else math.nan)
        out[number] = trial, step + 1
        if reason or step == 5:
            note("tell", Outcome(number, "stopped" if reason else "finished", value))
            del out[number]
    again = algorithm.start(problem_on(MODEL, 20, points=[{"layers": 2}]))
    for what, arguments, answer in done:
        assert do(again, what, *arguments) == answer
    assert any(what == "report" and answer for what, _, answer in done)
