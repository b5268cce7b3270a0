"""The public calls: they read their arguments, `experiment.driver.run_search` does the work."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from experiment.results.result import Result, Results, results_of_groups
from experiment.results.warned import users_line, warn_at
from experiment.setup.resuming import manifest_of
from experiment.setup.settings import Settings, takes_settings
from experiment.setup.slot_count import SlotsAsked
from experiment.setup.specification import Search
from experiment.setup.warm_start import Runs, known_of, runs_of
from search.algorithms import Evolution, Grid, PopulationTraining, Random
from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.evolution.nsga2 import NSGA2
from search.evolution.operators import Mutation
from search.grid import PointSearch
from search.grouped import Grouped, read_groups, union
from search.searcher import Algorithm, Problem
from search.sequential.bayesian import BayesianOptimization
from search.space.domain_dicts import numbers_in_texts
from search.space.points import read_first_points
from search.space.sampling import check_constraint
from search.space.spaces import Constraint, Space, read_points
from search.values import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WANTED = "a to_json() that returns a dict of what JSON has"


@takes_settings
def launch(
    spark: SparkSession,
    train: Callable[..., Any],
    args_dict: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    *,
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Run a train function on every point of a grid, one trial per point, on Spark executors.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        args_dict: Argument name to the list of its values: the Cartesian product is run, in the
            order of itertools.product. Or a list of dicts: exactly these points.
        constraint: As for `evolutionary_search`; points that it does not allow are left out.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    checked = Settings(**settings)
    if isinstance(args_dict, Mapping):
        space = Space.of_grid(args_dict, constraint)
        return _search("launch", spark, train, space, Grid(), checked)
    points = read_points(args_dict, constraint)
    search = Search("launch", PointSearch(points), None, points, {"type": "points"})
    return _run(spark, train, search, checked, _seed(checked))


@takes_settings
def run(
    spark: SparkSession,
    train: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    searcher: Algorithm,
    samples: int | None = None,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Search a space by any algorithm: the call that the others are made of.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        space: As `bounds` of `evolutionary_search`.
        searcher: The algorithm, such as `experiment.RegularizedEvolution()`; any object with the
            methods of `Algorithm`.
        samples: How many trials, for algorithms that do not know.
        points: Configurations to try first, counted among the trials: dicts of hyperparameter to
            value. What one leaves out is drawn; a value may lie between two steps of its domain.
        warm_start: Runs, each by its folder or `Result`, or a list of them, whose trials are to be
            learnt from, finished and failed ones; they are not counted among the trials. Space,
            direction and `optimization_key` have to be the same.
        constraint: As for `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    _check_algorithm(searcher)
    checked = Settings(**settings)
    domains = _space(space, constraint, "space")
    return _search("run", spark, train, domains, searcher, checked, samples, points, warm_start)


@takes_settings
def evolutionary_search(
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    direction: str | Mapping[str, str] = "max",
    popsize: int = 10,
    generations: int = 3,
    crossover: float = 0.7,
    mutation: Mutation | None = None,
    *,
    generational: bool = False,
    strategy: str | None = None,
    noisy: bool = False,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Search by differential evolution, without a barrier or one generation after the other.

    Several objectives are searched by NSGA-II instead, for their Pareto front; see
    `NSGA2Search`.

    `popsize * (generations + 1)` trials: generation 0 is the initial population, a Latin hypercube.
    Whoever is free gets the next trial at once, made from the best that is known by then; see
    `SteadyStateEvolution`. The same seed gives the same trials where results come in the
    same order, as with `parallelism=1`. With `generational=True` it does whatever their order, but
    slots wait at the end of each generation; see `DifferentialEvolution`.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        bounds: Argument name to `[low, high]` in either order, or to a list of choices. Two ints
            stay ints; positive floats written high first, or 1,000 times apart, are searched on a
            log scale. `experiment.Float`, `Integer` and `Choice` say it explicitly, and more: a
            constant as `Choice(['eu'])`, steps, an order of choices, and
            `when={'optimizer': 'sgd'}` for what other trials lack: `train` has a default for it.
        direction: 'max' or 'min' of the objective; for several, a dict of what the train function
            calls them: `{'accuracy': 'max', 'latency': 'min'}`.
        popsize: Individuals, at least 4.
        generations: After the initial population, at least 1.
        crossover: Crossover rate CR of [0, 1]. With several objectives, the probability that a
            child has two parents.
        mutation: Differential weight F of (0, 2], or two of them, between which it is drawn for
            each trial. Left out, 0.5 by generation, otherwise (0.5, 1.0). With several objectives,
            the probability of [0, 1] that a hyperparameter mutates; left out, one does on average.
        generational: False: no slot waits, the better of two trials replaces the other as soon as
            it has ended, and no configuration is tried twice before all were once. True: the next
            generation starts when the last trial of one has ended, and some slots wait for it.
        strategy: How a trial is made of others, 'rand1bin' or 'current-to-pbest1bin'. Left out,
            the first by generation, otherwise the second. Not with several objectives.
        noisy: Does a configuration come to another value each time? Then one trial in ten tries
            the best one again, whose score is the mean of its values; not by generation. A
            `popsize` of 20 suits noise. `Result.best_mean` is the best of what was tried again.
            Not with several objectives.
        points: Configurations to try first, counted among the trials: dicts of hyperparameter to
            value. What one leaves out is drawn; a value may lie between two steps of its domain.
        warm_start: Runs, each by its folder or `Result`, or a list of them, whose trials are to be
            learnt from, finished and failed ones; they are not counted among the trials. Space,
            direction and `optimization_key` have to be the same. The best of them are the first
            population.
        constraint: Called with a dict of hyperparameters; returns whether they may be tried, as
            `lambda p: p["batch"] * p["units"] < 1e6`. The same ones get the same answer.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    checked = Settings(direction=direction, **settings)
    algorithm: Algorithm
    budget = {"popsize": popsize, "generations": generations}
    if isinstance(checked.goal, Direction):
        algorithm = Evolution(
            **budget,
            crossover=crossover,
            mutation=mutation,
            strategy=strategy,
            generational=generational,
            noisy=noisy,
        )
    else:
        _check_nsga2(strategy=strategy, noisy=noisy or None)
        algorithm = NSGA2(
            **budget,
            crossover=crossover,
            mutation=mutation,  # type: ignore[arg-type]  # two weights are refused there
            generational=generational,
        )
    call, space = "evolutionary_search", _space(bounds, constraint)
    return _search(call, spark, train, space, algorithm, checked, None, points, warm_start)


@takes_settings
def random_search(
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    *,
    samples: int = 10,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Run a train function on independent random points.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        bounds: As for `evolutionary_search`.
        samples: How many points.
        points: Configurations to try first, counted among the trials: dicts of hyperparameter to
            value. What one leaves out is drawn; a value may lie between two steps of its domain.
        warm_start: Runs, each by its folder or `Result`, or a list of them, whose trials are to be
            learnt from, finished and failed ones; they are not counted among the trials. Space,
            direction and `optimization_key` have to be the same. They are not tried again.
        constraint: As for `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    checked = Settings(**settings)
    space = _space(bounds, constraint)
    call = "random_search"
    return _search(call, spark, train, space, Random(), checked, samples, points, warm_start)


@takes_settings
def bayesian_search(
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    direction: str = "max",
    *,
    samples: int = 30,
    noisy: bool = False,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Search by Bayesian optimisation with a Gaussian process: for few trials that take long.

    The first trials are spread over the space. Each later one is where a model of the objective
    expects the largest improvement, those that are out accounted for, so no slot waits; see
    `BayesianSearch`. The same seed gives the same trials only where results come in the same
    order, as with `parallelism=1`.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        bounds: As for `evolutionary_search`.
        direction: 'max' or 'min' of the objective.
        samples: How many trials. Tens to a few hundreds; beyond, `evolutionary_search` does better.
        noisy: Does a configuration come to another value each time? Then the search goes by what
            the model makes of the values, and may try a configuration again.
        points: Configurations to try first, counted among the trials: dicts of hyperparameter to
            value. What one leaves out is drawn; a value may lie between two steps of its domain.
        warm_start: Runs, each by its folder or `Result`, or a list of them, whose trials are to be
            learnt from, finished and failed ones; they are not counted among the trials. Space,
            direction and `optimization_key` have to be the same.
        constraint: As for `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    algorithm = BayesianOptimization(noisy=noisy)
    checked = Settings(direction=direction, **settings)
    call, space = "bayesian_search", _space(bounds, constraint)
    return _search(call, spark, train, space, algorithm, checked, samples, points, warm_start)


@takes_settings
def search_each(
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Mapping[str, Any]],
    direction: str | Mapping[str, str] = "max",
    *,
    searcher: Algorithm | None = None,
    samples: int | None = None,
    by: str = "group",
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Results:
    """Run one search per group, such as one model per region, over the same slots, as one run.

    The groups take turns: a slot that is free gets a trial of the next group that has one. Each
    search learns from the trials of its own group alone.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument, and with the name of the group as `group`;
            returns a number, a dict of names to numbers (see `optimization_key`), or a Keras
            History, of which the best epoch counts.
        bounds: Group to bounds, as for `evolutionary_search`: the same hyperparameters for all.
        direction: As for `evolutionary_search`; several objectives need a `searcher` for them.
        searcher: The algorithm; left out, `experiment.BayesianOptimization()`.
        samples: How many trials per group, for algorithms that do not know; 30 where `searcher` is
            left out.
        by: The argument of `train` that gets the name of the group, where it is not 'group'.
        points: As for `bayesian_search`, each with the group as a hyperparameter more.
        warm_start: Runs of `search_each` with these groups and this `by`.
        constraint: As for `evolutionary_search`; gets the group, too.
        **settings: See `experiment.Settings`. `max_failures` and `target` count for each group: one
            with more failed trials, or with a trial that is good enough, gets no more, and the
            others go on.

    Returns:
        Group to its `Result`; `.overall` is that of all trials.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed in each of the groups, or every trial failed; has
            `.result`, of all trials.
    """
    if searcher is None:
        searcher, samples = BayesianOptimization(), 30 if samples is None else samples
    _check_algorithm(searcher)
    checked, spaces = Settings(direction=direction, **settings), read_groups(bounds, by, constraint)
    for group, own in bounds.items():
        for sentence in numbers_in_texts(f"bounds[{group!r}]", own):
            warn_at(users_line(), sentence)
    most, target = checked.max_failures, checked.target
    grouped = Grouped(searcher, spaces, by=by, max_failures=most, target=target)
    whole, space = replace(checked, max_failures=None, target=None), union(spaces, by, constraint)
    result = _search(
        "search_each", spark, train, space, grouped, whole, samples, points, warm_start
    )
    return results_of_groups(result, spaces, by=by, max_failures=most, target=target)


@takes_settings
def population_based_training(
    spark: SparkSession,
    train: Callable[..., Any],
    bounds: Mapping[str, Any],
    direction: str = "max",
    popsize: int = 10,
    generations: int = 10,
    *,
    quantile: float = 0.25,
    resample_probability: float = 0.25,
    points: Iterable[Mapping[str, Any]] = (),
    constraint: Constraint | None = None,
    **settings: Any,
) -> Result:
    """Train a population; the worst go on from copies of the best, with other hyperparameters.

    `popsize * (generations + 1)` trials. A trial trains for a while: it goes on from the checkpoint
    that it finds in `experiment.checkpoint_dir()`, if there is one, and leaves its own there.
    Jaderberg et al., Population Based Training of Neural Networks (2017); see
    `PopulationBasedTraining`.

    Args:
        spark: A running SparkSession.
        train: Called with a hyperparameter per argument; returns a number, a dict of names to
            numbers (see `optimization_key`), or a Keras History, of which the best epoch counts.
        bounds: As for `evolutionary_search`.
        direction: 'max' or 'min' of the objective.
        popsize: Members, at least 2.
        generations: After the initial one, at least 1.
        quantile: Share of the members, of [0, 0.5], that are replaced by copies of as many best.
        resample_probability: That a hyperparameter of a copy is drawn anew rather than perturbed.
        points: Hyperparameters of the first members, at most `popsize`: dicts of hyperparameter to
            value. What one leaves out is drawn; a value may lie between two steps of its domain.
        constraint: As for `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        All trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
        SearchFailed: More failures than allowed, or every trial failed; has `.result`.
    """
    training = PopulationTraining(
        popsize=popsize,
        generations=generations,
        quantile=quantile,
        resample_probability=resample_probability,
    )
    checked = Settings(direction=direction, **settings)
    space = _space(bounds, constraint)
    call = "population_based_training"
    return _search(call, spark, train, space, training, checked, points=points)


def _space(bounds: Mapping[str, Any], constraint: Constraint | None, name: str = "bounds") -> Space:
    space = Space.of_bounds(bounds, constraint, name)
    for sentence in numbers_in_texts(name, bounds):
        warn_at(users_line(), sentence)
    return space


def _check_nsga2(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            expected = "nothing with several objectives, which NSGA-II searches"
            raise InvalidArgument(name, expected, shown(value))


def _check_algorithm(searcher: object) -> None:
    for method in ("start", "to_json"):
        if isinstance(searcher, type) or not callable(getattr(searcher, method, None)):
            expected = "a search algorithm, such as experiment.RegularizedEvolution()"
            raise InvalidArgument("searcher", expected, shown(searcher))


def _search(
    call: str,
    spark: SparkSession,
    train: Callable[..., Any],
    space: Space,
    algorithm: Algorithm,
    settings: Settings,
    samples: int | None = None,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
) -> Result:
    seed = _seed(settings)
    if not isinstance(algorithm, Grid):  # which asks for each of its points
        check_constraint(space, random.Random(seed))
    runs = runs_of(warm_start)
    slots = SlotsAsked(spark, samples, settings)
    problem = Problem(
        space=space,
        rng=random.Random(seed),
        direction=settings.goal,
        samples=samples,
        # With numbers of their own, so that what is drawn for a point can be said the next time.
        points=read_first_points(space, points, random.Random(f"points of {seed}")),
        known=known_of(runs, space, settings),
        slots=slots,
    )
    searcher = algorithm.start(problem)
    if not all(hasattr(searcher, name) for name in ("total", "finished", "ask", "tell")):
        expected = "a start() that returns a search.searcher.Searcher"
        raise InvalidArgument("searcher", expected, shown(searcher))
    arguments = _settings_of(algorithm)
    if samples is not None:
        arguments["samples"] = samples
    if problem.points:
        arguments["points"] = [_as_json(point) for point in problem.points]
    if runs:
        arguments["warm_start"] = runs
    search = Search(
        call, searcher, space, algorithm=arguments, known=problem.known, slots=slots.number
    )
    return _run(spark, train, search, settings, seed)


def _settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return what an algorithm says of itself, as the manifest will have it."""
    told: Any = algorithm.to_json()
    try:
        settings = msgspec.json.decode(json.dumps(told, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        got = f"{shown(told)}: {error}"
        raise InvalidArgument("searcher", _WANTED, got) from None
    if not isinstance(settings, dict):
        raise InvalidArgument("searcher", _WANTED, shown(told))
    return settings


def _run(
    spark: SparkSession, train: Callable[..., Any], search: Search, settings: Settings, seed: int
) -> Result:
    # Late: it loads grpc and tensorboard, which neither `import experiment` nor a trial needs.
    from experiment.driver.run_search import run_search

    return run_search(spark, train, search, settings, seed)


def _as_json(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in point.items()}


def _seed(settings: Settings) -> int:
    """Return the user's seed, that of the run to resume, or one drawn now."""
    if settings.seed is not None:
        return settings.seed
    if settings.resume is not None:
        return manifest_of(settings.resume).seed
    return secrets.randbits(32)
