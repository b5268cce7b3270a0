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
from typing import TYPE_CHECKING, Any

import msgspec

from search.values import is_unicode
from spark_jobs.messages import Report
from spark_jobs.run_folder.paths import CHECKPOINT
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.storage.local_files import make_folder
from spark_jobs.trial.link import Link, NoLink
from spark_jobs.trial.objective import UnusableReturn, number

if TYPE_CHECKING:
    from spark_jobs.trial.event_file import EventFile


class DataSettings(msgspec.Struct, frozen=True):
    """How trials get at their data.

    Attributes:
        hadoop: Where HDFS is, and who asks.
        cache: Of copies on a host.
    """

    hadoop: HadoopSettings = HadoopSettings()
    cache: CacheSettings = CacheSettings()


_NO_SETTINGS = DataSettings()


class TrialStopped(BaseException):
    """Raised by `report` in a trial that is to stop.

    Not an Exception, so that a train function's own `except Exception` lets it pass.
    """


@dataclasses.dataclass(slots=True, kw_only=True)
class TrialContext:
    """The trial that runs in this context.

    Attributes:
        params: Its hyperparameters.
        folder: Its folder, a TensorBoard run.
        data: How it gets at its data.
        link: To who listens.
        reports: How many reports without a step there were.
        epoch: The last one that Keras' callback reported.
        last: Its last step, with what each metric was when it was reported last.
        stopped: Why it is to stop, once it has heard of it; ''.
        events: Its event file, once it reported.
        held: Descriptors of copies that it reads; closed at its end.
        clock_lag: Seconds by which this host's clock lags the driver's.
    """

    params: Mapping[str, Any]
    folder: Path
    data: DataSettings = _NO_SETTINGS
    link: Link = dataclasses.field(default_factory=NoLink)
    reports: int = 0
    epoch: int = -1
    last: Report | None = None
    stopped: str = ""
    events: EventFile | None = None
    held: list[int] = dataclasses.field(default_factory=list)
    clock_lag: float = 0.0


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
        if context.events is not None:
            context.events.close()
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


def checkpoint_dir() -> str:
    """Return the folder of the trial's checkpoints, which is kept with the trial.

    When a trial runs again, since its executor was lost, it finds here what the attempt before had
    kept; in `population_based_training` what the trial that it goes on from had. It is empty where
    the trial begins anew, and outside of a trial.
    """
    folder = os.path.join(logdir(), CHECKPOINT)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def params() -> dict[str, Any]:
    """Return the trial's hyperparameters; an empty dict outside of a trial."""
    context = _current.get()
    return {} if context is None else dict(context.params)


def report(*, step: int | None = None, **metrics: Any) -> None:
    """Say how far the trial is: a point of its curves in TensorBoard, and news for the driver.

    It never waits for the driver. Outside of a trial the arguments are checked and nothing else
    happens.

    Args:
        step: The epoch or step, from 0. Left out: the number of calls without it so far.
        **metrics: Name to a number; NaN and infinities are fine here.

    Raises:
        ValueError: A metric is not a number, or a step is no integer.
        TrialStopped: The trial is to stop, by a rule of `stopping=`; let it pass.
    """
    context = _report(step, metrics)
    # Once, so that a trial can report its end, also after a fit that the Keras callback has ended.
    if context is not None and not context.stopped and (reason := context.link.stop()):
        context.stopped = reason
        raise TrialStopped(reason)


def _report(step: int | None, metrics: Mapping[str, Any]) -> TrialContext | None:
    values = {}
    for name, value in metrics.items():
        if not is_unicode(name):
            raise ValueError(f"report(): expected a name that UTF-8 can hold, got {name!a}")
        try:
            values[name] = number(value)
        except UnusableReturn as error:
            raise ValueError(f"report({name}=...): {error}") from None
    if step is not None and (isinstance(step, bool) or int(step) != step):
        raise ValueError(f"report(step=...): expected an integer, got {step!r}")
    context = _current.get()
    if context is None:
        return None
    if step is None:
        step, context.reports = context.reports, context.reports + 1
    if context.events is None:
        # Late: `import experiment` needs no tensorboard.
        from spark_jobs.trial.event_file import EventFile

        make_folder(context.folder)  # which a train function may have removed
        context.events = EventFile(context.folder, lag=context.clock_lag)
    context.events.scalars(values, int(step))
    report = Report(int(step), values)
    context.link.send(report)
    context.last = report if context.last is None else report.after(context.last)
    return context


def keras_callbacks() -> list[Any]:
    """Return callbacks for `model.fit` that report each epoch's logs (`loss`, `val_loss`, ...).

    Where a rule of `stopping=` stops the trial, `fit` ends after the epoch, as with Keras' own
    EarlyStopping, and what the train function then returns counts.

    The curves go into the trial's one run. Keras' own TensorBoard callback makes two more runs per
    trial, and above 40 runs TensorBoard's pages start empty; it may still be added beside these.
    """
    import keras

    class Reporter(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            context = _current.get()
            if context is not None:  # Keras counts from 0 in each fit, a curve goes on
                context.epoch = epoch = max(epoch, context.epoch + 1)
            _report(epoch, logs or {})
            if context is not None and (reason := context.link.stop()):
                context.stopped = reason
                self.model.stop_training = True

    return [Reporter()]
