"""The public calls: each builds the `SearchSpec` of its arguments, which then is run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiment.driver.search_call import search_call
from experiment.results.result import Result, Results, results_of_groups
from experiment.setup.building_specs import (
    check_algorithm,
    read_space,
    seed_of,
    spec_of_algorithm,
    warn_of_texts,
)
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from experiment.setup.warm_start import Runs
from search.algorithms import Evolution, Grid, Random
from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.evolution.nsga2 import NSGA2
from search.evolution.population_based import PopulationTraining
from search.evolution.settings import Mutation
from search.grid import PointSearch
from search.grouped import Grouped, read_groups, union
from search.searcher import Algorithm
from search.sequential.bayesian import BayesianOptimization
from search.space.spaces import Constraint, Space, read_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@search_call(Result)
def launch(
    spark: SparkSession,
    train: Callable[..., Any],
    args_dict: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    *,
    constraint: Constraint | None = None,
    **settings: Any,
) -> SearchSpec:
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
        return spec_of_algorithm(
            Grid(), call="launch", spark=spark, train=train, space=space, settings=checked
        )
    points = read_points(args_dict, constraint)
    return SearchSpec(
        call="launch",
        spark=spark,
        train=train,
        settings=checked,
        seed=seed_of(checked),
        searcher=PointSearch(points),
        space=None,
        points=points,
        algorithm={"type": "points"},
    )


@search_call(Result)
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
) -> SearchSpec:
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
    check_algorithm(searcher)
    checked = Settings(**settings)
    return spec_of_algorithm(
        searcher,
        call="run",
        spark=spark,
        train=train,
        space=read_space(space, constraint, "space"),
        settings=checked,
        samples=samples,
        points=points,
        warm_start=warm_start,
    )


@search_call(Result)
def evolutionary_search(  # noqa: PLR0917  # their order is part of the call
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
) -> SearchSpec:
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
    return spec_of_algorithm(
        algorithm,
        call="evolutionary_search",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        points=points,
        warm_start=warm_start,
    )


@search_call(Result)
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
) -> SearchSpec:
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
    return spec_of_algorithm(
        Random(),
        call="random_search",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        samples=samples,
        points=points,
        warm_start=warm_start,
    )


@search_call(Result)
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
) -> SearchSpec:
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
    return spec_of_algorithm(
        algorithm,
        call="bayesian_search",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        samples=samples,
        points=points,
        warm_start=warm_start,
    )


@search_call(Results)
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
) -> SearchSpec:
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
    check_algorithm(searcher)
    checked = Settings(direction=direction, **settings)
    spaces = read_groups(bounds, by, constraint)
    for group, own in bounds.items():
        warn_of_texts(f"bounds[{group!r}]", own)
    by_group = functools.partial(
        results_of_groups,
        spaces=spaces,
        by=by,
        max_failures=checked.max_failures,
        target=checked.target,
    )
    spec = spec_of_algorithm(
        Grouped(searcher, spaces, by=by, max_failures=checked.max_failures, target=checked.target),
        call="search_each",
        spark=spark,
        train=train,
        space=union(spaces, by, constraint),
        settings=replace(checked, max_failures=None, target=None),
        samples=samples,
        points=points,
        warm_start=warm_start,
    )
    return replace(spec, returned=by_group)


@search_call(Result)
def population_based_training(  # noqa: PLR0917  # their order is part of the call
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
) -> SearchSpec:
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
    return spec_of_algorithm(
        training,
        call="population_based_training",
        spark=spark,
        train=train,
        space=read_space(bounds, constraint),
        settings=checked,
        points=points,
    )


def _check_nsga2(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            expected = "nothing with several objectives, which NSGA-II searches"
            raise InvalidArgument(name, expected, shown(value))
