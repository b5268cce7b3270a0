"""The Spark jobs that run a search's slots until it is done."""

from __future__ import annotations

import contextlib
import functools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from experiment.driver.control import Control, deadline_passed
from experiment.driver.coordinator import Coordinator
from experiment.driver.jobs.leaving import Leaving
from experiment.driver.jobs.requests import Requests
from experiment.driver.jobs.slot_liveness import SlotLiveness
from experiment.driver.jobs.spark_errors import in_words, problem_of_spark
from experiment.driver.jobs.started_jobs import NumberedJob, StartedJobs
from experiment.driver.jobs.too_few_slots import TooFewSlots, too_few_came, without_slots
from experiment.driver.open_run import OpenRun
from experiment.results.text import count
from experiment.setup.preparation import Prepared
from experiment.setup.settings import Settings
from spark_jobs import time_limits
from spark_jobs.channel.file_channel import FileChannelServer
from spark_jobs.channel.grpc_channel import Address, ChannelServer
from spark_jobs.cluster.cluster import ClusterExecutor
from spark_jobs.handover import Lent, handover
from spark_jobs.installed import is_installed
from spark_jobs.messages import encode
from spark_jobs.run_folder.paths import MAILBOX
from spark_jobs.session.session import Session
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.slot.closure import slot_function
from spark_jobs.slot.config import SlotConfig

_FRUITLESS_JOBS = 3
_MOST_FURTHER = 1_000  # maximum slots beside the first ones, see `SlotJobs.most`
_POLL = 0.1  # seconds between two checks of a running job
_LOOK = 0.5  # seconds between two checks for slots that Spark has lost
_GROW = 2.0  # seconds between two checks of the number of slots that the cluster offers
# Slots from which on those of an executor share a connection. A relay takes as much memory as a few
# hundred connections take on the driver, and is one more process that may fail.
_RELAYED = 256

