"""How many workers pay for one training: a model of its speed, from measured parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiment.large_batches.rates import ScalingRule, linear_scaling
from experiment.results import html
from experiment.results.text import count, number

_BUSY = 0.7
"""The share of its time for which each worker is to compute, so that their number pays."""

_HEAD = ("workers", "same batch: s a step", "speed", "busy", "larger batch", "rate", "speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The time in which two workers exchange gradients, in seconds.

    Attributes:
        nothing: That of a single number, so of the messages alone.
        gradients: That of all gradients of the model.
    """

    nothing: float
    gradients: float

    def seconds(self, workers: int) -> float:
        """Return the seconds in which a number of workers exchange the gradients in a ring.

        Each of n workers sends 2 (n - 1) messages, one after the other, each of a part of 1 / n of
        the gradients (P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters
        of workstations, Journal of Parallel and Distributed Computing 69, 2009).

        Args:
            workers: The number of workers, from 1.
        """
        message = self.nothing / 2
        all_bytes = max(0.0, self.gradients - self.nothing)
        return 2 * (workers - 1) * (message + all_bytes / workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpeed:
    """The speed of a training on a number of workers, as predicted.

    Attributes:
        workers: The number of workers.
        step_seconds: Seconds of a step if all workers together take the batch of one worker, each
            a part: the result is that of one worker.
        speedup: How many times as many samples a second as on one worker, with this batch.
        busy: The share of (0, 1] of a step for which a worker computes, with this batch.
        larger_batch: The batch if each worker takes as many samples as one worker would; None if
            the batch is unknown.
        larger_rate: The learning rate that goes with the larger batch, by
            `experiment.linear_scaling`: in proportion to the batch for SGD, and to its square root
            for all other optimizers, which divide by the size of the gradients, as Adam does. None
            if the rate is unknown.
        larger_speedup: How many times as many samples a second as on one worker, with this batch.
    """

    workers: int
    step_seconds: float
    speedup: float
    busy: float
    larger_batch: int | None
    larger_rate: float | None
    larger_speedup: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingPlan:
    """What several workers would gain for one training. A notebook shows it as a table.

    Attributes:
        step_seconds: Seconds of a step on one worker, measured: the median.
        batch_size: Samples of a batch; None if they are not known.
        learning_rate: The learning rate at the start, or after the warm-up of a schedule by
            `experiment.warmed_up` or of Keras; None if it is not known, or 0.
        gradient_bytes: Bytes of the gradients of all trainable variables.
        exchange: The time of their exchange between two workers, measured; None if no number of
            workers above 1 was asked for.
        speeds: The speed of each number of workers that was asked for, the smallest first.
    """

    step_seconds: float
    batch_size: int | None
    learning_rate: float | None
    gradient_bytes: int
    exchange: Exchange | None
    speeds: tuple[TrainingSpeed, ...]

    @property
    def workers(self) -> int:
        """The largest number of workers that pays with the same batch: each is busy for 70 %.

        The smallest number that was asked for, if none does.
        """
        return max(self._paying, default=self.speeds[0].workers)

    @property
    def _paying(self) -> list[int]:
        return [speed.workers for speed in self.speeds if speed.busy >= _BUSY]

    def __repr__(self) -> str:
        rows = [_HEAD, *map(_cells, self.speeds)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(["", *(text.rjust(width) for text, width in zip(row, widths, strict=True))])
            for row in rows
        ]
        return "\n".join([f"{self._measured}:", *lines, self._advice])

    def _repr_html_(self) -> str:
        """Return the plan as HTML for a notebook."""
        table = html.table(_HEAD, map(_cells, self.speeds))
        return html.block(html.line(self._measured), table, html.line(self._advice))

    @property
    def _measured(self) -> str:
        batch = "" if self.batch_size is None else f" of {count(self.batch_size, 'sample')}"
        text = (
            f"measured: a step{batch} takes {number(self.step_seconds)} s on one worker, "
            f"gradients have {self.gradient_bytes / 1e6:.3g} MB"
        )
        if self.exchange is None:
            return text
        return f"{text}, two workers exchange them in {number(self.exchange.gradients)} s"

    @property
    def _advice(self) -> str:
        text = f"{count(self.workers, 'worker')} with the same batch"
        if not self._paying:
            return (
                f"{text}, the fewest asked for: computing takes less than {_BUSY:.0%} of each step"
            )
        if self.workers == self.speeds[-1].workers:
            return f"{text}: computing takes at least {_BUSY:.0%} of each step"
        return f"{text}: with more, computing takes less than {_BUSY:.0%} of each step"


def training_plan(
    workers: Sequence[int],
    *,
    step_seconds: float,
    gradient_bytes: int,
    exchange: Exchange | None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    rule: ScalingRule = "linear",
) -> TrainingPlan:
    """Return the plan that follows from what was measured.

    The seconds of a step on n workers are those of computing / n, and those of the exchange. What a
    step costs whatever its batch counts as computing, so the speed of short steps is predicted too
    high.

    Args:
        workers: The numbers of workers, the smallest first.
        step_seconds: See `TrainingPlan`, as for the other arguments.
        gradient_bytes: Bytes of all gradients.
        exchange: The exchange of two workers; None if all numbers are 1.
        batch_size: Samples of a batch.
        learning_rate: The learning rate.
        rule: How the rate grows with the batch, see `experiment.linear_scaling`.
    """
    rate = learning_rate

    def speed(n: int) -> TrainingSpeed:
        exchanging = 0.0 if exchange is None else exchange.seconds(n)
        step = step_seconds / n + exchanging
        return TrainingSpeed(
            workers=n,
            step_seconds=step,
            speedup=step_seconds / step,
            busy=step_seconds / n / step,
            larger_batch=None if batch_size is None else n * batch_size,
            larger_rate=None if rate is None else linear_scaling(rate, 1, n, rule),
            larger_speedup=n * step_seconds / (step_seconds + exchanging),
        )

    return TrainingPlan(
        step_seconds=step_seconds,
        batch_size=batch_size,
        learning_rate=learning_rate,
        gradient_bytes=gradient_bytes,
        exchange=exchange,
        speeds=tuple(map(speed, workers)),
    )


def _cells(speed: TrainingSpeed) -> tuple[str, ...]:
    return (
        str(speed.workers),
        number(speed.step_seconds),
        f"{speed.speedup:.2f}",
        f"{speed.busy:.0%}",
        "" if speed.larger_batch is None else str(speed.larger_batch),
        "" if speed.larger_rate is None else number(speed.larger_rate),
        f"{speed.larger_speedup:.2f}",
    )
