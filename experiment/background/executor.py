"""An executor as Python's standard library defines it, on the slots that searches run on."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from experiment.background.call_queue import Call, CallQueue
from experiment.background.handle import Handle
from experiment.driver.control import Control, own_control
from experiment.results.result import Result, SearchFailed
from experiment.results.status import Status
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.setup.settings import Settings, takes_settings
from experiment.setup.specification import SearchSpec
from experiment.setup.train_function import pickle_arguments, pickle_function
from search.errors import ExperimentError, InvalidArgument, shown
from search.trial import Failure, FailureKind
from spark_jobs.calls.calls import LARGE, Pickled, read_raised, read_returned, run_call
from spark_jobs.calls.outbox import Outbox, Sent
from spark_jobs.calls.plain_values import NotPlain
from spark_jobs.run_folder.paths import CALLS
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at, writable_files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_READERS = 4  # threads that read what calls return
_OF_SEARCHES = (
    "direction",
    "optimization_key",
    "resume",
    "stopping",
    "max_failures",
    "target",
)


class CallFailed(ExperimentError):
    """A call failed.

    Attributes:
        failure: Why: with `.kind` as of a trial, `.message` in one line, and `.traceback`, the text
            of the one in the call's process.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure)

    @property
    def kind(self) -> FailureKind:
        """See `experiment.Failure`: 'user error', 'time', 'lost executor', ..."""
        return self.failure.kind

    def __str__(self) -> str:
        text = f"{self.failure.message}\n\n{self.failure.traceback}".rstrip()
        return printable(text, keep="\n\t")  # what a call raised must not move the cursor


class ExecutorFailed(ExperimentError, BrokenExecutor):
    """An executor ended before its calls did, and takes no more; the message says why."""


@functools.partial(takes_settings, without=_OF_SEARCHES)
def executor(
    spark: SparkSession,
    *,
    name: str = "executor",
    preload: Sequence[str] = (),
    verbose: Literal[0, 1, 2] = 0,
    **settings: Any,
) -> SparkExecutor:
    """Return a `concurrent.futures.Executor` whose calls run on Spark executors.

        with experiment.executor(spark) as pool:
            scores = list(pool.map(cross_validate, models))

    Each call runs as a trial of a search does: on a slot with its cores and GPUs, in a process of
    its own, with `experiment.report` and `logdir`, limited by `timeout`, and again where its
    executor was lost, so that it may run more than once. Arguments are those of a search; nothing
    is imported beforehand unless `preload` says so, and nothing is shown.

    The slots are tasks of Spark that run until `shutdown`, idle or not: nobody else gets their
    cores and GPUs meanwhile. They end with this process, calls that still run, too.

    Args:
        spark: A running SparkSession.
        name: A label of the run, whose folder has output and events of each call.
        preload: Modules that are imported once for all calls; ("tensorflow", "keras") save calls
            with TensorFlow seconds each.
        verbose: As for searches.
        **settings: See `experiment.Settings`.

    Raises:
        InvalidArgument: Bad input, found before any Spark job.
    """
    return SparkExecutor(spark, Settings(name=name, preload=preload, verbose=verbose, **settings))


