"""The functions that a train function may call. Outside a trial they work, too, without effect.

A context variable holds the trial. Before Python 3.14, threads of the train function do not inherit
it: they run outside the trial, unless they run in a copy of the context
(`contextvars.copy_context().run`).
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from search.errors import ExperimentError
from search.values import is_unicode
from spark_jobs.messages import Report
from spark_jobs.run_folder.paths import CHECKPOINT
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.storage.local_files import make_folder
from spark_jobs.strategies.sharding import part_of
from spark_jobs.trial.memory.gpu_share import GpuShare
from spark_jobs.trial.objective import UnusableReturn, number
from spark_jobs.trial.pipe.link import Link, NoLink, parts_of
from spark_jobs.trial.trained_epochs import TrainedEpochs

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator
    from spark_jobs.trial.events.event_file import EventFile


class DataSettings(msgspec.Struct, frozen=True):
    """The settings for the data of trials.

    Attributes:
        hadoop: The Hadoop settings: addresses, user, tokens.
        cache: The cache of copies on a host.
    """

    hadoop: HadoopSettings = HadoopSettings()
    cache: CacheSettings = CacheSettings()


_NO_SETTINGS = DataSettings()
_LARGEST_STEP = 2**53  # which TensorBoard's page still tells apart


class MachineError(ExperimentError):
    """An error of the host or of the run's store while a trial runs: its kind is 'machine'."""


class TrialStopped(BaseException):
    """Raised by `report` in a trial that is to stop.

    Not an Exception, so that a train function's `except Exception` does not catch it.
    """


class StepsDone(TrialStopped):
    """Raised by `report` at the last step of a trial that does not ask for `max_steps`."""


@dataclasses.dataclass(slots=True, kw_only=True)
class TrialContext:
    """The trial that runs in this context.

    Attributes:
        params: Its hyperparameters.
        folder: Its folder, a TensorBoard run.
        trial: Its id.
        data: The settings for its data.
        link: The link to its supervisor.
        reports: The number of reports without a step so far.
        epoch: The last epoch that Keras' callback reported.
        trained: The epochs that Keras has trained, after the first `fit` that reports.
        last: The last step that was sent, with the last reported value of each metric.
        reported: The last step of this call and its metrics, in the form of `last`, whether they
            were sent or not: workers of a rank above 0 send none.
        stopped: Why it is to stop, once it has received the request; else ''.
        events: Its event file, after the first report.
        held: Descriptors of the copies that it reads, one for each, by device and inode of their
            locks; closed at its end.
        clock_lag: Seconds by which this host's clock lags the driver's.
        rank: The rank of this worker, from 0; only rank 0 reports.
        workers: The number of workers that run the trial.
        communicator: The connections to the other workers; None with one worker.
        divides_data: Whether their strategy divides the data.
        cores: The number of cores of its slot.
        gpu_share: The share of its GPU's memory that it may take; None for all of it.
        max_steps: The number of steps after which it ends; None for any number.
        ends_itself: Whether the train function has asked for that number.
        objective: The name of the value by which it is judged; None for the only one.
        resumes: Whether it began with a checkpoint, of an attempt before or of its parent.
        repeats: The number of calls of the train function.
        repeat: The number of this call, from 0.
        seed: The search's seed; None leaves the random numbers to chance.
        first_step: The step at which the curves of this call begin.
        next_step: The step after the last one of its curves.
        reporting: Held while a report is taken: threads and signal handlers may report, too.
    """

    params: Mapping[str, Any]
    folder: Path
    trial: int = 0
    data: DataSettings = _NO_SETTINGS
    link: Link = dataclasses.field(default_factory=NoLink)
    reports: int = 0
    epoch: int = -1
    trained: TrainedEpochs | None = None
    last: Report | None = None
    reported: Report | None = None
    stopped: str = ""
    events: EventFile | None = None
    held: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    clock_lag: float = 0.0
    rank: int = 0
    workers: int = 1
    communicator: Communicator | None = None
    divides_data: bool = False
    cores: int = 1
    gpu_share: GpuShare | None = None
    max_steps: int | None = None
    ends_itself: bool = False
    objective: str | None = None
    resumes: bool = False
    repeats: int = 1
    repeat: int = 0
    seed: int | None = None
    first_step: int = 0
    next_step: int = 0
    reporting: threading.RLock = dataclasses.field(default_factory=threading.RLock)

    def has_done(self, step: int | None) -> bool:
        """Return whether a step, from 0, is the last one of the trial."""
        return self.max_steps is not None and step is not None and step + 1 >= self.max_steps

    @property
    def step(self) -> int | None:
        """The last step, from 0; None if it is unknown."""
        if self.last is not None:
            return self.last.step
        return None if self.max_steps is None or not self.ends_itself else self.max_steps - 1


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
            with contextlib.suppress(OSError):  # as of NFS on a full disk
                context.events.close()
        while context.held:
            os.close(context.held.popitem()[1])


