"""The Spark jobs that keep a search's slots running until it is done."""

from __future__ import annotations

import functools
import math
import re
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import psutil

from experiment.control import Control
from experiment.coordinator import Coordinator
from experiment.settings import Settings
from experiment.text import count
from search.errors import InvalidArgument
from spark_jobs.channel import ChannelServer
from spark_jobs.locations import Location
from spark_jobs.paths import RunPaths
from spark_jobs.session import ClassicSession, SharedBytes
from spark_jobs.slot_job import SlotJob
from spark_jobs.slots import PROBLEM, SlotConfig, is_installed, slot_function, slot_name
from spark_jobs.trial_process import Program

_SLOT_MEMORY = 0.8e9  # bytes: TensorFlow imported, and a small model
_FRUITLESS_JOBS = 3
_MOST_SLOTS = 100_000
_POLL = 0.1  # seconds between two looks at a running job
_LOOK = 0.5  # seconds between two looks for slots that Spark has lost
_FAREWELL = 10.0  # seconds that slots have to end after the last trial


@dataclass(frozen=True, slots=True)
class SlotJobs:
    """The slot jobs of one search, one after the other.

    Attributes:
        session: That runs them.
        paths: Of the run.
        program: What all trials have in common.
        settings: Of the search.
        as_text: Hyperparameters that TensorBoard shows as text.
        slots: How many a job has.
        control: Ends the search early.
        started: When the search started, for its deadline.
    """

    session: ClassicSession
    paths: RunPaths
    program: Program
    settings: Settings
    as_text: tuple[str, ...]
    slots: int
    control: Control
    started: float

    def run(self, coordinator: Coordinator, tick: Callable[[], None]) -> str | None:
        """Keep slot jobs running until the search is done, or is ended by its control.

        Returns:
            Why the search cannot go on; None where it need not.

        Args:
            coordinator: Hands out the trials.
            tick: Called about ten times a second, from this thread.
        """
        fruitless = number = 0
        host = self.session.driver_host
        with (
            ChannelServer(
                self.session.bind_host, coordinator, advertised=host, slots=self.slots
            ) as server,
            self.session.shared(self.program.function) as function,
        ):
            self.control.wake = server.wake
            while not self._is_over(server, coordinator):
                number, before = number + 1, coordinator.progress
                job = self._job(number, server, function)
                with job:
                    started = self._wait(number, job, server, coordinator, tick)
                if self._is_over(server, coordinator):
                    break
                if not started:
                    return self._nobody_came()
                if self.session.stopped:
                    return "the SparkSession was stopped during the search"
                server.call(functools.partial(coordinator.job_ended, number))
                fruitless = 0 if coordinator.progress > before else fruitless + 1
                sentence = coordinator.problem or problem_of_spark(job.error, job.failed_hosts)
                if sentence or fruitless == _FRUITLESS_JOBS:
                    return sentence or _spark_problem(job.error)
            return coordinator.problem if server.error is None else _cannot_go_on(server.error)

    def _is_over(self, server: ChannelServer, coordinator: Coordinator) -> bool:
        ended = coordinator.done or coordinator.target_reached or coordinator.problem is not None
        return ended or server.error is not None or self.control.reason is not None

    def _nobody_came(self) -> str:
        memory = self.session.setting("spark.executor.memory") or "1g"
        return (
            f"no slot has started within {self.settings.startup_timeout:g} s; asked Spark for "
            f"{count(self.slots, 'slot')} of {self.session.task_needs}, on executors with {memory} "
            "of memory: see that some are free, also of other searches, or set startup_timeout"
        )

    def _wait(
        self,
        number: int,
        job: SlotJob,
        server: ChannelServer,
        coordinator: Coordinator,
        tick: Callable[[], None],
    ) -> bool:
        """Wait until the slots have ended, or have nothing to do any more.

        Returns:
            False where none has started in time.
        """
        job.start()
        patience = self.settings.startup_timeout
        give_up = math.inf if patience is None else time.monotonic() + patience
        done_since: float | None = None
        look = 0.0
        while not job.wait(_POLL):
            tick()
            if time.monotonic() > look:
                lost = [slot_name(number, t.partition, t.attempt) for t in job.lost_tasks()]
                if lost:
                    server.call(functools.partial(coordinator.slots_lost, lost))
                look = time.monotonic() + _LOOK
            deadline = self.settings.deadline
            if deadline is not None and time.monotonic() > self.started + deadline:
                self.control.cancel(f"the deadline of {deadline:g} s has passed")
            if server.error is not None or coordinator.problem is not None or self.control.reason:
                return True
            if coordinator.target_reached and not coordinator.done:
                return True
            if coordinator.has_started:
                give_up = math.inf
            elif time.monotonic() > give_up:
                return False
            if coordinator.done:
                done_since = time.monotonic() if done_since is None else done_since
                if time.monotonic() - done_since > _FAREWELL:
                    return True  # tasks that Spark has not started would hold the search up
        return True

    def _job(self, number: int, server: ChannelServer, function: SharedBytes) -> SlotJob:
        config = SlotConfig(
            number,
            server.address,
            self.paths.shown(),
            msgspec.structs.replace(self.program, function=b""),
            self.settings.isolation,
            self.settings.timeout,
            self.settings.grace,
            self.session.assigns_gpus,
            self.as_text,
            self.settings.verbose > 1,
            self._modules(),
        )
        slot = slot_function(config, function, self.session.search_path())
        name = Location.parse(self.paths.shown()).name
        # Spark remembers the jobs of a search that this session has run, and may go on with.
        tag = f"{name}-{number}-{secrets.token_hex(4)}"
        return self.session.job(slot, self.slots, tag)

    def _modules(self) -> tuple[str, ...]:
        if self.settings.isolation == "none":  # nothing is preloaded
            return ()
        return tuple(name for name in self.settings.preload if is_installed(name))


