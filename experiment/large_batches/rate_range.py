"""The range of learning rates with which a model learns, found by raising the rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiment.large_batches.samples import Samples
from search.checks import check_integer, check_number
from search.errors import InvalidArgument, shown
from spark_jobs.trial import context

if TYPE_CHECKING:
    import matplotlib.axes

_MOST_PARTS = 3  # of a batch: inputs, targets, sample weights
_SMOOTHING = 0.9  # weight of the losses before in the moving average
_DIVERGED = 3.0  # magnitudes of the least loss by which another one exceeds it, both smoothed


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """The loss of a training whose learning rate rises; see `experiment.learning_rate_range`.

    Attributes:
        rates: The learning rate of each step, in ascending order.
        losses: The loss of each step's batch, before the step.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def smoothed(self) -> tuple[float, ...]:
        """The losses as an exponential moving average, without the bias of its start."""
        return tuple(_smoothed(self.losses))

    @property
    def suggestion(self) -> float:
        """A learning rate: a tenth of the one at the least smoothed loss, at least the lowest.

        At the least loss itself the training is about to diverge. The rule is that of fastai (J.
        Howard, S. Gugger: fastai: A Layered API for Deep Learning, arXiv:2002.04688, and its
        `lr_find`).
        """
        best = self.rates[int(np.argmin(self.smoothed))]
        return max(best / 10, self.rates[0])

    def plot(self, *, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the losses by the learning rate with matplotlib, and mark the suggestion.

        Args:
            ax: The axes to draw on; None for a new figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        # Late: train functions need no plots.
        from experiment.results.plotting.axes import new_axes

        axes = new_axes() if ax is None else ax
        axes.plot(self.rates, self.losses, ".", alpha=0.4, label="loss of a step")
        axes.plot(self.rates, self.smoothed, label="smoothed")
        suggested = f"suggestion: {self.suggestion:.2g}"
        axes.axvline(self.suggestion, color="tab:red", linestyle="--", label=suggested)
        axes.set(xscale="log", xlabel="learning rate (log)", ylabel="loss")
        axes.set_title("Learning rate range")
        axes.legend()
        return axes


def learning_rate_range(
    build: Callable[[], Any],
    data: Any,
    *,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    batch_size: int = 32,
) -> RateCurve:
    """Train a new model for some steps, each with a higher learning rate, and record the losses.

    The rate grows exponentially from `low` to `high`; the training ends earlier if it diverges: at
    a loss that is not finite, or exceeds the least one by three times its magnitude, both smoothed
    (L. N. Smith: Cyclical Learning Rates for Training Neural Networks, arXiv:1506.01186, section
    3.3). The result holds for the batch size with which it was measured.

    In a trial on several slots all workers call it, and all get the same result, with the mean of
    their losses.

    Args:
        build: Returns a compiled model of Keras; the learning rate of its optimizer is replaced.
        data: `(x, y)` or `(x, y, sample_weight)` of arrays, of which shuffled batches are taken; or
            an iterable of batches such as a `tf.data.Dataset`, started again at its end.
        low: The first learning rate.
        high: The last learning rate.
        steps: Number of steps, at least 2.
        batch_size: The samples of a step, if `data` is arrays.

    Returns:
        The curve, with `.suggestion` and `.plot()`.

    Raises:
        InvalidArgument: An argument is invalid, or no step has a finite loss.
    """
    check_number("low", low, "a learning rate above 0", lambda rate: 0 < rate < math.inf)
    above = f"a learning rate above low={low!r}"
    check_number("high", high, above, lambda rate: low < rate < math.inf)
    check_integer("steps", steps, 2)
    check_integer("batch_size", batch_size, 1)
    batches = _batches(data, batch_size)
    model = build() if callable(build) else None
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise InvalidArgument("build", "a function that returns a compiled model", shown(build))
    counter = _raise_rate(optimizer, float(low), float(high), steps)
    rates: list[float] = []
    losses: list[float] = []
    for step, batch in zip(range(steps), batches, strict=False):
        counter.assign(step)  # it omits steps that a scaled loss skips
        rate = float(optimizer.learning_rate)
        model.reset_metrics()
        loss = _mean_of_workers(model.train_on_batch(*batch, return_dict=True)["loss"])
        if not math.isfinite(loss):
            break
        rates.append(rate)
        losses.append(loss)
        *_, smoothed = steady = list(_smoothed(losses))
        least = min(steady)
        if smoothed > least + _DIVERGED * abs(least):
            break
    if not losses:
        hint = "lower it, and look for NaN in the data"
        raise InvalidArgument("low", "a rate whose loss is finite", shown(low), hint)
    return RateCurve(rates=tuple(rates), losses=tuple(losses))


def _raise_rate(optimizer: Any, low: float, high: float, steps: int) -> Any:
    """Let an optimizer's learning rate grow exponentially, over a number of batches.

    Returns:
        The optimizer's variable for the number of batches so far, on which the rate depends.
    """
    import keras

    rising = keras.optimizers.schedules.ExponentialDecay(low, steps - 1, high / low)
    optimizer.learning_rate = rising
    # The property `iterations` is no variable if the optimizer accumulates gradients.
    return getattr(optimizer, "inner_optimizer", optimizer)._iterations


def _mean_of_workers(loss: Any) -> float:
    """Return the mean loss of all workers, by which they end at the same step."""
    trial = context.current()
    if trial is None or trial.communicator is None:
        return float(loss)
    trial.communicator.meet()  # some make a step for longer than others
    (mean,) = trial.communicator.all_reduce([float(loss)])
    return float(mean)


def _batches(data: Any, size: int) -> Iterator[tuple[Any, ...]]:
    """Return an endless iterator over batches of the data."""
    if isinstance(data, tuple) or not isinstance(data, Iterable):
        samples = Samples(data)
        return _of_samples(samples, min(size, samples.number))
    return _again_and_again(data)


def _of_samples(samples: Samples, size: int) -> Iterator[tuple[Any, ...]]:
    generator = np.random.default_rng(0)
    while True:
        rows = generator.permutation(samples.number)
        for first in range(0, samples.number - size + 1, size):
            yield samples.at(rows[first : first + size])


def _again_and_again(batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    while True:
        empty = True
        for batch in batches:
            empty, parts = False, tuple(batch)
            if len(parts) > _MOST_PARTS:
                expected = f"batches of at most {_MOST_PARTS} parts: inputs, targets, weights"
                hint = "write arrays as a tuple: data=(x, y)"
                raise InvalidArgument("data", expected, f"one of {len(parts)} parts", hint)
            yield parts
        if empty:
            hint = "an iterator can be used only once: pass what makes it"
            raise InvalidArgument("data", "batches for all steps", "no more batches", hint)


def _smoothed(losses: Iterable[float]) -> Iterator[float]:
    mean = 0.0
    for number, loss in enumerate(losses, start=1):
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        yield mean / (1 - _SMOOTHING**number)
