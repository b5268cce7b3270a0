"""A `concurrent.futures.Executor` that runs calls on the slots of a Spark cluster."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from experiment.background.call_queue import Call, CallQueue
from experiment.background.handle import Handle
from experiment.driver.control import Control, own_control
from experiment.driver.interrupts import Interrupts
from experiment.results.result import Result, SearchFailed
from experiment.results.status import Overview
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.setup.function.train_function import pickle_arguments, pickle_function
from experiment.setup.keywords import ExecutorKeywords, takes_settings
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from search.errors import ExperimentError, InvalidArgument, shown
from search.trial import Failure, FailureKind
from search.values import as_unicode
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

_LONGEST_NAME = 200  # characters of a function's name, which is for people
_READERS = 4  # threads that read what calls return


class CallFailed(ExperimentError):
    """A call failed.

    Attributes:
        failure: The failure: `.kind`, as for a trial, `.message` in one line, and `.traceback`, the
            text of the traceback in the call's process.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure)

    @property
    def kind(self) -> FailureKind:
        """The failure kind, such as 'user error', 'time', 'lost executor'."""
        return self.failure.kind

    def __str__(self) -> str:
        text = f"{self.failure.message}\n\n{self.failure.traceback}".rstrip()
        return printable(text, keep="\n\t")  # what a call raised must not move the cursor


class ExecutorFailed(ExperimentError, BrokenExecutor):
    """An executor ended before its calls, and accepts no more; the message says why."""


@functools.partial(takes_settings, keywords=ExecutorKeywords)
def executor(
    spark: SparkSession,
    *,
    name: str = "executor",
    preload: Sequence[str] = (),
    verbose: Literal[0, 1, 2] = 0,
    **settings: Unpack[ExecutorKeywords],
) -> SparkExecutor:
    """Return a `concurrent.futures.Executor` whose calls run on Spark executors.

        with experiment.executor(spark) as pool:
            scores = list(pool.map(cross_validate, models))

    Each call runs like a trial: on a slot with its cores and GPUs, in a process of its own, with
    `experiment.report` and `logdir`, and limited by `timeout`. It is retried if its executor is
    lost, so it may run more than once. By default no module is preloaded and no progress is shown.

    The slots are Spark tasks that run until `shutdown` and keep their cores and GPUs even while
    idle. They, and the calls that still run, end with this process.

    Args:
        spark: A running SparkSession.
        name: The name of the run, whose folder has the output and events of each call.
        preload: Modules to import once for all calls; ("tensorflow", "keras") save each call with
            TensorFlow seconds.
        verbose: 0 shows nothing, 1 the progress, 2 also a line per call and the calls' output.
        **settings: See `experiment.Settings`.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
    """
    return SparkExecutor(spark, Settings(name=name, preload=preload, verbose=verbose, **settings))


