"""Runs the checks of `experiment.doctor` on all slots of a session at once."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from experiment.diagnosis.assessment import Expected, about_driver, assess
from experiment.diagnosis.diagnosis import DRIVER, Diagnosis, Finding, diagnosis_of
from experiment.diagnosis.driver_findings import authentication, cannot_start, size_of_function
from experiment.diagnosis.gathering import Gathering
from experiment.display.views import show_line
from experiment.driver.jobs.spark_errors import problem_of_spark
from experiment.results.text import count, duration
from experiment.setup.function.train_function import (
    check_arguments,
    pickle_function,
    required_arguments,
)
from experiment.setup.settings import choose_logdir
from experiment.setup.slot_count import SLOT_MEMORY
from search.errors import InvalidArgument
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.cluster.task_needs import executor_gpus, is_local
from spark_jobs.doctor.checks import DRIVERS_FILE, in_a_line, look_at_data
from spark_jobs.doctor.examination import SCHEMA, Access, Examination, examination_function
from spark_jobs.doctor.facts import Data, Found
from spark_jobs.doctor.software import known_modules, software
from spark_jobs.handover import Lent, handover
from spark_jobs.messages import encode
from spark_jobs.session.session import Session
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.threads import in_thread
from spark_jobs.trial.context import DataSettings

_MOST_SLOTS = 256  # each is a Spark job with a thread of its own
_MOST_NAMED = 10  # executors that did not answer
_GATHERING = 0.6  # share of the time until all slots must have started
_FIRST_LINE = 5.0  # seconds to the first line of progress
_POLL = 0.05  # seconds between two polls of the jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Examiner:
    """Examines the slots of a session.

    Attributes:
        session: The session to examine.
        timeout: Maximum seconds for the slots.
        clock: The driver's clock, in seconds since 1970.
        modules: Modules whose versions are compared.
        gpus_per_trial: See `experiment.Settings`.
        trials_per_gpu: See `experiment.Settings`.
        findings: The findings so far.
    """

    session: Session
    timeout: float
    clock: Callable[[], float] = time.time
    modules: tuple[str, ...] = field(default_factory=known_modules)
    gpus_per_trial: int | None = None
    trials_per_gpu: int = 1
    findings: list[Finding] = field(default_factory=list)

    def examine(
        self,
        train: Callable[..., Any] | None,
        data: Location | None,
        logdir: str | os.PathLike[str] | None,
    ) -> Diagnosis:
        """Return the diagnosis; see `experiment.doctor`."""
        self.session.hide_console_progress()  # Spark's bar for the slots' jobs is of no use
        show_line("doctor: checks the driver, its settings and its storage")
        function = b"" if train is None else self._pickled(train)
        for check in (self.session.check_settings, self.session.keep_warm):
            self._try("settings", check)
        self.findings.append(authentication(self.session))
        asking = self._asking()
        if asking is not None:
            asking.session.tell_idle_gpus(self._warn)
        settings = self._try_in_time("settings", self.session.data_settings) or DataSettings()
        seen = None
        if data is not None:
            seen = self._try("data", lambda: self._seen(data.url, settings))
        path = "" if data is None else data.url
        with self._folder(logdir, settings) as (folder, content):
            if asking is not None:  # otherwise slots would wait forever
                found = asking._ask(
                    function,
                    data=path,
                    folder=folder,
                    content=content,
                    settings=settings,
                    seen=seen,
                )
                self.findings.extend(found)
        return diagnosis_of(self.findings)

    def _asking(self) -> Examiner | None:
        """Return an examiner of slots with the search's GPUs; None if no executor has them."""
        session = self._try(
            "settings", lambda: self.session.asking(self.gpus_per_trial, self.trials_per_gpu)
        )
        return None if session is None else replace(self, session=session)

    def _warn(self, sentence: str) -> None:
        got, _, advice = sentence.partition("; ")
        self.findings.append(
            Finding(check="settings", host=DRIVER, level="warning", got=got, advice=advice)
        )

    def _try(self, check: str, step: Callable[[], Any]) -> Any:
        """Return the value of a step on the driver; None if it raises, which is a finding."""
        try:
            return step()
        except InvalidArgument as error:
            named = "" if error.name == check else f"{error.name}: "
            expected = f"{named}{error.expected}"
            self.findings.append(about_driver(check, error.got, expected, error.hint))
        except OSError as error:
            self.findings.append(about_driver(check, in_a_line(error)))
        return None

    def _try_in_time(self, check: str, step: Callable[[], Any]) -> Any:
        """Run a step as `_try` does, in limited time, since a host may not answer."""
        return self._try(check, lambda: _in_time(step, self.timeout / 3))

    def _seen(self, data: str, settings: DataSettings) -> Data | None:
        """Return the data as the driver sees it; None, with a warning, if it cannot."""
        try:
            seen: Data = _in_time(lambda: look_at_data(data, settings), self.timeout / 3)
        except OSError as error:
            unseen = Finding(
                check="data",
                host=DRIVER,
                level="warning",
                got=in_a_line(error),
                expected="the data, to compare with that of executors",
                advice="ignore this if only executors have the data, since trials read it there",
            )
            self.findings.append(unseen)
            return None
        return seen

    def _pickled(self, train: Callable[..., Any]) -> bytes:
        """Return the pickled train function; empty if it cannot be pickled."""
        names = required_arguments(train)
        self._try("train", lambda: check_arguments(train, names))
        function: bytes = self._try("train", lambda: pickle_function(train)) or b""
        if function:
            self.findings.append(size_of_function(train, len(function), names))
        return function

    @contextlib.contextmanager
    def _folder(
        self, given: str | os.PathLike[str] | None, settings: DataSettings
    ) -> Iterator[tuple[str, str]]:
        """Create a folder with a file for the slots to read; yield both, or '' on failure."""
        content, name = secrets.token_hex(16), f".doctor-{secrets.token_hex(4)}"

        def make() -> Location:
            default, in_container = self.session.default_logdir(), self.session.in_container
            logdir = choose_logdir(given, default, settings.hadoop, in_container=in_container)
            folder = logdir.below(name)
            with contextlib.closing(writable_files_at(folder, settings.hadoop)) as files:
                files.make_folder(folder)
                files.write(folder.below(DRIVERS_FILE), content.encode())
            return folder

        def remove() -> None:
            with contextlib.closing(writable_files_at(folder, settings.hadoop)) as files:
                files.remove(folder)

        folder = self._try_in_time("logdir", make)
        if folder is None:
            yield "", ""
            return
        try:
            yield str(folder), content
        finally:
            self._try_in_time("logdir", remove)

    def _ask(
        self,
        function: bytes,
        *,
        data: str,
        folder: str,
        content: str,
        settings: DataSettings,
        seen: Data | None,
    ) -> list[Finding]:
        """Run the checks on all slots and return the findings."""
        there, modules, key = self._slots(), self.modules, secrets.token_hex(16)
        slots = min(there, _MOST_SLOTS)
        worker_ports = self._try("settings", self.session.worker_ports)
        if is_local(self.session.master):
            worker_ports = None  # slots of one executor need no ports of the network
        gathering = Gathering(self.clock)
        host = self.session.driver_host
        with (
            ChannelServer(
                self.session.bind_host, gathering, advertised=host, slots=slots
            ) as server,
            tempfile.TemporaryDirectory() as scratch,  # visible to slots on this host only
            handover(self.session, Location.parse(folder or scratch), function) as lent,
        ):
            examinations = [
                Examination(
                    number=number + 1,
                    key=key,
                    folder=folder,
                    content=content,
                    data=data,
                    modules=modules,
                    assigns_gpus=self.session.assigns_gpus,
                    has_function=bool(function),
                    worker_ports=worker_ports,
                    one_host=self.session.on_this_host,
                    timeout=self.timeout,
                )
                for number in range(slots)
            ]
            access = lent.lend(encode(Access(server.address, settings)))
            jobs = self._run(examinations, access, lent.function, gathering, server)
        found = [f for job in jobs for f in _found(job)]
        expected = Expected(
            software=software(modules),
            heard=gathering.heard,
            target=server.address.target,
            data=seen,
            logdir=str(Location.parse(folder).parent) if folder else "",
            assigns_gpus=self.session.assigns_gpus,
            executor_gpus=executor_gpus(self.session.setting),
            gpu_share=self.session.task_needs.tasks_per_gpu,
            slot_memory=SLOT_MEMORY if "tensorflow" in modules else 0.0,
            worker_ports=worker_ports,
        )
        return [
            *_failed(jobs),
            *self._failing_hosts(),
            self._answers(found, there),
            *assess(found, expected),
        ]

    def _run(
        self,
        examinations: list[Examination],
        access: Lent,
        function: Lent,
        gathering: Gathering,
        server: ChannelServer,
    ) -> list[SlotJob]:
        """Run a job per slot, so that a failing one does not affect the others."""
        path = self.session.search_path()
        jobs = [
            self.session.job(
                examination_function(examination, access, function, path),
                1,
                f"doctor-{examination.key[:8]}-{examination.number}",
                SCHEMA,
            )
            for examination in examinations
        ]
        with contextlib.ExitStack() as running:
            start = time.monotonic()
            for job in jobs:
                running.enter_context(job)
                job.start()
            slots, show_at = count(len(jobs), "slot"), _FIRST_LINE
            show_line(f"doctor: checks {slots}, for at most {self.timeout:g} s")
            while not all(job.wait(0) for job in jobs) and not self.session.stopped:
                passed = time.monotonic() - start
                if passed > self.timeout:
                    break
                if passed > show_at:
                    started = sum(gathering.knows(n) for n in range(1, len(jobs) + 1))
                    ended = sum(job.wait(0) for job in jobs)
                    line = f"{started} of {slots} started, {ended} answered"
                    show_line(f"doctor: {line}, after {duration(passed)}")
                    show_at = 2 * passed  # less often, the longer it takes
                late = passed > self.timeout * _GATHERING
                if not gathering.all_came and (late or gathering.has_all(jobs)):
                    if late:  # they would run on cores that others have used
                        _cancel(job for n, job in enumerate(jobs, 1) if not gathering.knows(n))
                    gathering.all_came = True
                    server.wake()
                time.sleep(_POLL)
        return jobs

    def _slots(self) -> int:
        """Return the number of slots of the present executors; if unknown, all that may come."""
        there = self.session.present_slots()
        return min(self.session.task_slots(), _MOST_SLOTS) if there is None else there

    def _failing_hosts(self) -> list[Finding]:
        """Return the hosts on which executors cannot start; none if Spark does not answer."""
        hosts: Sequence[FailingHost] = ()
        with contextlib.suppress(Exception):  # pages that do not answer, a session that was stopped
            hosts = _in_time(self.session.failing_hosts, self.timeout / 3)
        return [cannot_start(host) for host in hosts]

    def _answers(self, found: list[Found], there: int) -> Finding:
        hosts = {slot.host for slot in found}
        got = f"{len(found)} of {count(there, 'slot')} answered, on {count(len(hosts), 'host')}"
        finding = functools.partial(Finding, check="slots", host=DRIVER)
        if len(found) >= there:
            return finding(level="ok", got=got)
        if len(found) == _MOST_SLOTS:
            return finding(
                level="warning", got=got, expected=f"no more than {_MOST_SLOTS} are checked"
            )
        reached = {slot.executor for slot in found}
        executors = self.session.cluster().executors or ()
        others = [f"{e.name} on {e.host}" for e in executors if e.name not in reached]
        if others:
            got += f"; none of {'executor' if len(others) == 1 else 'executors'} "
            got += ", ".join(others[:_MOST_NAMED]) + (", ..." if len(others) > _MOST_NAMED else "")
        advice = (
            "check that executors have started and that no other job holds their cores; a slot "
            f"requests {self.session.task_needs}"
        )
        expected = f"all of them within {self.timeout:g} s"
        return finding(level="red", got=got, expected=expected, advice=advice)


def _in_time(step: Callable[[], Any], limit: float) -> Any:
    """Return a step's value or raise its error; raise OSError after `limit` seconds."""
    outcome = in_thread(step, "experiment-doctor")
    try:
        return outcome.result(limit)
    except TimeoutError:
        if outcome.done():  # the step's own error
            raise
        raise OSError(f"no answer within {limit:g} s") from None


def _cancel(jobs: Iterable[SlotJob]) -> None:
    for job in jobs:
        job.cancel()


def _found(job: SlotJob) -> list[Found]:
    if job.result is None:
        return []
    return [msgspec.json.decode(row, type=Found) for row in job.result["found"].to_pylist()]


def _failed(jobs: list[SlotJob]) -> Iterator[Finding]:
    """Yield the findings about slots that could not start."""
    for job in jobs:
        hosts = job.failed_hosts
        if job.error is None or not hosts:  # cancelled
            continue
        sentence = problem_of_spark(job.error, hosts) or f"the task failed: {in_a_line(job.error)}"
        got, _, advice = sentence.removeprefix(f"host {hosts[0]}").lstrip(":, ").partition("; ")
        yield Finding(
            check="slots",
            host=hosts[0],
            level="red",
            got=got,
            advice=advice or "see the log of the executor",
        )
