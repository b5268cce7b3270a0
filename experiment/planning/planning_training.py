"""The call that measures a training, and plans its number of workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from experiment.planning.measured_steps import FEWEST_STEPS, FirstSteps, seconds_of_exchange
from experiment.planning.plan import plan
from experiment.planning.training_plan import Exchange, TrainingPlan, training_plan
from experiment.setup.function.train_function import check_arguments
from experiment.setup.keywords import MeasuringKeywords, takes_settings
from experiment.training import distributed_training, read_params
from search.checks import check_integer, plain
from search.errors import InvalidArgument, shown
from spark_jobs.strategies.settings import Mirrored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.partial(takes_settings, keywords=MeasuringKeywords)
def plan_training(
    spark: SparkSession,
    train: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    workers: Sequence[int] = (1, 2, 4),
    steps: int = 30,
    strategy: Mirrored | Literal["mirrored"] | None = None,
    **settings: Unpack[MeasuringKeywords],
) -> TrainingPlan:
    """Predict how fast a Keras training would be on several workers, from its first steps.

    It runs the train function on one worker until the first steps of its first `model.fit` are
    done, and then exchanges as many numbers as the model has gradients between two workers. Both
    are trials with a run folder. How many slots the cluster has does not matter, beyond two.
    `precision` is that of the first steps; gradients are exchanged in 32 bits, as weights have.

        plan = experiment.plan_training(spark, train, {"learning_rate": 0.1}, workers=(1, 2, 4, 8))
        trial = experiment.distributed_training(spark, train, params, workers=plan.workers)

    Args:
        spark: A running SparkSession.
        train: The train function, which calls `model.fit`.
        params: The arguments of `train`, by name. Default: none.
        workers: The numbers of workers to plan.
        steps: The number of steps to measure, of which the first fifth is left out; at least 5.
        strategy: How the workers would train together. Default: `experiment.Mirrored()`.
        **settings: See `experiment.Settings`.

    Returns:
        The plan: the speed with each number of workers, for the same batch and for one that grows
        with the workers, and the number that pays.

    Raises:
        InvalidArgument: An argument is invalid, or the session cannot run two workers; raised
            before any training starts.
        SearchFailed: The training failed, or calls no `model.fit` with at least 5 batches in an
            epoch.
    """
    numbers = _numbers(workers)
    check_integer("steps", steps, FEWEST_STEPS)
    chosen = Mirrored() if strategy is None or strategy == "mirrored" else strategy
    if not isinstance(chosen, Mirrored):
        raise InvalidArgument(
            "strategy", "experiment.Mirrored(...), 'mirrored' or None", shown(strategy)
        )
    check_arguments(train, read_params(params))
    shared: dict[str, Any] = {**settings, "strategy": chosen, "direction": "min"}
    exchange: dict[str, Any] = {"workers": 2, "optimization_key": "gradients", **shared}
    exchange.pop("precision", None)  # it computes nothing in Keras
    if numbers[-1] > 1:  # what forbids the second trial is said before the first
        plan(distributed_training, spark, seconds_of_exchange, {"gradient_bytes": 1}, **exchange)
    found = distributed_training(
        spark,
        FirstSteps(train, plain(steps)),
        params,
        workers=1,
        optimization_key="step_seconds",
        **shared,
    ).metrics
    gradient_bytes = int(found["gradient_bytes"])
    of_two = None
    if numbers[-1] > 1:
        sizes = {"gradient_bytes": gradient_bytes}
        exchanged = distributed_training(spark, seconds_of_exchange, sizes, **exchange).metrics
        of_two = Exchange(nothing=exchanged["nothing"], gradients=exchanged["gradients"])
    return training_plan(
        numbers,
        step_seconds=found["step_seconds"],
        gradient_bytes=gradient_bytes,
        exchange=of_two,
        batch_size=int(found["batch_size"]) if "batch_size" in found else None,
        learning_rate=found.get("learning_rate"),
        rule="sqrt" if found["adaptive"] else "linear",
    )


def _numbers(workers: object) -> list[int]:
    """Return the numbers of workers, the smallest first."""
    expected = "integers of at least 1, such as (1, 2, 4)"
    try:
        numbers = sorted({plain(number) for number in workers})  # type: ignore[attr-defined]  # as checked here
        for number in numbers:
            check_integer("workers", number, 1)
    except (TypeError, InvalidArgument):
        raise InvalidArgument("workers", expected, shown(workers)) from None
    if not numbers:
        raise InvalidArgument("workers", expected, shown(workers))
    return numbers
