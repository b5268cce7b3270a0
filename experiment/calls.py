"""The public calls: each builds a `SearchSpec` from its arguments, which is then run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from experiment.driver.search_call import search_call
from experiment.results.result import Result
from experiment.setup.building_specs import (
    check_algorithm,
    read_space,
    seed_of,
    spec_of_algorithm,
)
from experiment.setup.keywords import Keywords, SearchKeywords
from experiment.setup.resuming import recorded_argument
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from experiment.setup.warm_start import Runs
from search.algorithms import Evolution, Grid, Random
from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.evolution.nsga2 import NSGA2
from search.evolution.settings import Mutation
from search.grid import PointSearch
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
    **settings: Unpack[Keywords],
) -> SearchSpec:
    """Run a train function on every point of a grid, one trial per point, on Spark executors.

    Args:
        spark: A running SparkSession.
        train: The train function. Each hyperparameter is an argument. It returns a number, a dict
            of names to numbers (see `optimization_key`), or a Keras History, whose best epoch
            counts.
        args_dict: A dict of argument names to lists of values, whose Cartesian product is run in
            the order of itertools.product; or a list of dicts, one per trial.
        constraint: See `evolutionary_search`; points that it does not allow are left out. With it
            the product may have at most 10,000,000 points.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
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
    **settings: Unpack[Keywords],
) -> SearchSpec:
    """Search a space with any algorithm; the other searches are this one with their algorithm.

    Args:
        spark: A running SparkSession.
        train: See `launch`.
        space: The search space, given as `bounds` of `evolutionary_search`.
        searcher: The algorithm, such as `experiment.RegularizedEvolution()`, or any object with the
            methods of `Algorithm`, which itself applies `points`, `warm_start` and `constraint`.
        samples: Number of trials, for algorithms without a budget of their own.
        points: See `evolutionary_search`.
        warm_start: See `evolutionary_search`.
        constraint: See `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
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
    variant: str | None = None,
    noisy: bool = False,
    candidates: int | None = None,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Unpack[SearchKeywords],
) -> SearchSpec:
    """Search by differential evolution, asynchronously or generation by generation.

    With several objectives, NSGA-II searches for their Pareto front instead.

    `popsize * (generations + 1)` trials; generation 0, the initial population, is a Latin
    hypercube. By default a free slot gets the next trial at once: a point of another Latin
    hypercube until `popsize` trials have ended, then one made from the current population. The same
    seed then gives the same trials only if outcomes arrive in the same order, as with
    `parallelism=1`. With `generational=True` the order does not matter, but slots wait at the end
    of each generation. The guide's page "Algorithms" describes both.

    Args:
        spark: A running SparkSession.
        train: The train function. Each hyperparameter is an argument. It returns a number, a dict
            of names to numbers (see `optimization_key`), or a Keras History, whose best epoch
            counts.
        bounds: The search space: a dict of argument names to `[low, high]`, in either order, or to
            a list of choices. Two ints stay ints; positive floats with the high one first, or 1,000
            times apart, are searched on a log scale. `experiment.Float`, `Integer` and `Choice` say
            it explicitly, and more: a constant as `Choice(['eu'])`, steps, ordered choices, and
            `when={'optimizer': 'sgd'}` for a hyperparameter that other trials lack; `train` needs
            a default for it.
        direction: 'max' or 'min'. For several objectives a dict of their names, as the train
            function returns them, to directions: `{'accuracy': 'max', 'latency': 'min'}`.
        popsize: Individuals, at least 4.
        generations: Generations after the initial population, at least 1.
        crossover: Crossover rate CR of [0, 1]. With several objectives, the probability that a
            child has two parents.
        mutation: Differential weight F of (0, 2], or two bounds between which each trial's is
            drawn; None for 0.5 with `generational`, otherwise (0.5, 1.0). With several objectives,
            the probability of [0, 1] that a hyperparameter mutates; None for one on average.
        generational: False: no slot waits, and a better trial joins the population as soon as it
            ends. True: each generation waits for the last trial of the one before.
        variant: 'rand1bin' or 'current-to-pbest1bin'; None for the first with `generational`,
            otherwise the second. Not with several objectives.
        noisy: Whether evaluations of the same configuration differ. Then every tenth trial repeats
            the best configuration, whose score is the mean of its values. A `popsize` of 20 suits
            noise. `Result.best_mean` is the best repeated configuration. Not with `generational`
            or several objectives.
        candidates: Trial vectors, with several objectives children, drawn for a trial, of which the
            most promising one is evaluated; after 160 trials, prior observations included, fewer
            and fewer trials are chosen so. None for 20, or for as many as the run to resume has.
            Not with `generational`.
        points: Configurations to try first, counted among the trials, at most `popsize` with
            `generational` and one objective: dicts of hyperparameter to value. Hyperparameters left
            out are drawn; a value may lie between two steps of its domain.
        warm_start: Prior observations: a run, by its folder or `Result`, or a list of runs, whose
            finished and failed trials the search learns from; of `hyperband_search`, only the
            longest of the finished ones. They are not counted among the trials, and the best of
            them are the initial population of this search. Space, direction and `optimization_key`
            must be the same; a run of `population_based_training` is refused.
        constraint: A function of a dict of hyperparameters that returns whether to allow them, such
            as `lambda p: p["batch"] * p["units"] < 1e6`. It must be deterministic.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
    """
    checked = Settings(direction=direction, **settings)
    if candidates is None and not generational and checked.resume is not None:
        candidates = recorded_argument(checked.resume, "candidates")
    algorithm: Algorithm
    budget = {"popsize": popsize, "generations": generations}
    if isinstance(checked.goal, Direction):
        algorithm = Evolution(
            **budget,
            crossover=crossover,
            mutation=mutation,
            variant=variant,
            generational=generational,
            noisy=noisy,
            candidates=candidates,
        )
    else:
        _check_nsga2(variant=variant, noisy=noisy or None)
        algorithm = NSGA2(
            **budget,
            crossover=crossover,
            mutation=mutation,  # type: ignore[arg-type]  # two weights are refused there
            generational=generational,
            candidates=candidates,
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
    **settings: Unpack[Keywords],
) -> SearchSpec:
    """Run a train function on random points, none of them twice.

    Args:
        spark: A running SparkSession.
        train: See `launch`.
        bounds: The search space; see `evolutionary_search`.
        samples: Number of trials; fewer if the space has fewer configurations.
        points: See `evolutionary_search`.
        warm_start: See `evolutionary_search`; the configurations of the finished and failed trials
            of these runs are not tried again. Of a run of `hyperband_search`, only those of its
            longest and its failed trials count as tried.
        constraint: See `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
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
    direction: str | Mapping[str, str] = "max",
    *,
    samples: int = 30,
    noisy: bool = False,
    points: Iterable[Mapping[str, Any]] = (),
    warm_start: Runs = (),
    constraint: Constraint | None = None,
    **settings: Unpack[SearchKeywords],
) -> SearchSpec:
    """Search by Bayesian optimisation with a Gaussian process: for few, long trials.

    The first trials are spread over the space. From the ninth on, and once three have a value, each
    is where a model of the objective expects the largest improvement, given the trials in flight,
    so no slot waits. With two or three objectives each has a model, and the improvement is that of
    the volume that the Pareto front dominates. The same seed gives the same trials only if outcomes
    arrive in the same order, as with `parallelism=1`.

    Args:
        spark: A running SparkSession.
        train: See `launch`.
        bounds: The search space; see `evolutionary_search`.
        direction: 'max' or 'min', or a dict for two or three objectives; see `evolutionary_search`.
        samples: Number of trials, tens or a few hundreds. With one objective
            `evolutionary_search` is as good from about 100 on, and needs less of the driver's time.
        noisy: Whether evaluations of the same configuration differ. Then the search compares the
            model's predictions, not single values, and may repeat a configuration.
        points: See `evolutionary_search`.
        warm_start: See `evolutionary_search`.
        constraint: See `evolutionary_search`.
        **settings: See `experiment.Settings`.

    Returns:
        The result with all trials, failed ones too; `.best` is the best.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on, or every trial failed; `.result` has its trials.
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


def _check_nsga2(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            expected = "the default with several objectives, which NSGA-II searches"
            raise InvalidArgument(name, expected, shown(value))