def current() -> TrialContext | None:
    """Return the trial that runs in this context; None outside a trial."""
    return _current.get()


def logdir() -> str:
    """Return the trial's folder, for TensorBoard logs, images, models.

    In workers of a rank above 0 it is a folder of their host that is removed with the attempt.
    Outside a trial it is a temporary folder, the same for all calls in a context.
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
    """Return the trial's checkpoint folder, which is stored with the trial.

    In `population_based_training` and `hyperband_search` the folder has the checkpoints of the
    trial that it resumes from. When a trial is retried, since its executor was lost, it has those
    of the attempt before; not so in `population_based_training`, where each attempt trains the
    whole generation. It is empty if the trial starts from scratch, and outside a trial. With
    `repeats=` each repeat has its own. All workers of a trial get the same checkpoints; those that
    rank 0 saves are stored.
    """
    context = _current.get()
    folder = os.path.join(logdir(), CHECKPOINT)
    if context is not None and context.repeats > 1:
        folder = os.path.join(folder, f"repeat-{context.repeat}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def params() -> dict[str, Any]:
    """Return the trial's hyperparameters; an empty dict outside a trial."""
    context = _current.get()
    return {} if context is None else copy.deepcopy(dict(context.params))


def max_steps() -> int | None:
    """Return the number of epochs, or other steps, after which the trial is to end.

    Counted from the start of the training: if the trial resumes from a checkpoint after 3 epochs
    and this is 9, it trains for 6 more. None if the trial may train as long as it likes, as outside
    of `hyperband_search`, and outside a trial: `epochs = experiment.max_steps() or 81`.

    A train function need not call it: without it `model.fit` with `keras_callbacks()` ends after
    the last of these epochs, and `report` of the last of these steps ends the trial, whose value is
    the one that it reported.
    """
    context = _current.get()
    if context is None:
        return None
    context.ends_itself = True
    return context.max_steps


def repeat() -> int:
    """Return the number of this call of the train function in its trial, from 0; see `repeats`.

    The same number means the same seed, fold or part of the data in every trial. 0 without
    `repeats=`, and outside a trial.
    """
    context = _current.get()
    return 0 if context is None else context.repeat


def begin_repeat(context: TrialContext, number: int) -> None:
    """Prepare a trial for its next call of the train function, whose curves continue the last."""
    if number:
        context.first_step = context.next_step
    context.repeat = number
    context.reports = 0
    context.epoch = -1
    context.reported = None


def rank() -> int:
    """Return the rank of this worker among those of the trial, from 0; 0 outside a trial.

    See `workers_per_trial`. The value that rank 0 returns is the trial's, and only rank 0 reports.
    """
    context = _current.get()
    return 0 if context is None else context.rank


def world_size() -> int:
    """Return the number of workers that run the trial, see `workers_per_trial`; 1 outside one."""
    context = _current.get()
    return 1 if context is None else context.workers


def shard(data: Any) -> Any:
    """Return this worker's part of data; all of it on one worker, and outside a trial.

    Under `Mirrored` and `Jax`, which divide each batch by themselves, it returns all of the data,
    too; under other strategies and without one, a part: so the same line is right under every
    strategy.

    Args:
        data: An array, tensor, table or list; a `tf.data.Dataset`, whose elements are divided; a
            dict or a tuple of these, or a list of arrays, each of which is divided: of a list of
            samples that are arrays pass `numpy.stack(samples)`. The parts of all workers have each
            item once, and their lengths differ by at most one.

    Raises:
        InvalidArgument: The data cannot be divided, or its arrays differ in length.
    """
    context = _current.get()
    if context is None or context.divides_data or context.workers == 1:
        return data
    return part_of(data, context.rank, context.workers)


