"""One training on several slots: a search of a single trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from experiment.calls import launch
from experiment.driver.search_call import search_call
from experiment.results.result import Result, SearchFailed
from experiment.results.trial_result import TrialResult
from experiment.setup.keywords import TrainingKeywords
from experiment.setup.specification import SearchSpec
from experiment.setup.workers import Workers
from search.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@search_call(TrialResult, TrainingKeywords)
def distributed_training(
    spark: SparkSession,
    train: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    workers: int | tuple[int, int],
    **settings: Unpack[TrainingKeywords],
) -> SearchSpec:
    """Run a train function once, on several slots at the same time.

    It is a trial like those of a search: it resumes from its checkpoint if a slot is lost, and has
    a run folder, TensorBoard and `resume=`.

    Args:
        spark: A running SparkSession.
        train: The train function. Each worker calls it; `experiment.rank()` tells them apart. What
            rank 0 returns is the value: a number, a dict of names to numbers (see
            `optimization_key`), or a Keras History, whose best epoch counts.
        params: The arguments of `train`, by name. Default: none.
        workers: Number of slots that run it together; with a tuple such as (2, 4), as many of 2 to
            4 as are free.
        **settings: See `experiment.Settings`.

    Returns:
        The training, with value, metrics and folder.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
        SearchFailed: The training failed, or was ended before it began; `.result` has it.
    """
    Workers.read("workers", workers)
    point = read_params(params)
    spec = launch.spec(spark, train, [point], workers_per_trial=workers, **settings)
    return replace(
        spec, call="distributed_training", workers_argument="workers", returned=_only_trial
    )


def read_params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a training by name; InvalidArgument unless a dict or None."""
    if params is not None and not isinstance(params, Mapping):
        raise InvalidArgument("params", "a dict of argument names to values", shown(params))
    return {} if params is None else dict(params)


def _only_trial(result: Result) -> TrialResult:
    if not result.trials:
        raise SearchFailed(f"{result.problem}, before the training began", result)
    return result.trials[0]
