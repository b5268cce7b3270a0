"""The Spark jobs that keep a search's slots running until it is done."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec

from experiment.driver.control import Control, deadline_passed
from experiment.driver.coordinator import Coordinator
from experiment.driver.open_run import OpenRun
from experiment.driver.slot_liveness import SlotLiveness
from experiment.driver.started_jobs import NumberedJob, StartedJobs
from experiment.results.text import count
from experiment.run_files.ownership import Owned
from experiment.setup.preparation import Prepared
from experiment.setup.settings import Settings
from spark_jobs import time_limits
from spark_jobs.channel.file_channel import FileChannelServer
from spark_jobs.channel.grpc_channel import Address, ChannelServer
from spark_jobs.cluster.cluster import ClusterExecutor, executor_needs
from spark_jobs.handover import Lent, handover
from spark_jobs.messages import encode
from spark_jobs.run_folder.paths import MAILBOX
from spark_jobs.session.session import Session
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.slot.slot import PROBLEM, SlotConfig, is_installed, slot_function

_FRUITLESS_JOBS = 3
_MOST_FURTHER = 1_000  # slots that may be added to those of the start, see `SlotJobs.most`
_POLL = 0.1  # seconds between two looks at a running job
_LOOK = 0.5  # seconds between two looks for slots that Spark has lost
_GROW = 2.0  # seconds between two looks at how many slots the cluster offers
_MOST_ALONE = 32  # slots that are asked for at a time, where each is a job of its own


class Leaving(NamedTuple):
    """Slots of a driver that was killed, which may still be there.

    Attributes:
        whose: The driver, in words.
        until: By `time.monotonic`, when they will be gone.
    """

    whose: str
    until: float

    @classmethod
    def of(cls, owned: Owned, session: Session) -> Self | None:
        """Return those that may be in the way of a run's search; None where there are none.

        Slots of a classic driver on its own host have ended with it.
        """
        seconds = owned.leaving(time.time())
        ended = session.on_this_host and session.tells_lost_tasks
        if owned.killed is None or not seconds or ended:
            return None
        return cls(f"the driver that was killed ({owned.killed})", time.monotonic() + seconds)

    def __str__(self) -> str:
        left = self.until - time.monotonic()
        if left <= 0:
            return ""
        return f"slots of {self.whose} leave within {left:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJobs:
    """The slot jobs of one search: a first one, and further ones where the cluster has grown.

    Attributes:
        prepared: The search.
        opened: Its run.
        slots: How many the first job has.
        control: Ends the search early.
        leaving: Slots of a driver that was killed; None where there are none.
        warn: Shows the user a sentence, while the search goes on.
        grown: Told how many slots Spark was asked for, when they have become more.
        there: Told what Spark has of them while none has come, see `without_slots`.
        refusals: Why hosts cannot run slots, in one sentence each, and whether the user was told.
    """

    prepared: Prepared
    opened: OpenRun
    slots: int
    control: Control
    leaving: Leaving | None
    warn: Callable[[str], None]
    grown: Callable[[int], None]
    there: Callable[[str], None]
    refusals: dict[str, bool] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        """Runs the jobs."""
        return self.prepared.session

    @property
    def settings(self) -> Settings:
        """Those of the search."""
        return self.prepared.spec.settings

    @property
    def most(self) -> int:
        """How many slots the search may come to: its channel lets in no more connections."""
        if self.session.on_this_host:  # executors in the driver's JVM, or of a fixed number
            return self.slots
        return self.settings.parallelism or self.slots + _MOST_FURTHER

    def run(self, coordinator: Coordinator, tick: Callable[[], None]) -> str | None:
        """Keep slot jobs running until the search is done, or is ended by its control.

        Returns:
            Why the search cannot go on; None where it need not.

        Args:
            coordinator: Hands out the trials.
            tick: Called about ten times a second, from this thread.
        """
        fruitless, slots = 0, self.slots
        host = self.session.driver_host
        handler = coordinator if self.session.tells_lost_tasks else SlotLiveness(coordinator)
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(
                ChannelServer(self.session.bind_host, handler, advertised=host, slots=self.most)
            )
            try:
                address = stack.enter_context(self._reached(server))
                lender = stack.enter_context(
                    handover(self.session, self.prepared.root, self.prepared.function)
                )
                lent = lender.lend(encode(self._config(address)))
            except OSError as error:
                return cannot_go_on(error)
            job = functools.partial(self._job, lent=lent, function=lender.function)
            jobs = stack.enter_context(StartedJobs(job))
            self.control.wake = server.wake
            while not self._is_over(server, coordinator):
                before = coordinator.progress
                self._start(slots, jobs)
                started = self._wait(jobs, server, coordinator, tick)
                if self._is_over(server, coordinator):
                    break
                if self.session.stopped:
                    return "the SparkSession was stopped during the search"
                if not started:
                    return self._nobody_came(slots)
                slots = jobs.forget() or slots
                fruitless = 0 if coordinator.progress > before else fruitless + 1
                if fruitless == _FRUITLESS_JOBS:
                    sentence = problem_of_spark(jobs.error, jobs.failed_hosts)
                    return sentence or _spark_problem(jobs.error)
            return coordinator.problem if server.error is None else cannot_go_on(server.error)

    def _is_over(self, server: ChannelServer, coordinator: Coordinator) -> bool:
        ended = coordinator.done or coordinator.target_reached
        return ended or self._is_ended_early(server, coordinator)

    def _is_ended_early(self, server: ChannelServer, coordinator: Coordinator) -> bool:
        in_trouble = server.error is not None or coordinator.problem is not None
        return in_trouble or self.control.reason is not None

    def _nobody_came(self, slots: int) -> str:
        cluster = self.session.cluster()
        there = f"; Spark has {cluster}" if cluster.executors is not None else ""
        page = cluster.page
        if page is None and (self.session.setting("spark.ui.enabled") or "").lower() == "false":
            page = "not served, as spark.ui.enabled is false"
        whose = self.leaving.whose if self.leaving else ""
        late = f", counted from when the slots of {whose} had to be gone" if whose else ""
        return (
            f"no slot has started within {self.settings.startup_timeout:g} s{late}; asked Spark "
            f"for {count(slots, 'slot')} of {self.session.task_needs}, on executors with "
            f"{executor_needs(self.session.setting)}: see that some are free, also of other "
            f"searches, or set startup_timeout{there}"
            f"{f'; its page of this application: {page}' if page else ''}"
        )

    def _wait(
        self,
        jobs: StartedJobs,
        server: ChannelServer,
        coordinator: Coordinator,
        tick: Callable[[], None],
    ) -> bool:
        """Wait until all slots have ended, or have nothing to do any more.

        Returns:
            False where none has started in time.
        """
        patience = self.settings.startup_timeout
        begin = max(time.monotonic(), self.leaving.until if self.leaving else 0.0)
        give_up = math.inf if patience is None else begin + patience
        done_since: float | None = None
        look = 0.0
        grow = time.monotonic() + _GROW
        while True:
            all_over = jobs.wait(_POLL)
            tick()
            if all_over or time.monotonic() > look:
                self._look(jobs, server, coordinator)
                look = time.monotonic() + _LOOK
            if not jobs.running:
                return True
            if time.monotonic() > grow:
                self._grow(jobs, coordinator)
                if not coordinator.status.slots:
                    self.there(self._without_slots(jobs))
                grow = time.monotonic() + _GROW
            deadline = self.settings.deadline
            if deadline is not None and time.monotonic() > self.settings.begun + deadline:
                self.control.cancel(deadline_passed(deadline))
            if self.session.stopped or self._is_ended_early(server, coordinator):
                return True
            if coordinator.target_reached and not coordinator.done:
                return True
            if coordinator.roster.has_started:
                give_up = math.inf
            elif time.monotonic() > give_up:
                return False
            done_since = (done_since or time.monotonic()) if coordinator.done else None
            if done_since is not None and time.monotonic() - done_since > time_limits.SLOTS_END:
                return True  # tasks that Spark has not started would hold the search up

    @contextlib.contextmanager
    def _reached(self, server: ChannelServer) -> Iterator[Address]:
        """Yield how slots reach the driver: by a mailbox, too, where a firewall may be between."""
        if self.session.on_this_host:
            yield server.address
            return
        with FileChannelServer(
            server, self.prepared.root.below(MAILBOX), self.prepared.data.hadoop
        ) as mailbox:
            yield msgspec.structs.replace(server.address, mailbox=mailbox.address)

    def _look(self, jobs: StartedJobs, server: ChannelServer, coordinator: Coordinator) -> None:
        """See which slots and jobs have ended, and let their trials run on others."""
        ended = jobs.take_ended()
        while coordinator.roster.let_go:
            jobs.let_go(coordinator.roster.let_go.popleft())
        for job in ended:
            if self._is_over(server, coordinator) or self.session.stopped:
                continue
            came = coordinator.roster.has_come(job.number)
            if lost := _slots(job.lost_slots(), failed=True):
                server.call(functools.partial(coordinator.slots_lost, lost))
            sentence = problem_of_spark(job.error, job.failed_hosts)
            # Spark ends a job for one task that died, and may call those that died with it killed.
            counts = sentence is None or not self.session.tells_lost_tasks
            server.call(functools.partial(coordinator.job_ended, job.number, counts=counts))
            if sentence is not None:
                self._refused(job, sentence, jobs, coordinator)
            elif job.error is None or not jobs.running:
                continue
            elif came:
                jobs.drop(job.slots)  # so that they are asked for again
            else:
                without = count(job.slots, "slot")
                self.warn(f"the search goes on without {without}: {_in_words(job.error)}")
        self._tell_refusals(jobs, coordinator)
        slots = jobs.lost_slots()
        if lost := _slots(slots, failed=True):
            server.call(functools.partial(coordinator.slots_lost, lost))
        if killed := _slots(slots, failed=False):  # as those beside a task for which it ends a job
            server.call(functools.partial(coordinator.slots_ended, killed, counts=True))
        if leaving := jobs.leaving_slots():
            server.call(functools.partial(coordinator.slots_leaving, leaving))

    def _refused(
        self, job: NumberedJob, sentence: str, jobs: StartedJobs, coordinator: Coordinator
    ) -> None:
        """See to it that a host that cannot run slots costs the others none of theirs.

        Spark tries a task there again and again, and then ends the whole job. So each slot is a job
        of its own from then on: those that come to other hosts stay, and the others are asked for
        again after a while, as the host may have been mended, or has left.
        """
        self.refusals.setdefault(sentence, False)
        if job.slots == 1:
            jobs.put_off(job.slots)
        else:
            jobs.drop(job.slots)
            self._grow(jobs, coordinator)

    def _tell_refusals(self, jobs: StartedJobs, coordinator: Coordinator) -> None:
        """Name each host that cannot run slots, once others do."""
        if not (coordinator.roster.has_started and jobs.running):
            return
        for sentence in [sentence for sentence, told in self.refusals.items() if not told]:
            self.refusals[sentence] = True
            self.warn(f"the search goes on without {sentence}")

    def _start(self, slots: int, jobs: StartedJobs) -> None:
        """Ask Spark for slots; only for some of them where each takes a job of its own."""
        if self.refusals:
            for _ in range(min(slots, _MOST_ALONE)):
                jobs.start(1)
        else:
            jobs.start(slots)

    def _grow(self, jobs: StartedJobs, coordinator: Coordinator) -> None:
        """Ask Spark for further slots, where the cluster has room and trials are left.

        Not for more than fit: tasks that wait would take what other jobs of the application and
        other searches are waiting for, and would start, one after the other, when all is done.
        """
        jobs.take_up()
        if jobs.asked >= self.most:
            return
        offered = 0
        with contextlib.suppress(Exception):  # of a stopped session
            offered = self.session.task_slots()
        awaited = jobs.asked - coordinator.status.slots
        further = min(min(offered, self.most) - jobs.asked, coordinator.left - awaited)
        if further > 0:
            self._start(further, jobs)
            self.grown(jobs.asked)

    def _without_slots(self, jobs: StartedJobs) -> str:
        executors: tuple[ClusterExecutor, ...] | None = None
        with contextlib.suppress(Exception):  # of a stopped session
            executors = self.session.cluster().executors
        return without_slots(executors, jobs.running_tasks())

    def _config(self, address: Address) -> SlotConfig:
        return SlotConfig(
            address=address,
            root=str(self.prepared.root),
            program=msgspec.structs.replace(self.prepared.program, function=b""),
            isolation=self.settings.isolation,
            timeout=self.settings.timeout,
            grace=self.settings.grace,
            spark_assigns_gpus=self.session.assigns_gpus,
            as_text=self.prepared.spec.as_text,
            echo=self.settings.verbose > 1,
            modules=self._modules(),
            trials_per_gpu=self.session.task_needs.tasks_per_gpu,
            mark=str(self.opened.owned.mark),
        )

    def _job(self, number: int, slots: int, lent: Lent, function: Lent) -> SlotJob:
        slot = slot_function(number, lent, function, self.session.search_path())
        # Spark remembers the jobs of a search that this session has run, and may go on with.
        tag = f"{self.prepared.root.name}-{number}-{secrets.token_hex(4)}"
        return self.session.job(slot, slots, tag)

    def _modules(self) -> tuple[str, ...]:
        if self.settings.isolation == "none":  # nothing is preloaded
            return ()
        return tuple(name for name in self.settings.preload if is_installed(name))


def without_slots(executors: Sequence[ClusterExecutor] | None, tasks: int) -> str:
    """Return what there is while no slot has come; '' without executors, or where nobody can know.

    Args:
        executors: Of the application; None where nobody can know.
        tasks: How many of the search's tasks run.
    """
    if not executors:
        return ""
    there = count(len(executors), "executor")
    if tasks:
        they = "runs" if len(executors) == 1 else "run"
        return f"{there} {they} {count(tasks, 'task')} of the search, whose Python is starting"
    running = sum(executor.running for executor in executors)
    others = f", which run {count(running, 'other task')}" if running else ""
    return f"{there}{others}, no task of the search started"


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
        return match[1] if match[1].startswith("host ") else f"{host}, {match[1]}"
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


def _slots(lost: Mapping[str, bool], *, failed: bool) -> list[str]:
    """Return those slots whose tasks failed, or those whose tasks Spark has killed."""
    return [slot for slot, its_own in lost.items() if its_own is failed]


def cannot_go_on(error: BaseException) -> str:
    """Return why a search ends whose journal, say, cannot be written."""
    return f"the driver cannot go on: {type(error).__name__}: {error}"


def _spark_problem(error: BaseException | None) -> str:
    text = _in_words(error)
    return f"the slots' Spark job failed {_FRUITLESS_JOBS} times without a result: {text}"


def _in_words(error: BaseException | None) -> str:
    text = "".join(traceback.format_exception_only(error)).strip() if error else "no error"
    return text[:4_000]
