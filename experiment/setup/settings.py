"""The keyword arguments that all searches share, and their checks."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from experiment.results.result import Result, Results
from experiment.run_files.loading import find_run
from experiment.setup.workers import Workers
from search.checks import check_integer, make_plain
from search.direction import Direction, Directions, Goal, read_direction
from search.errors import InvalidArgument, shown
from search.stopping.racing import Racing, StudentRacing
from search.stopping.rules import StoppingRule, read_rules
from search.trial import RETRIED, FailureKind
from search.values import is_finite, is_unicode, plain_value
from spark_jobs.storage.files import check_writable
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import HADOOP, Location
from spark_jobs.storage.refusals import refused
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.strategies.settings import Strategy, StrategyName, read_strategy
from spark_jobs.trial.precision import NEEDS_GPU, Precision, read_precision

Isolation = Literal["process", "spawn", "none"]

MOST_SLOTS = 100_000
"""The most slots that a search may ask Spark for, as many as a stage has tasks that Spark keeps."""

NO_SHARED_GPU = "NCCL, over which workers share gradients, refuses two of them on one GPU"

_MOST_PER_GPU = 64


class _Begun:
    """The time of the call, by `time.monotonic`, from which a deadline counts."""

    __slots__ = ("begun",)
    begun: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(_Begun):
    """The keyword arguments that all searches accept beside their own.

    Args:
        name: A label of the run; by default the name of the train function.
        description: A longer text, kept with the run.
        direction: 'max' or 'min', the direction of the objective. For several objectives, of which
            the Pareto front is searched, a dict: `{'accuracy': 'max', 'latency': 'min'}`; the train
            function then returns a dict with a number for each, and `stopping` is not available.
        optimization_key: The key of the objective in a returned dict. Not needed for a single
            number (then called 'metric') or a dict with one key.
        resume: The folder or the `Result` of a run to resume, in the same call with the same space,
            metric and direction; trials that have ended are not run again. `logdir` is then
            ignored.
        logdir: The folder for run folders: one that all executors see, or hdfs://... By default the
            Spark setting `spark.experiment.logdir`, else `experiments` in the user's home on HDFS
            if that is Spark's default, else `./experiments`.
        parallelism: Maximum number of parallel trials, at most 100,000; by default as many as the
            cluster can run at once.
        workers_per_trial: Number of slots that run each trial together, each in a process that
            calls the train function; `experiment.rank()` tells them apart. They start at once, and
            the value that rank 0 returns is the trial's. If one fails, all are ended. With a tuple
            such as (2, 4), a trial gets as many of 2 to 4 slots as are free.
        strategy: How the workers of a trial train together: in step by `experiment.Mirrored()`, or
            'mirrored' for its defaults; in step with Keras on JAX by `experiment.Jax()`, or 'jax';
            out of step by `experiment.Downpour()`, or 'downpour';
            models of their own that learn from each other by `experiment.Codistillation()`, or
            'codistillation'; None leaves all to the train function. 'auto' is 'mirrored' if the
            train function imports TensorFlow or Keras, as for `preload`, and the driver has
            TensorFlow; otherwise None. Without effect on trials of one worker.
        precision: The precision in which Keras computes: 'mixed_bfloat16' or 'mixed_float16' keeps
            weights in float32 and computes the rest in 16 bits, which is faster on GPUs and
            processors that can; layers take it when they are made. 'mixed_float16' needs a GPU.
            None leaves Keras as it is.
        gpus_per_trial: Number of GPUs of each trial, or of each of its workers if there are
            several; 0 hides all of them. By default the Spark setting
            `spark.task.resource.gpu.amount`.
        trials_per_gpu: Number of parallel trials on one GPU, up to 64; beyond 1 they share its
            memory and its time.
        stopping: A stopping rule, or a list of them, that end unpromising trials early:
            `experiment.SuccessiveHalving()`, `MedianStopping`, ... They use the metric named by
            `optimization_key`, or the only one that is reported.
        repeats: Number of times that each trial calls the train function, one after the other, for
            a noisy objective; its value is their mean. `experiment.repeat()` returns the number of
            the call, such as for a seed or a fold. With one objective trials race: one that is
            significantly worse in its repeats so far than the best trial is stopped, see
            `experiment.StudentRacing`. With several objectives each trial makes all repeats.
        timeout: Seconds after which a trial is ended, with all processes that it started.
        grace: Seconds between SIGTERM and SIGKILL when a trial is ended.
        deadline: Seconds from the call after which the search is ended; it returns the trials so
            far.
        target: A value of the objective that is good enough: the search ends when its best trial
            reaches it, and running trials are cancelled.
        startup_timeout: Seconds for Spark to start the first slot, and for enough slots for a trial
            if none runs; None waits without limit.
        max_failures: Number of failed trials that are allowed; one more ends the search.
        retries: Maximum number of retries of a trial after failures of `retry_on`.
        retry_on: Kinds of failures that are retried, see `experiment.Failure`: by default a lost
            executor and the machine's faults; you may add 'user error', 'exit', 'time', 'memory',
            'gpu memory' and 'invalid value'.
        seed: The seed that makes a search repeatable; also seeds `random`, numpy and, if it is
            preloaded, PyTorch in each trial, and anew in each of its repeats.
        isolation: 'process' forks a process per trial, 'spawn' starts a fresh interpreter per
            trial, whose imports count towards its time, 'none' runs trials in the slot's own
            process, where nothing can end them.
        preload: Modules that each executor imports once, for this search and the next ones; those
            that the driver lacks are skipped. By default the modules of large packages, such as
            TensorFlow, that the train function imports; `()` for none. With `isolation='spawn'`
            each trial imports them; with 'none' nothing is preloaded, and this has no effect.
        verbose: 0 shows nothing, 1 the progress, 2 also a line per trial and the output of trials,
            each line with the trial's number.

    Raises:
        InvalidArgument: An argument is invalid; the message names it, what was expected and what
            was given.
    """

    name: str | None = None
    description: str = ""
    direction: str | Mapping[str, str] = "max"
    optimization_key: str | None = None
    resume: str | os.PathLike[str] | Result | Results | None = None
    logdir: str | os.PathLike[str] | None = None
    parallelism: int | None = None
    workers_per_trial: int | tuple[int, int] = 1
    strategy: Strategy | StrategyName | None = "auto"
    precision: Precision | None = None
    gpus_per_trial: int | None = None
    trials_per_gpu: int = 1
    stopping: StoppingRule | Sequence[StoppingRule] | None = None
    repeats: int = 1
    timeout: float | None = None
    grace: float = 3.0
    deadline: float | None = None
    target: float | None = None
    startup_timeout: float | None = 600.0
    max_failures: int | None = None
    retries: int = 3
    retry_on: Sequence[FailureKind] = RETRIED
    seed: int | None = None
    isolation: Isolation = "process"
    preload: Sequence[str] | None = None
    verbose: Literal[0, 1, 2] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "begun", time.monotonic())
        make_plain(self)
        object.__setattr__(self, "direction", self.goal.to_json())
        for name in ("name", "optimization_key"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _text(name, getattr(self, name), "or None"))
                if not getattr(self, name):
                    raise InvalidArgument(name, "a non-empty string, or None", "''")
        object.__setattr__(self, "description", _text("description", self.description))
        if self.logdir is not None:
            check_logdir(self.logdir)
        if self.resume is not None:
            _check_place("resume", find_run(self.resume, "resume"))
        _check_parallelism(self.parallelism)
        workers = Workers.read("workers_per_trial", self.workers_per_trial)
        object.__setattr__(self, "workers_per_trial", workers.to_json())
        object.__setattr__(self, "strategy", read_strategy("strategy", self.strategy))
        object.__setattr__(self, "precision", read_precision("precision", self.precision))
        check_integer("repeats", self.repeats, 1)
        check_gpus(self.gpus_per_trial, self.trials_per_gpu)
        if self.precision == "mixed_float16" and self.gpus_per_trial == 0:
            expected = "'mixed_bfloat16' or None with gpus_per_trial=0"
            raise InvalidArgument("precision", expected, shown(self.precision), NEEDS_GPU)
        _check_integer("max_failures", self.max_failures, 0)
        _check_integer("seed", self.seed, 0)
        check_integer("retries", self.retries, 0)
        object.__setattr__(self, "retry_on", _failure_kinds(self.retry_on))
        if self.isolation not in ("process", "spawn", "none"):
            expected = "'process', 'spawn' or 'none'"
            raise InvalidArgument("isolation", expected, shown(self.isolation))
        _check_verbose(self.verbose)
        if self.timeout is not None and self.isolation == "none":
            hint = "a trial in the slot's own process cannot be ended"
            raise InvalidArgument(
                "timeout", "None with isolation='none'", shown(self.timeout), hint
            )
        if workers.most > 1:
            self._check_for_several_workers()
        for name in ("timeout", "deadline", "startup_timeout"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _positive(name, getattr(self, name), ", or None"))
        object.__setattr__(self, "target", _target(self.target))
        object.__setattr__(self, "grace", _positive("grace", self.grace))
        read_rules(self.stopping)
        if isinstance(self.goal, Directions):
            self._check_for_several()
        object.__setattr__(self, "preload", _module_names(self.preload))

    def _check_for_several(self) -> None:
        """Refuse settings that need a single objective."""
        for name in ("optimization_key", "stopping", "target"):
            value = getattr(self, name)
            if value is not None and value != []:
                raise InvalidArgument(name, "None with several objectives", shown(value))

    def _check_for_several_workers(self) -> None:
        """Refuse settings with which trials on several slots cannot run."""
        if self.isolation == "none":
            expected = f"'process' or 'spawn' with {self.workers} workers"
            hint = "a worker whose trial has failed must be ended, which needs a process of its own"
            raise InvalidArgument("isolation", expected, "'none'", hint)
        if self.trials_per_gpu > 1:
            expected = f"1 with {self.workers} workers"
            got = shown(self.trials_per_gpu)
            raise InvalidArgument("trials_per_gpu", expected, got, NO_SHARED_GPU)

    @property
    def workers(self) -> Workers:
        """The number of slots of each trial, by `workers_per_trial`."""
        return Workers.read("workers_per_trial", self.workers_per_trial)

    @property
    def rules(self) -> tuple[StoppingRule, ...]:
        """The stopping rules: those of `stopping`, and racing if there are repeats of one value."""
        rules = read_rules(self.stopping)
        races = self.repeats > 1 and isinstance(self.goal, Direction)
        if races and not any(isinstance(rule, Racing) for rule in rules):
            return (*rules, StudentRacing())
        return rules

    @property
    def goal(self) -> Goal:
        """The goal of the search, by `direction`."""
        return read_direction(self.direction)


def choose_logdir(
    given: str | os.PathLike[str] | None,
    default: str,
    hadoop: HadoopSettings,
    *,
    in_container: bool = False,
) -> Location:
    """Return the location of the folder for runs, and check that it can be written to.

    Args:
        given: The user's argument, or None.
        default: The folder if that is None.
        hadoop: The settings of HDFS.
        in_container: Whether YARN removes the directory in which the driver started, when it ends.

    Raises:
        InvalidArgument: Not a folder, or it cannot be created or written to, or YARN removes it.
    """
    text = default if given is None else given
    check_logdir(text)
    location = Location.parse(text, "logdir")
    if not is_unicode(str(location)):  # the working directory may have such a name
        raise InvalidArgument("logdir", "a folder whose name UTF-8 can hold", repr(str(location)))
    is_local = location.scheme == "file"
    started_in = Path(os.environ.get("PWD", "")).resolve()  # a program may have gone elsewhere
    if in_container and is_local and Path(location.path).resolve().is_relative_to(started_in):
        hint = "YARN removes it when the job ends; give logdir a shared folder or hdfs://..."
        raise InvalidArgument(
            "logdir", "a folder that remains after the job", repr(str(location)), hint
        )
    check_folder("logdir", location, hadoop)
    return location


def check_folder(name: str, location: Location, hadoop: HadoopSettings) -> None:
    """Check that a folder can be written to.

    Args:
        name: The argument's name.
        location: The folder, created if missing.
        hadoop: The settings of HDFS.

    Raises:
        InvalidArgument: The folder cannot be written to; `StorageFailed` if that may pass.
    """
    try:
        with contextlib.closing(writable_files_at(location, hadoop)) as files:
            check_writable(files, location)
    except OSError as error:
        local = location.scheme == "file"  # other errors have the place in their message
        got = f"{str(location)!r}: {error.strerror}, as user {_user()}" if local else str(error)
        raise refused(error, name, "a folder that can be written to", got) from None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in containers that run as a number
        return str(os.geteuid())


def check_logdir(logdir: object) -> None:
    """Check that this is a valid path for the folder of runs, without access to it.

    Raises:
        InvalidArgument: It is not.
    """
    if not isinstance(logdir, str | os.PathLike) or not os.fspath(logdir):
        raise InvalidArgument("logdir", "the path of a folder, or None", shown(logdir))
    text = os.fsdecode(logdir)
    if "\0" in text or not is_unicode(text):
        raise InvalidArgument("logdir", "a path in UTF-8 without zero bytes", shown(text))
    _check_place("logdir", Location.parse(text, "logdir"))


def _check_place(name: str, location: Location) -> None:
    """Refuse locations that runs cannot be written to, without access to them."""
    if location.scheme not in ("file", *HADOOP):
        raise InvalidArgument(
            name,
            "the path of a folder, or hdfs://...",
            shown(str(location)),
            f"runs cannot be written to {location.scheme}://; mount it, and give the folder",
        )


def _text(name: str, value: object, alternative: str = "") -> str:
    expected = f"a string, {alternative}" if alternative else "a string"
    if not isinstance(value, str):
        raise InvalidArgument(name, expected, shown(value))
    if not is_unicode(value):
        raise InvalidArgument(name, "a string that UTF-8 can hold", shown(value))
    return str.__str__(value)  # a plain string, also if it is numpy's


def _module_names(preload: Any) -> tuple[str, ...] | None:
    if preload is None:
        return None
    if isinstance(preload, Iterable) and not isinstance(preload, str):
        names = tuple(preload)
        if all(type(name) is str and all(map(str.isidentifier, name.split("."))) for name in names):
            return names
    raise InvalidArgument("preload", "a list of module names, or None", shown(preload))


def _failure_kinds(retry_on: Any) -> tuple[FailureKind, ...]:
    known = [kind for kind in get_args(FailureKind) if kind != "ambiguous objective"]
    if isinstance(retry_on, Iterable) and not isinstance(retry_on, str):
        kinds = tuple(retry_on)
        if all(kind in known for kind in kinds):
            return kinds
    expected = "a list of failures: " + ", ".join(map(repr, known))
    raise InvalidArgument("retry_on", expected, shown(retry_on))


def _check_parallelism(value: int | None) -> None:
    _check_integer("parallelism", value, 1)
    if value is not None and value > MOST_SLOTS:
        expected = f"an integer from 1 to {MOST_SLOTS:,}, or None"
        raise InvalidArgument("parallelism", expected, shown(value))


def _check_integer(name: str, value: object, least: int) -> None:
    if value is None:
        return
    try:
        check_integer(name, value, least)
    except InvalidArgument as error:
        raise InvalidArgument(name, f"{error.expected}, or None", error.got) from None


def check_gpus(gpus_per_trial: int | None, trials_per_gpu: int) -> None:
    """Check the settings of GPUs; see `Settings`.

    Raises:
        InvalidArgument: One of them is invalid, or they contradict each other.
    """
    _check_integer("gpus_per_trial", gpus_per_trial, 0)
    check_integer("trials_per_gpu", trials_per_gpu, 1)
    if trials_per_gpu > _MOST_PER_GPU:
        raise InvalidArgument("trials_per_gpu", f"at most {_MOST_PER_GPU}", shown(trials_per_gpu))
    if trials_per_gpu > 1 and gpus_per_trial not in (None, 1):
        expected = f"1 with gpus_per_trial={gpus_per_trial}"
        raise InvalidArgument("trials_per_gpu", expected, shown(trials_per_gpu))


def _check_verbose(value: object) -> None:
    if type(value) is not int or value not in (0, 1, 2):
        raise InvalidArgument("verbose", "0, 1 or 2", shown(value))


def _target(value: object) -> float | None:
    number = plain_value("target", value)
    if number is not None and not is_finite(number):
        raise InvalidArgument("target", "a finite number, or None", shown(value))
    return None if number is None else float(number)


def _positive(name: str, value: object, alternative: str = "") -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
        return float(value)
    raise InvalidArgument(name, f"seconds above zero{alternative}", shown(value))