_HowItEnded = Literal["ended", "give back", "give up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJobs:
    """The slot jobs of one search: a first one, and further ones when the cluster has grown.

    Attributes:
        prepared: The search.
        opened: The search's run.
        slots: Number of slots of the first job.
        control: The control, which can end the search early.
        leaving: Slots of a driver that was killed; None if there are none.
        warn: Called with each warning for the user while the search runs.
        grown: Called with the number of requested slots when it has grown.
        there: Called with the state of Spark's tasks while no slot has started, see
            `without_slots`.
    """

    prepared: Prepared
    opened: OpenRun
    slots: int
    control: Control
    leaving: Leaving | None
    warn: Callable[[str], None]
    grown: Callable[[int], None]
    there: Callable[[str], None]

    @property
    def session(self) -> Session:
        """The session that runs the jobs."""
        return self.prepared.session

    @property
    def settings(self) -> Settings:
        """The search's settings."""
        return self.prepared.spec.settings

    @property
    def most(self) -> int:
        """Maximum number of slots: the channel accepts no more connections."""
        workers = self.settings.workers
        if self.session.on_this_host:  # executors in the driver's JVM, or of a fixed number
            return self.slots
        if self.settings.parallelism is not None:
            return self.settings.parallelism * workers.most
        return self.slots + workers.of_use(_MOST_FURTHER)

    @property
    def _left_at(self) -> float:
        """The monotonic time by which the slots of a killed driver have left; 0 without any."""
        return self.leaving.until if self.leaving else 0.0

    def run(self, coordinator: Coordinator, tick: Callable[[], None]) -> str | None:
        """Run slot jobs until the search is done, or its control ends it.

        Args:
            coordinator: The coordinator, which gives trials to slots.
            tick: Called about ten times a second, from this thread.

        Returns:
            Why the search cannot continue; None if it is done or was ended.
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
                return cannot_continue(error)
            job = functools.partial(self._job, lent=lent, function=lender.function)
            jobs = stack.enter_context(StartedJobs(job))
            requests = self._requests(jobs)
            self.control.wake = server.wake
            too_few = TooFewSlots(self.settings.startup_timeout, begin=self._left_at)
            while not self._is_over(server, coordinator):
                before = coordinator.trials.progress
                requests.start(slots)
                how = self._wait(requests, server, coordinator, too_few, tick)
                if self._is_over(server, coordinator):
                    break
                if self.session.stopped:
                    return "the SparkSession was stopped during the search"
                if how == "give up":
                    return self._too_few_came(too_few.most, slots)
                if how == "give back":
                    slots = max(slots, jobs.requested)
                    self._give_back(jobs, server, coordinator)
                    self._pause(too_few.pause(), server, coordinator, tick)
                    continue
                slots = jobs.forget() or slots
                fruitless = 0 if coordinator.trials.progress > before else fruitless + 1
                if fruitless == _FRUITLESS_JOBS:
                    sentence = problem_of_spark(jobs.error, jobs.failed_hosts)
                    return sentence or _spark_problem(jobs.error)
            if server.error is not None:
                return cannot_continue(server.error)
            return coordinator.trials.problem

    def _requests(self, jobs: StartedJobs) -> Requests:
        return Requests(jobs, self.session, most=self.most, workers=self.settings.workers)

    def _is_over(self, server: ChannelServer, coordinator: Coordinator) -> bool:
        ended = coordinator.trials.done or coordinator.trials.target_reached
        return ended or self._is_ended_early(server, coordinator)

    def _is_ended_early(self, server: ChannelServer, coordinator: Coordinator) -> bool:
        in_trouble = server.error is not None or coordinator.trials.problem is not None
        return in_trouble or self.control.reason is not None

    def _too_few_came(self, present: int, requested: int) -> str:
        whose = self.leaving.whose if self.leaving else ""
        return too_few_came(
            self.session,
            present=present,
            requested=requested,
            workers=self.settings.workers.least,
            seconds=self.settings.startup_timeout,
            late=f", counted from the end of the slots of {whose}" if whose else "",
        )

    def _give_back(
        self, jobs: StartedJobs, server: ChannelServer, coordinator: Coordinator
    ) -> None:
        """End all slots, which run no trial, and withdraw the request for more."""
        for job in jobs.cancel():
            server.call(functools.partial(coordinator.ends.job_ended, job))
        jobs.forget()

    def _pause(
        self,
        seconds: float,
        server: ChannelServer,
        coordinator: Coordinator,
        tick: Callable[[], None],
    ) -> None:
        """Wait before slots are requested again."""
        least = self.settings.workers.least
        self.warn(
            f"fewer than the {least} slots of a trial have come; those that have are given back, "
            f"in case other searches wait for them, and requested again in {seconds:.0f} s"
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until and not (
            self._is_over(server, coordinator) or self.session.stopped
        ):
            tick()
            self._check_deadline()
            time.sleep(_POLL)

    def _check_deadline(self) -> None:
        deadline = self.settings.deadline
        if deadline is not None and time.monotonic() > self.settings.begun + deadline:
            self.control.cancel(deadline_passed(deadline))

    def _wait(
        self,
        requests: Requests,
        server: ChannelServer,
        coordinator: Coordinator,
        too_few: TooFewSlots,
        tick: Callable[[], None],
    ) -> _HowItEnded:
        """Wait until all slots have ended, or have no more trials, or are too few for a trial."""
        jobs, patience = requests.jobs, self.settings.startup_timeout
        begin = max(time.monotonic(), self._left_at)
        give_up = math.inf if patience is None else begin + patience
        done_since: float | None = None
        look = 0.0
        grow = time.monotonic() + _GROW
        while True:
            all_over = jobs.wait(_POLL)
            tick()
            if all_over or time.monotonic() > look:
                self._look(requests, server, coordinator)
                look = time.monotonic() + _LOOK
                if self.settings.workers.are_several and coordinator.roster.has_started:
                    decision = too_few.decide(*_missing(server, coordinator), time.monotonic())
                    if decision != "wait" and not coordinator.trials.done:
                        return decision
            if not jobs.running:
                return "ended"
            if time.monotonic() > grow:
                self._grow(requests, coordinator)
                if not coordinator.trials.overview.slots:
                    self.there(self._without_slots(jobs))
                grow = time.monotonic() + _GROW
            self._check_deadline()
            if self.session.stopped or self._is_ended_early(server, coordinator):
                return "ended"
            if coordinator.trials.target_reached and not coordinator.trials.done:
                return "ended"
            if coordinator.roster.has_started:
                give_up = math.inf
            elif time.monotonic() > give_up:
                return "give up"
            done_since = (done_since or time.monotonic()) if coordinator.trials.done else None
            # Workers have some time to end by themselves, and as much after SIGTERM.
            grace = 2 * self.settings.grace if coordinator.gangs.are_ending else 0.0
            limit = time_limits.SLOTS_END + grace
            if done_since is not None and time.monotonic() - done_since > limit:
                return "ended"  # without waiting for tasks that Spark has not started

    @contextlib.contextmanager
    def _reached(self, server: ChannelServer) -> Iterator[Address]:
        """Yield the driver's address for slots; with a mailbox, as there may be a firewall."""
        if self.session.on_this_host:
            yield server.address
            return
        with FileChannelServer(
            server, self.prepared.root.below(MAILBOX), self.prepared.data.hadoop
        ) as mailbox:
            yield msgspec.structs.replace(server.address, mailbox=mailbox.address)

    def _look(self, requests: Requests, server: ChannelServer, coordinator: Coordinator) -> None:
        """Handle slots and jobs that have ended: let their trials run on others."""
        jobs = requests.jobs
        ended = jobs.take_ended()
        while coordinator.roster.let_go:
            jobs.let_go(coordinator.roster.let_go.popleft())
        for job in ended:
            if self._is_over(server, coordinator) or self.session.stopped:
                continue
            came = coordinator.roster.has_come(job.number)
            if lost := _slots(job.lost_slots(), failed=True):
                server.call(functools.partial(coordinator.ends.slots_lost, lost))
            sentence = problem_of_spark(job.error, job.failed_hosts)
            # Spark ends a job because of one dead task, and may report others that died as killed.
            counts = sentence is None or not self.session.tells_lost_tasks
            server.call(functools.partial(coordinator.ends.job_ended, job.number, counts=counts))
            if sentence is not None:
                self._refused(job, sentence, requests, coordinator)
            elif job.error is None or not jobs.running:
                continue
            elif came:
                jobs.drop(job.slots)  # so that they are requested again
            else:
                without = count(job.slots, "slot")
                self.warn(f"the search continues without {without}: {in_words(job.error)}")
        if coordinator.roster.has_started and jobs.running:
            requests.tell_refusals(self.warn)
        slots = jobs.lost_slots()
        if lost := _slots(slots, failed=True):
            server.call(functools.partial(coordinator.ends.slots_lost, lost))
        if killed := _slots(slots, failed=False):  # such as other tasks of a job that Spark ends
            server.call(functools.partial(coordinator.ends.slots_ended, killed, counts=True))
        if decommissioned := jobs.decommissioned_slots():
            server.call(functools.partial(coordinator.slots_decommissioned, decommissioned))

    def _refused(
        self, job: NumberedJob, sentence: str, requests: Requests, coordinator: Coordinator
    ) -> None:
        if requests.refuse(job, sentence):
            self._grow(requests, coordinator)

    def _grow(self, requests: Requests, coordinator: Coordinator) -> None:
        trials = coordinator.trials
        wanted = trials.left * self.settings.workers.most
        if requests.grow(trials.overview.slots, wanted):
            self.grown(requests.jobs.requested)

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
            keep_warm=self.prepared.keep_warm,
            relayed=self.slots >= _RELAYED,
            in_gangs=self.settings.workers.are_several,
            worker_ports=self.prepared.worker_ports,
            one_host=self.session.on_this_host,
            # A member cannot know how much of its generation a lost attempt had trained.
            from_parent=self.prepared.manifest.trains_a_population,
        )

    def _job(self, number: int, slots: int, lent: Lent, function: Lent) -> SlotJob:
        shared = self.prepared.shared_import
        slot = slot_function(number, lent, function, self.session.search_path(), shared)
        # Unique, since Spark keeps earlier jobs of a search that this session may have resumed.
        # The folder's name is not in it: Spark refuses a tag with a comma.
        tag = f"experiment-{number}-{secrets.token_hex(4)}"
        return self.session.job(slot, slots, tag)

    def _modules(self) -> tuple[str, ...]:
        return tuple(name for name in self.prepared.preload.required if is_installed(name))


def _missing(server: ChannelServer, coordinator: Coordinator) -> tuple[int, int]:
    """Return the numbers of present and of missing slots for a trial."""
    found = [(0, 0)]
    server.call(lambda: found.append(coordinator.missing()))
    return found[-1]


def _slots(lost: Mapping[str, bool], *, failed: bool) -> list[str]:
    """Return the slots whose tasks failed, or those whose tasks Spark has killed."""
    return [slot for slot, its_own in lost.items() if its_own is failed]


def cannot_continue(error: BaseException) -> str:
    """Return why a search ends after an error of the driver, such as a full disk."""
    return f"the driver cannot continue: {type(error).__name__}: {error}"


def _spark_problem(error: BaseException | None) -> str:
    text = in_words(error)
    return f"the slots' Spark job failed {_FRUITLESS_JOBS} times without a result: {text}"