class SparkExecutor(Executor):
    """Runs calls on Spark executors; `experiment.executor` makes one. For any number of threads.

    A call's function and arguments travel by cloudpickle, at most 64 MiB of each without the
    buffers of arrays; those, and functions, are sent once. They lie in the run's folder until
    `shutdown`. What a call returns has to be None, a bool, a number, a string, bytes, a datetime, a
    numpy scalar or array, or lists, tuples and dicts of those, 256 MiB at the most: nothing is
    unpickled here.

    A future whose call raised one of Python's own exceptions has the same one, with a `CallFailed`
    as its cause, which has the traceback of the call's process; whatever else went wrong is a
    `CallFailed`. Futures whose calls were still to do when the executor ended, as with its
    SparkSession, have `ExecutorFailed`.

    Attributes:
        parallelism: How many calls run at once; more, where calls wait and the cluster has grown.
        logdir: The folder of the run.
    """

    def __init__(self, spark: Any, settings: Settings) -> None:
        self.parallelism = 0
        self.logdir = ""
        self._calls = CallQueue(ExecutorFailed)
        self._control: Control | None = None
        self._outbox: Outbox | None = None
        self._opened, self._ended = threading.Event(), threading.Event()
        self._readers = ThreadPoolExecutor(_READERS, "experiment-results")
        self._search = Handle(lambda: self._run(spark, settings))
        self._wait(self._opened)
        if self._outbox is None:
            self._search.result()  # raises what was wrong

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Let a function be called on one of the slots, after all that was submitted before.

        Raises:
            InvalidArgument: It is no function, or it or an argument cannot be pickled.
            RuntimeError: After `shutdown`; an `ExecutorFailed` where the executor has failed.
        """
        if not callable(fn):
            raise InvalidArgument("fn", "a function", shown(fn))
        function = _pickled(lambda take: pickle_function(fn, "fn", take))
        arguments = _pickled(lambda take: pickle_arguments(args, kwargs, take))
        assert self._outbox is not None, "opened"
        call = Call(str(getattr(fn, "__name__", type(fn).__name__)))
        self._calls.add(call)
        try:
            self._outbox.put(function, arguments, functools.partial(self._put, call))
        except BaseException:  # as by a Ctrl-C: nobody has the future
            call.future.cancel()
            raise
        return call.future

    def _put(self, call: Call, sent: Sent | OSError) -> None:
        """Let a call be run whose files are there. In the outbox's thread."""
        if isinstance(sent, OSError):
            failure = Failure("machine", f"the call cannot be written: {sent}")
            self._calls.fail(call, CallFailed(failure))
        else:
            self._calls.let_run(call, {"batch": sent.batch, "index": sent.index})
        assert self._control is not None, "opened"
        self._control.wake()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and give the slots back when those that were submitted are done.

        Args:
            wait: Return when that is so; a Ctrl-C then ends the calls that still run.
            cancel_futures: Cancel the calls that have not begun.
        """
        self._calls.close(cancel=cancel_futures)
        if self._control is not None:
            self._control.wake()
        if wait:
            self._wait(self._ended)

    def joblib_backend(self) -> Any:
        """Return a backend for joblib, by which `n_jobs=` of scikit-learn means slots of this.

            with joblib.parallel_config(backend=pool.joblib_backend()):
                cross_val_score(model, x, y)

        Left out, `n_jobs` is the number of slots. What the parallel calls return is limited as for
        `submit`: scores and predictions are fine, fitted models are not.

        Raises:
            ImportError: joblib is not installed.
        """
        try:
            # Late: joblib is optional.
            from experiment.background.joblib_backend import ExecutorBackend
        except ImportError as error:
            raise ImportError("joblib_backend() needs joblib: pip install joblib") from error
        return ExecutorBackend(self, self.parallelism)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down; where the block was interrupted, end the calls that still run."""
        if error is None or isinstance(error, Exception):
            self.shutdown()
        else:
            self.shutdown(wait=False, cancel_futures=True)
            self._cancel()

    def _wait(self, event: threading.Event) -> None:
        """Wait for an event; a Ctrl-C ends the executor."""
        try:
            event.wait()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        """End the calls that run, and wait for their end."""
        self._search.cancel()
        self._ended.wait()

    def _run(self, spark: Any, settings: Settings) -> Result:
        """Run the calls as the trials of a search, in its thread."""
        from experiment.driver.run_search import run_search  # late: it loads grpc and tensorboard

        self._control = own_control()
        spec = SearchSpec(
            call="executor",
            spark=spark,
            train=run_call,
            settings=settings,
            seed=settings.seed or 0,
            searcher=self._calls,
            space=None,
            algorithm={"type": "calls"},
            grows=True,
            observers=[self],
            opened=self._open,
            grown=self._grow,
        )
        problem: str | None = "the executor could not start"
        try:
            try:
                result = run_search(spec)
            except SearchFailed as failed:  # also where all calls have
                result = failed.result
            problem = result.problem
            return result
        finally:
            self._calls.close(problem or "")
            self._readers.shutdown()
            self._calls.fail_rest()
            if self._outbox is not None:
                with contextlib.suppress(OSError):
                    self._outbox.close()
            self._ended.set()
            self._opened.set()

    def _open(self, root: Location, hadoop: HadoopSettings, slots: int) -> None:
        self.parallelism = slots
        self.logdir = str(root)
        self._hadoop = hadoop
        self._outbox = Outbox(writable_files_at(root, hadoop), root.below(CALLS))
        self._opened.set()

    def _grow(self, slots: int) -> None:
        self.parallelism = slots

    def ended(self, result: TrialResult, status: Status) -> None:
        """See `experiment.results.status.Observer`."""
        if result.status != "cancelled":  # else the executor ends, and says why
            self._readers.submit(self._settle, self._calls.pop(result.id), result)

    def _settle(self, future: Future[Any], result: TrialResult) -> None:
        """Give a future what its call came to. In a thread that may wait for files."""
        try:
            value = self._value(result)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _value(self, result: TrialResult) -> Any:
        """Return what a call returned, or raise what it raised."""
        folder, failure = Location.parse(result.logdir), result.error
        raised: Exception | None = None
        with contextlib.closing(files_at(folder, self._hadoop)) as files:
            if failure is None:
                try:
                    return read_returned(files, folder)
                except (OSError, NotPlain) as error:
                    failure = Failure("machine", f"what the call returned cannot be read: {error}")
            elif failure.kind == "user error":
                raised = read_raised(files, folder)
        failed = CallFailed(failure)
        if raised is None:
            raise failed
        raise raised from failed


def _pickled(pickle: Callable[[Callable[[Any], bool]], bytes]) -> Pickled:
    """Return a pickle and its large buffers, apart."""
    buffers: list[memoryview] = []

    def keep(buffer: Any) -> bool:
        """Say whether a buffer is to be part of the pickle."""
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            buffers.append(raw)
        return bool(raw.nbytes < LARGE)

    return Pickled(pickle(keep), buffers)
