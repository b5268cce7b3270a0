"""Learning rates of large batches: scaled with the batch, and warmed up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

from search.checks import check_integer, check_number
from search.errors import InvalidArgument, shown

if TYPE_CHECKING:
    import keras

ScalingRule = Literal["linear", "sqrt"]


def linear_scaling(
    base_rate: float, base_batch: int, batch: int, rule: ScalingRule = "linear"
) -> float:
    """Return the learning rate for a batch, from one that is good for a smaller batch.

    A batch that is k times as large takes k times fewer steps, so each is to go k times as far (P.
    Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, arXiv:1706.02677,
    section 2.1). At the start of a training, where the weights change fast, that is too far: warm
    the rate up with `warmed_up`. Batches are those of a whole step, of all workers together.

    Args:
        base_rate: The good learning rate of the smaller batch.
        base_batch: The smaller batch, in samples.
        batch: The larger batch, in samples; one that is smaller scales the rate down.
        rule: 'linear' for SGD, with momentum or not; 'sqrt', the square root of the ratio, for
            optimizers that divide by the size of the gradients, such as Adam (S. Malladi et al.: On
            the SDEs and Scaling Rules for Adaptive Gradient Algorithms, arXiv:2205.10287).

    Raises:
        InvalidArgument: An argument is invalid.
    """
    check_number("base_rate", base_rate, "a learning rate above 0", _is_rate)
    check_integer("base_batch", base_batch, 1)
    check_integer("batch", batch, 1)
    if rule not in get_args(ScalingRule):
        raise InvalidArgument("rule", "'linear' or 'sqrt'", shown(rule))
    ratio = batch / base_batch
    return float(base_rate * (ratio if rule == "linear" else math.sqrt(ratio)))


def warmed_up(
    schedule_or_rate: keras.optimizers.schedules.LearningRateSchedule | float,
    steps: int,
    start: float = 0.0,
) -> Any:
    """Return a schedule of Keras that raises the learning rate step by step, then goes on.

    The rate grows linearly from `start` at step 0 to the first rate of the schedule at step
    `steps`, where the schedule begins (gradual warm-up: Goyal et al., arXiv:1706.02677, section
    2.2, who warm up from the rate of the smaller batch over the first five epochs). It works with
    each backend of Keras. A model that was saved with it can be loaded by any process that has
    imported `experiment`.

    Args:
        schedule_or_rate: The learning rate after the warm-up: a number or a schedule, which counts
            its steps from the end of the warm-up.
        steps: Number of steps (batches) of the warm-up, at least 1.
        start: The rate of step 0.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`, for `learning_rate=` of an optimizer.

    Raises:
        InvalidArgument: An argument is invalid.
    """
    # Late: `import experiment` needs no Keras.
    import keras

    from experiment.large_batches.schedules import WarmedUp

    check_integer("steps", steps, 1)
    check_number("start", start, "a learning rate from 0", lambda rate: rate == 0 or _is_rate(rate))
    schedule = schedule_or_rate
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        expected = "a learning rate above 0, or a LearningRateSchedule of Keras"
        check_number("schedule_or_rate", schedule, expected, _is_rate)
        schedule = float(schedule)
    return WarmedUp(schedule=schedule, steps=int(steps), start=float(start))


def _is_rate(value: float) -> bool:
    return 0 < value < math.inf
