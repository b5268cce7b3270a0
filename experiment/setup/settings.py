"""The keyword arguments that all searches share, checked."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pwd
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from experiment.results.result import Result, Results
from experiment.run_files.loading import find_run
from search.checks import check_integer, make_plain, plain
from search.direction import Directions, Goal, read_direction
from search.errors import InvalidArgument, WrongCall, did_you_mean, prefixed, shown
from search.stopping import StoppingRule, read_rules
from search.trial import RETRIED, FailureKind
from search.values import is_finite, is_unicode, plain_value
from spark_jobs.storage.files import check_writable
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import HADOOP, Location
from spark_jobs.storage.stores import writable_files_at

F = TypeVar("F", bound=Callable[..., Any])

Isolation = Literal["process", "spawn", "none"]

_MOST_PER_GPU = 64


class _Begun:
    """When settings were made, on the clock of `time.monotonic`: a deadline counts from then."""

    __slots__ = ("begun",)
    begun: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(_Begun):
    """What every search takes beside its own arguments, all of it keyword-only.

    Args:
        name: A label of the run; left out, the name of the train function.
        description: A longer text, kept with the run.
        direction: 'max' or 'min' of the objective; for several objectives, of which the Pareto
            front is wanted, a dict: `{'accuracy': 'max', 'latency': 'min'}`. The train function
            then returns a dict with a number for each, and there is no `stopping`.
        optimization_key: Which key of a returned dict is the objective. Not needed for a lone
            number (called 'metric' then) or a dict with one key.
        resume: The folder of a run, or its `Result`, to go on with, in the same call with the same
            space, metric and direction; trials that have ended are not run again. `logdir` does
            not count then.
        logdir: The folder that gets a folder per run: one that all executors see, or hdfs://...
            Left out: the Spark setting `spark.experiment.logdir`, else `experiments` in the user's
            home on HDFS where that is Spark's default, else `./experiments`.
        parallelism: Trials at once at the most. Left out: as many as the cluster can run tasks.
        gpus_per_trial: GPUs that each trial has for itself; 0 hides all of them. Left out: what
            the Spark setting `spark.task.resource.gpu.amount` says.
        trials_per_gpu: Trials at once on one GPU, up to 64; beyond 1 each has a share of its
            memory, and shares its time with the others.
        stopping: A stopping rule, or a list of them, by which trials that report little of promise
            are ended early: `experiment.SuccessiveHalving()`, `MedianStopping`, ... They go by the
            metric named by `optimization_key`, or the only one that is reported.
        timeout: Seconds after which a trial is ended, with all processes that it started.
        grace: Seconds that a trial has between SIGTERM and SIGKILL then.
        deadline: Seconds from the call after which the search is ended; it returns what there is.
        target: A value of the objective that is good enough: the search ends when its best trial
            reaches it, and those that still run are cancelled.
        startup_timeout: Seconds that Spark has to start the first slot; None waits for ever.
        max_failures: More failed trials than that end the search.
        retries: How often a trial runs again after a failure of `retry_on`, as another attempt.
        retry_on: Kinds of failures, see `experiment.Failure`: that its executor was lost, or the
            machine's trouble; 'user error', 'exit', 'time', 'memory', 'gpu memory' and
            'invalid value' where you add them.
        seed: Makes a search repeatable; also the state of `random` and numpy in each trial.
        isolation: 'process' forks a process per trial, 'spawn' starts a fresh interpreter per
            trial, whose imports count as its time, 'none' runs trials in the slot's own process,
            where nothing can end them.
        preload: Modules that the process which forks trials imports once, fresh interpreters each
            time; missing ones are skipped. `()` for train functions without TensorFlow.
        verbose: 0 shows nothing, 1 how far the search is, 2 also a line per trial, and what trials
            print, with the trial's number in front.

    Raises:
        InvalidArgument: Naming the argument, what was expected and what came.
    """

    name: str | None = None
    description: str = ""
    direction: str | Mapping[str, str] = "max"
    optimization_key: str | None = None
    resume: str | os.PathLike[str] | Result | Results | None = None
    logdir: str | os.PathLike[str] | None = None
    parallelism: int | None = None
    gpus_per_trial: int | None = None
    trials_per_gpu: int = 1
    stopping: StoppingRule | Sequence[StoppingRule] | None = None
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
    preload: Sequence[str] = ("tensorflow", "keras")
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
        _check_integer("parallelism", self.parallelism, 1)
        check_gpus(self.gpus_per_trial, self.trials_per_gpu)
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
        """Refuse what goes by one objective."""
        for name in ("optimization_key", "stopping", "target"):
            value = getattr(self, name)
            if value is not None and value != []:
                raise InvalidArgument(name, "None with several objectives", shown(value))

    @property
    def goal(self) -> Goal:
        """What the search is to achieve, as `direction` says it."""
        return read_direction(self.direction)


def takes_settings(function: F, without: Collection[str] = ()) -> F:
    """Show the fields of `Settings` in the signature of a function that takes `**settings`.

    So `help` and completion name them, and they are written down once.

    Args:
        function: To be called with them.
        without: Those that it does not take.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    shared = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(Settings)
        if f.name not in signature.parameters and f.name not in without
    ]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            shown_signature.bind(*args, **kwargs)
        except TypeError as error:
            known = shown_signature.parameters
            unknown = next((name for name in kwargs if name not in known), None)
            hint = prefixed("; ", did_you_mean(unknown, known))
            raise WrongCall(f"{function.__name__}(): {error}{hint}") from None
        return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    shown_signature = signature.replace(parameters=[*own, *shared])
    call.__signature__ = shown_signature  # type: ignore[attr-defined]  # what inspect.signature reads
    return call  # type: ignore[return-value]  # the same function, shown in full