class SparkExecutor(Executor):
    """Runs calls on Spark executors; created by `experiment.executor`. Thread-safe.

    A call's function and arguments are pickled by cloudpickle, at most 64 MiB each without the
    buffers of arrays; buffers and functions are sent once. They are kept in the run's folder until
    `shutdown`. A call must return None, a bool, a number, a string, bytes, a datetime, a numpy
    scalar or array, or lists, tuples and dicts of these, at most 256 MiB: nothing is unpickled on
    the driver.

    If a call raises one of Python's built-in exceptions, whose arguments are such values, too, its
    future raises the same one, with a `CallFailed` as its cause, which has the traceback of the
    call's process. Every other failure is a `CallFailed`. If the executor ends early, as with its
    SparkSession, the futures of the remaining calls raise `ExecutorFailed`.

    Attributes:
        parallelism: Maximum calls that run at once; it grows with the cluster while calls wait.
        logdir: The run's folder.
    """

    def __init__(self, spark: Any, settings: Settings) -> None:
        self.parallelism = 0
        self.logdir = ""
        self._calls = CallQueue(ExecutorFailed)
        self._control: Control | None = None
        self._outbox: Outbox | None = None
        self._opened = threading.Event()
        self._ended = threading.Event()
        self._readers = ThreadPoolExecutor(_READERS, "experiment-results")
        self._own_threads: set[threading.Thread] = set()  # those that run callbacks of futures
        self._search = Handle(lambda: self._run(spark, settings))
        self._wait(self._opened)
        if self._outbox is None:
            ended = self._search.result()  # raises what was wrong
            raise ExecutorFailed(ended.problem)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Schedule a call of a function on a slot, after all calls submitted before.

        Raises:
            InvalidArgument: `fn` is no function, or it or an argument cannot be pickled.
            RuntimeError: After `shutdown`; `ExecutorFailed` if the executor has failed.
        """
        if not callable(fn):
            raise InvalidArgument("fn", "a function", shown(fn))
        function = _pickled(lambda take: pickle_function(fn, "fn", take))
        arguments = _pickled(lambda take: pickle_arguments(args, kwargs, take))
        assert self._outbox is not None, "opened"
        name = str(getattr(fn, "__name__", type(fn).__name__))
        call = Call(printable(as_unicode(name[:_LONGEST_NAME])))
        self._calls.add(call)
        try:
            self._outbox.put(function, arguments, functools.partial(self._put, call))
        except BaseException:  # such as Ctrl-C: the caller has no future
            call.future.cancel()
            raise
        return call.future

    def _put(self, call: Call, sent: Sent | OSError) -> None:
        """Let a call run whose files are written. Runs in the outbox's thread."""
        self._own_threads.add(threading.current_thread())
        if isinstance(sent, OSError):
            failure = Failure(kind="machine", message=f"the call cannot be written: {sent}")
            self._calls.fail(call, CallFailed(failure))
        else:
            self._calls.let_run(call, {"batch": sent.batch, "index": sent.index})
        assert self._control is not None, "opened"
        self._control.wake()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and free the slots when all submitted calls are done.

        Args:
            wait: Whether to return only then; Ctrl-C ends the calls that still run. In a callback
                of a future it returns at once.
            cancel_futures: Whether to cancel the calls that have not started.
        """
        self._calls.close(cancel=cancel_futures)
        if self._control is not None:
            self._control.wake()
        # A callback would wait for the end of its own thread.
        if wait and threading.current_thread() not in self._own_threads:
            self._wait(self._ended)

    def joblib_backend(self) -> Any:
        """Return a joblib backend, so that `n_jobs=` of scikit-learn counts slots of this executor.

            with joblib.parallel_config(backend=pool.joblib_backend()):
                cross_val_score(model, x, y)

        The default of `n_jobs` is the number of slots. Functions that ask joblib for the number of
        jobs, such as `RFECV` of scikit-learn, take 1: pass them `n_jobs=-1`. The calls may return
        the same types as those of `submit`: scores and predictions, but no fitted models.

        Raises:
            ImportError: joblib is not installed.
        """
        try:
            # Late: few executors need it.
            from experiment.background.joblib_backend import ExecutorBackend
        except ImportError as error:
            raise ImportError("joblib_backend() needs joblib: pip install joblib") from error
        return ExecutorBackend(self, self.parallelism)

    def __exit__(self, *error: object) -> None:
        """Shut down; if the block was interrupted, end the calls that still run."""
        if error[1] is None or isinstance(error[1], Exception):
            self.shutdown()
        else:
            self.shutdown(wait=False, cancel_futures=True)
            self._cancel()

    def _wait(self, event: threading.Event) -> None:
        """Wait for an event; Ctrl-C ends the executor."""
        try:
            event.wait()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        """Cancel the running calls and wait until they have ended."""
        self._search.cancel()
        self._ended.wait()

    def _run(self, spark: Any, settings: Settings) -> Result:
        """Run the calls as the trials of a search, in the search's thread."""
        self._own_threads.add(threading.current_thread())
        problem: str | None = "the executor could not start"
        try:
            # Late: it loads grpc and tensorboard.
            from experiment.driver.run_search import run_search

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
            try:
                with Interrupts(self._control) as interrupts:
                    result = run_search(spec, interrupts)
            except SearchFailed as failed:  # raised also if every call failed
                result = failed.result
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                raise
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

    def ended(self, result: TrialResult, status: Overview) -> None:
        """Set the future of a call that has ended."""
        if result.status != "cancelled":  # then the executor ends and sets the futures' error
            self._readers.submit(self._settle, self._calls.pop(result.id), result)

    def _settle(self, future: Future[Any], result: TrialResult) -> None:
        """Set a future's result or error. Runs in a thread, since it reads files."""
        self._own_threads.add(threading.current_thread())
        try:
            value = self._value(result)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _value(self, result: TrialResult) -> Any:
        """Return a call's value, or raise its error."""
        folder, failure = Location.parse(result.logdir), result.error
        raised: Exception | None = None
        with contextlib.closing(files_at(folder, self._hadoop)) as files:
            if failure is None:
                try:
                    return read_returned(files, folder)
                except (OSError, NotPlain) as error:
                    failure = Failure(
                        kind="machine", message=f"what the call returned cannot be read: {error}"
                    )
            elif failure.kind in ("user error", "memory", "gpu memory"):
                raised = read_raised(files, folder)
        failed = CallFailed(failure)
        if raised is None:
            raise failed
        raise raised from failed


def _pickled(pickle: Callable[[Callable[[Any], bool]], bytes]) -> Pickled:
    """Return a pickle, and its large buffers separately."""
    buffers: list[memoryview] = []

    def keep(buffer: Any) -> bool:
        """Return whether a buffer stays in the pickle."""
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            buffers.append(raw)
        return bool(raw.nbytes < LARGE)

    return Pickled(pickle(keep), buffers)