def slot_count(
    trials: int | None,
    settings: Settings,
    session: ClassicSession,
    *,
    warn: Callable[[str], None],
    tick: Callable[[], None] = lambda: None,
) -> int:
    """Return how many slots a search asks for.

    Args:
        trials: Of the search; None where nobody knows how many will come.
        settings: Of the search.
        session: That will run them.
        warn: Shows the user a sentence, where memory allows fewer slots than Spark.
        tick: Called now and then where executors are waited for.

    Raises:
        InvalidArgument: Nothing limits them.
    """
    most = sys.maxsize if trials is None else trials
    if settings.parallelism is not None:
        return min(settings.parallelism, most)
    slots = min(most, session.task_slots(tick))
    if trials is None and slots > _MOST_SLOTS:  # dynamic allocation without a maximum
        expected = "an integer, where Spark may start any number of executors"
        hint = "or set spark.dynamicAllocation.maxExecutors"
        raise InvalidArgument("parallelism", expected, "None", hint)
    if session.on_this_host and settings.isolation != "none" and settings.preload:
        fit = max(1, int(psutil.virtual_memory().available / _SLOT_MEMORY))
        if fit < slots:
            warn(
                f"{fit} trials at once instead of {slots}: the memory that is free allows no more "
                f"at {_SLOT_MEMORY / 1e9:.1f} GB each; parallelism= overrides this"
            )
            return fit
    return slots


def problem_of_spark(error: BaseException | None, hosts: Sequence[str] = ()) -> str | None:
    """Return in one sentence why slots could not start at all; None for any other error.

    Args:
        error: What Spark raised for the slot job, if it did.
        hosts: On which its tasks failed.
    """
    if error is None:
        return None
    text = str(error)
    host = f"host {hosts[0]}" if hosts else "an executor"
    if match := re.search(rf"RuntimeError: {PROBLEM}(.+)", text):
        return f"{host}, {match[1]}; install this package and its dependencies on every executor"
    if match := re.search(r"ModuleNotFoundError: No module named '([^']+)'", text):
        return (
            f"{host}: Python on the executor has no module named {match[1]!r}; set PYSPARK_PYTHON "
            "to a Python that has this package and its dependencies on every executor"
        )
    mismatch = r"PYTHON_VERSION_MISMATCH\][^:]*: (\S+) than that in driver: (\S+?),"
    if match := re.search(mismatch, text):
        return (
            f"{host}: the executor has Python {match[1]}, the driver {match[2]}; set "
            "PYSPARK_PYTHON to the driver's version on every executor"
        )
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"{host}: the executor has no Python at {match[1]!r}; set PYSPARK_PYTHON to one"
    return None


def _cannot_go_on(error: BaseException) -> str:
    return f"the driver cannot go on: {type(error).__name__}: {error}"


def _spark_problem(error: BaseException | None) -> str:
    text = "".join(traceback.format_exception_only(error)).strip() if error else "no error"
    return f"the slots' Spark job failed {_FRUITLESS_JOBS} times without a result: {text[:4_000]}"