def report(*, step: int | None = None, **metrics: Any) -> None:
    """Report metrics of a step: to the trial's curves in TensorBoard, and to the driver.

    Never waits for the driver. Workers of a rank above 0 send nothing, but end at the same step;
    outside a trial only the arguments are checked.

    Args:
        step: The epoch or step, from 0. Default: the number of calls without it so far; not in a
            trial of a number of steps that began with a checkpoint.
        **metrics: Name to a number; NaN and infinities are allowed.

    Raises:
        ValueError: A metric is not a number, the step is not an integer, or it is missing.
        TrialStopped: A rule of `stopping=` stops the trial, or it was the last of `max_steps()`
            steps and the train function has not called that; do not catch it.
    """
    context = take_report(step, metrics)
    if context is None or context.reported is None:
        return
    judged = context.rank == 0 and context.repeats == 1  # a repeat is judged after its end
    # Once, so that a trial can report its end, also after a fit that the Keras callback has ended.
    if judged and not context.stopped and (reason := context.link.stop()):
        context.stopped = reason
        raise TrialStopped(reason)
    step = context.reported.step
    # The objective may come by a second report of the same step.
    named = context.objective is None or context.objective in metrics
    if not context.ends_itself and context.has_done(step if named else step - 1):
        raise StepsDone(f"step {step} was the last one")


def take_report(step: int | None, metrics: Mapping[str, Any]) -> TrialContext | None:
    """Write a report to the trial's curves, and send it; raise no `TrialStopped`, unlike `report`.

    Args:
        step: Its step; None for the number of such reports before it.
        metrics: Names to numbers.

    Returns:
        The trial's context; None outside a trial.

    Raises:
        ValueError: As for `report`.
    """
    values = {}
    for name, value in metrics.items():
        if not is_unicode(name):
            raise ValueError(f"report(): expected a name that UTF-8 can hold, got {name!a}")
        try:
            values[name] = number(value)
        except UnusableReturn as error:
            raise ValueError(f"report({name}=...): {error}") from None
    if step is not None and not _is_integer(step):
        raise ValueError(f"report(step=...): expected an integer, got {step!r}")
    if step is not None and not 0 <= step <= _LARGEST_STEP:
        raise ValueError(f"report(step=...): expected a step from 0 to 2**53, got {step!r}")
    context = _current.get()
    if context is not None:
        if step is None and context.resumes and context.max_steps is not None:
            raise ValueError(
                "report(): expected step=, the epoch from 0, since this trial goes on from a "
                "checkpoint and is to end after epoch max_steps() - 1"
            )
        with context.reporting:
            _take(context, step, values)
    return context


def _is_integer(step: Any) -> bool:
    try:
        return not isinstance(step, bool) and bool(int(step) == step)
    except (OverflowError, TypeError, ValueError):  # as of an infinity, a list, NaN
        return False


def _take(context: TrialContext, step: int | None, values: dict[str, float]) -> None:
    """Write a valid report to the curves, and send it, in one thread at a time."""
    if step is None:
        step, context.reports = context.reports, context.reports + 1
    report, before = Report(int(step), values), context.reported
    context.reported = report if before is None else report.after(before)
    if context.rank:
        return
    point = context.first_step + int(step)
    try:
        _add_point(context, values, point)
    except OSError as error:  # such as a full disk: a point is lost, not the trial
        warnings.warn(f"report(): a point is missing in the curves: {error}", stacklevel=4)
    if context.repeats > 1:  # the steps that the driver gets are the repeats
        context.next_step = max(context.next_step, point + 1)
        return
    for part in parts_of(report):
        context.link.send(part)
    context.last = context.reported


def _add_point(context: TrialContext, values: Mapping[str, float], step: int) -> None:
    if context.events is None:
        # Late: `import experiment` needs no tensorboard.
        from spark_jobs.trial.events.event_file import EventFile

        make_folder(context.folder)  # a train function may have removed it
        context.events = EventFile(context.folder, lag=context.clock_lag)
    context.events.scalars(values, step)