def choose_logdir(
    given: str | os.PathLike[str] | None, default: str, hadoop: HadoopSettings
) -> Location:
    """Return where the folder for runs is, and make sure that it can be written to.

    Args:
        given: What the user passed, or None.
        default: Where it is then.
        hadoop: Where HDFS is.

    Raises:
        InvalidArgument: It is not a folder, cannot be made or cannot be written to.
    """
    text = default if given is None else given
    check_logdir(text)
    location = Location.parse(text, "logdir")
    if not is_unicode(str(location)):  # of the folder that this program was started in
        raise InvalidArgument("logdir", "a folder whose name UTF-8 can hold", repr(str(location)))
    check_folder("logdir", location, hadoop)
    return location


def check_folder(name: str, location: Location, hadoop: HadoopSettings) -> None:
    """Make sure that a folder can be written to.

    Args:
        name: Of the argument that names it.
        location: The folder; made where it is missing.
        hadoop: Where HDFS is.

    Raises:
        InvalidArgument: It cannot.
    """
    try:
        with contextlib.closing(writable_files_at(location, hadoop)) as files:
            check_writable(files, location)
    except OSError as error:
        local = location.scheme == "file"  # elsewhere the message names the place, too
        got = f"{str(location)!r}: {error.strerror}, as user {_user()}" if local else str(error)
        raise InvalidArgument(name, "a folder that can be written to", got) from None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in containers that are run by a number
        return str(os.geteuid())


def check_logdir(logdir: object) -> None:
    """Make sure that this may name a folder of runs, without looking for it.

    Raises:
        InvalidArgument: It may not.
    """
    if not isinstance(logdir, str | os.PathLike) or not os.fspath(logdir):
        raise InvalidArgument("logdir", "the path of a folder, or None", shown(logdir))
    text = os.fsdecode(logdir)
    if "\0" in text or not is_unicode(text):
        raise InvalidArgument("logdir", "a path in UTF-8 without zero bytes", shown(text))
    _check_place("logdir", Location.parse(text, "logdir"))


def _check_place(name: str, location: Location) -> None:
    """Refuse what a run cannot be written to, before anybody looks there."""
    if location.scheme not in ("file", *HADOOP):
        raise InvalidArgument(
            name,
            "the path of a folder, or hdfs://...",
            shown(str(location)),
            f"runs are written to no {location.scheme}://, but to a folder where it is mounted",
        )


def _text(name: str, value: object, alternative: str = "") -> str:
    expected = f"a string, {alternative}" if alternative else "a string"
    if not isinstance(value, str):
        raise InvalidArgument(name, expected, shown(value))
    if not is_unicode(value):
        raise InvalidArgument(name, "a string that UTF-8 can hold", shown(value))
    return str.__str__(value)  # plain, also where it is numpy's


def _module_names(preload: Any) -> tuple[str, ...]:
    if isinstance(preload, Iterable) and not isinstance(preload, str):
        names = tuple(preload)
        if all(type(name) is str for name in names):
            return names
    raise InvalidArgument("preload", "a list of module names", shown(preload))


def _failure_kinds(retry_on: Any) -> tuple[FailureKind, ...]:
    known = [kind for kind in get_args(FailureKind) if kind != "ambiguous objective"]
    if isinstance(retry_on, Iterable) and not isinstance(retry_on, str):
        kinds = tuple(retry_on)
        if all(kind in known for kind in kinds):
            return kinds
    expected = "a list of failures: " + ", ".join(map(repr, known))
    raise InvalidArgument("retry_on", expected, shown(retry_on))


def _check_integer(name: str, value: object, least: int) -> None:
    if value is None:
        return
    try:
        check_integer(name, value, least)
    except InvalidArgument as error:
        raise InvalidArgument(name, f"{error.expected}, or None", error.got) from None


def check_gpus(gpus_per_trial: int | None, trials_per_gpu: int) -> None:
    """Check what trials ask for of GPUs, by itself; see `Settings`.

    Raises:
        InvalidArgument: One of them is no such number, or they contradict each other.
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
