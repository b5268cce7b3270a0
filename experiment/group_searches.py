"""The public call that runs a search for each of several groups, as one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast

from experiment.driver.search_call import search_call
from experiment.results.result import Result, Results, results_of_groups
from experiment.setup.building_specs import check_algorithm, spec_of_algorithm, warn_of_texts
from experiment.setup.keywords import SearchKeywords
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from experiment.setup.warm_start import Runs
from search.grouped import Grouped, GroupedSearch
from search.searcher import Algorithm
from search.sequential.bayesian import BayesianOptimization
from search.space.groups import read_groups, union
from search.space.spaces import Constraint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    **settings: Unpack[SearchKeywords],
) -> SearchSpec:
    """Run one search per group, such as one model per region, on the same slots, as one run.

    The groups take turns: a free slot gets a trial of the next group that has one. Each search
    learns from the trials of its own group alone. `max_failures` and `target` apply to each group:
    a group with more failed trials, or with a trial that reaches the target, ends, and the others
    continue.

    Args:
        spark: A running SparkSession.
        train: The train function. Each hyperparameter is an argument, and so is the name of the
            group, as `group`. It returns a number, a dict of names to numbers (see
            `optimization_key`), or a Keras History, whose best epoch counts.
        bounds: A dict of groups to search spaces, each given as for `evolutionary_search`, with the
            same hyperparameters in all.
        direction: See `evolutionary_search`; more than three objectives need a `searcher`.
        searcher: The algorithm; None for `experiment.BayesianOptimization()`.
        samples: Number of trials per group, for algorithms without a budget of their own; 30
            without a `searcher`.
        by: The argument of `train` that receives the name of the group.
        points: See `evolutionary_search`; each has the group as one more hyperparameter.
        warm_start: Runs of `search_each` with these groups and this `by`.
        constraint: See `evolutionary_search`; the dict has the group, too.
        **settings: See `experiment.Settings`.

    Returns:
        A mapping of groups to their `Result`; `.overall` is the result of all trials.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The search could not go on in any group, or every trial failed; `.result` has
            its trials.
    """
    if searcher is None:
        searcher, samples = BayesianOptimization(), 30 if samples is None else samples
    check_algorithm(searcher)
    checked = Settings(direction=direction, **settings)
    spaces = read_groups(bounds, by, constraint)
    for group, own in bounds.items():
        warn_of_texts(f"bounds[{group!r}]", own)
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
    groups = cast(GroupedSearch, spec.searcher)

    def by_group(overall: Result) -> Results:
        return results_of_groups(
            overall,
            spaces,
            by=by,
            totals=groups.totals,
            exhausted=groups.exhausted_groups,
            max_failures=checked.max_failures,
            target=checked.target,
        )

    return replace(spec, returned=by_group)
