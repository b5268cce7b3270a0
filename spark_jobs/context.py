"""What a train function may call. All of it also works, harmlessly, outside of a trial.

The trial is found by a context variable. Threads that a train function starts do not inherit it
before Python 3.14: what they call happens outside of the trial, unless they run in a copy of the
context (`contextvars.copy_context().run`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.hadoop import HadoopSettings
from spark_jobs.host_cache import CacheSettings
from spark_jobs.objective import UnusableReturn, number


class DataSettings(msgspec.Struct, frozen=True):
    """How trials get at their data.

    Attributes:
        hadoop: Where HDFS is, and who asks.
        cache: Of copies on a host.
    """

    hadoop: HadoopSettings = HadoopSettings()
    cache: CacheSettings = CacheSettings()


_NO_SETTINGS = DataSettings()


@dataclasses.dataclass(slots=True)
class TrialContext:
    """The trial that runs in this context.

    Attributes:
        params: Its hyperparameters.
        folder: Its folder, a TensorBoard run.
        data: How it gets at its data.
        reports: How many reports without a step there were.
        held: Descriptors of copies that it reads; closed at its end.
    """

    params: Mapping[str, Any]
    folder: Path
    data: DataSettings = _NO_SETTINGS
    reports: int = 0
    held: list[int] = dataclasses.field(default_factory=list)


_current: contextvars.ContextVar[TrialContext | None] = contextvars.ContextVar(
    "experiment_trial", default=None
)
_scratch: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "experiment_scratch", default=None
)


@contextlib.contextmanager
def entered(context: TrialContext) -> Iterator[None]:
    """Make `context` the current trial inside the block."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
        while context.held:
            os.close(context.held.pop())


def current() -> TrialContext | None:
    """Return the trial that runs in this context; None outside of one."""
    return _current.get()


def logdir() -> str:
    """Return the trial's folder, for TensorBoard logs, images, models.

    Outside of a trial it is a temporary folder, the same for all calls in a context.
    """
    context = _current.get()
    if context is not None:
        return str(context.folder)
    scratch = _scratch.get()
    if scratch is None:
        scratch = tempfile.mkdtemp(prefix="experiment-")
        _scratch.set(scratch)
    return scratch


def params() -> dict[str, Any]:
    """Return the trial's hyperparameters; an empty dict outside of a trial."""
    context = _current.get()
    return {} if context is None else dict(context.params)


def report(*, step: int | None = None, **metrics: Any) -> None:
    """Add a point to curves of the trial, one per metric, in TensorBoard.

    Outside of a trial the arguments are checked and nothing else happens.

    Args:
        step: The epoch or step, from 0. Left out: the number of calls without it so far.
        **metrics: Name to a number; NaN and infinities are fine here.

    Raises:
        ValueError: A metric is not a number, or a step is no integer.
    """
    values = {}
    for name, value in metrics.items():
        try:
            values[name] = number(value)
        except UnusableReturn as error:
            raise ValueError(f"report({name}=...): {error}") from None
    if step is not None and (isinstance(step, bool) or int(step) != step):
        raise ValueError(f"report(step=...): expected an integer, got {step!r}")
    context = _current.get()
    if context is None:
        return
    if step is None:
        step, context.reports = context.reports, context.reports + 1
    from spark_jobs.events import EventFile  # late: `import experiment` stays without tensorboard

    with EventFile(context.folder) as events:
        events.scalars(values, int(step))


def keras_callbacks() -> list[Any]:
    """Return callbacks for `model.fit` that report each epoch's logs (`loss`, `val_loss`, ...).

    The curves go into the trial's one run. Keras' own TensorBoard callback makes two more runs per
    trial, and above 40 runs TensorBoard's pages start empty; it may still be added beside these.
    """
    import keras

    def on_epoch_end(epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        report(step=epoch, **(logs or {}))

    return [keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)]
