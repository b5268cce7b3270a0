"""The slots of a search: the present ones, their hosts, and which of them may get trials."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Hashable, Iterator

from experiment.driver.slots.gpus import Gpus
from experiment.driver.slots.hosts import Hosts
from spark_jobs.messages import Hello, SlotId

_MOST_REFUSED_JOBS = 3


class Roster:
    """The slots that have said hello and have not left, by name, with their hosts and GPUs.

    Args:
        requested: Number of slots requested.

    Attributes:
        hosts: The hosts that get no more trials.
        gpus: The GPUs that get no more trials.
        has_started: Whether any slot has ever said hello.
        let_go: Slots that were ended since their executors leave; the consumer removes entries.
    """

    def __init__(self, requested: int) -> None:
        self._requested = requested
        self.hosts = Hosts()
        self.gpus = Gpus()
        self.has_started = False
        self.let_go: deque[str] = deque()
        self._slots: dict[str, str] = {}  # slots that may get trials, with their hosts
        self._lost: set[str] = set()
        self._decommissioned: set[str] = set()  # slots whose executors are being decommissioned
        self._job_hosts: dict[int, set[str]] = {}  # hosts from which a job's slots said hello
        self._over: set[int] = set()  # jobs
        self._detour_told = False
        self._sharing_told = False
        self._refused_jobs = 0  # consecutive jobs that had slots on excluded hosts only

    def __len__(self) -> int:
        return len(self._slots)

    def host(self, slot: str) -> str | None:
        """Return the host of a slot; None if the slot is not present."""
        return self._slots.get(slot)

    def hear(self, message: Hello) -> bool:
        """Take a slot's hello; return False if its job or its task is known to have ended."""
        if self.is_given_up(message.slot):
            return False
        self._job_hosts.setdefault(SlotId.parse(message.slot).job, set()).add(message.host)
        self.has_started = True
        return True

    def is_given_up(self, slot: str) -> bool:
        """Return whether a slot's job or its task is known to have ended."""
        return SlotId.parse(slot).job in self._over or slot in self._lost

    def news(self, message: Hello) -> list[str]:
        """Return the warnings of a slot's hello; its own may repeat those of other slots."""
        news = [*message.warnings, *self.gpus.hear(message)]
        if message.detour and not self._detour_told:
            self._detour_told = True
            news.append(message.detour)
        gets_work = not message.problem and not self.hosts.is_excluded(message.host)
        if message.free_gpus and gets_work and not self._sharing_told:
            self._sharing_told = True
            news.append(self._shared_gpus(message))
        return news

    def join(self, slot: str, host: str) -> bool:
        """Add a slot, unless its host gets no more trials; return whether it is new."""
        if self.hosts.is_excluded(host):
            return False
        is_new = slot not in self._slots
        self._slots[slot] = host
        return is_new

    def leave(self, slot: str) -> str:
        """Remove a slot; return its host, '' if it was not present."""
        return self._slots.pop(slot, "")

    def end(self, slot: str) -> None:
        """Remove a slot that has to end."""
        del self._slots[slot]
        if slot in self._decommissioned:
            self.let_go.append(slot)

    def lose(self, slot: str) -> bool:
        """Record that Spark has given a slot up; return False if that was known."""
        known = slot in self._lost
        self._lost.add(slot)
        return not known

    def decommission(self, slots: Collection[str]) -> list[str]:
        """Give slots no more trials, as their executors leave; return the hosts of new ones."""
        hosts = {
            self._slots[s] for s in slots if s in self._slots and s not in self._decommissioned
        }
        self._decommissioned.update(slots)
        return sorted(hosts)

    def is_barred(self, slot: str) -> bool:
        """Return whether a slot gets no more trials: absent, executor leaves, host excluded."""
        host = self._slots.get(slot)
        return host is None or slot in self._decommissioned or self.hosts.is_excluded(host)

    def has_working_copy(self, slot: str) -> bool:
        """Return whether another slot of a slot's task is present and may get trials."""
        its_task = slot[: slot.rindex(".") + 1]  # parsing the names of a thousand slots takes long
        return any(
            other.startswith(its_task) and other != slot and self.gets_work(other)
            for other in self._slots
        )

    def gets_work(self, slot: str) -> bool:
        """Return whether a present slot may get a trial."""
        return not any(self.obstacles(slot))

    def obstacles(self, slot: str) -> tuple[bool, bool, bool]:
        """Return why a present slot gets no trial: executor leaves, host excluded, GPU set aside.

        Slots with equal obstacles get the same answer when nothing is to run again.
        """
        excluded = self.hosts.is_excluded(self._slots[slot])
        return slot in self._decommissioned, excluded, bool(self.gpus.reasons(slot))

    @property
    def workers(self) -> int:
        """Number of present slots that may get trials; of each Spark task only one counts."""
        return sum(1 for _ in self._working_elsewhere(()))

    def avoided(self, trial: int | None, workers: int = 1) -> set[str]:
        """Return the hosts on which a trial must not run, as it has died there.

        Empty if fewer slots than the trial needs may get trials on other hosts.

        Args:
            trial: The trial's id; None for one that has not run yet.
            workers: Number of slots that it needs.
        """
        hosts = set() if trial is None else self.hosts.avoided_by(trial)
        if not hosts:
            return set()
        enough = itertools.islice(self._working_elsewhere(hosts), workers)
        return hosts if len(list(enough)) == workers else set()

    def _working_elsewhere(self, hosts: Collection[str]) -> Iterator[str]:
        """Yield the slots that may get trials on other hosts than these; one of each task."""
        tasks: set[tuple[int, int]] = set()
        for slot, host in self._slots.items():
            task = SlotId.parse(slot).task
            if host not in hosts and task not in tasks and self.gets_work(slot):
                tasks.add(task)
                yield slot

    def alike(self, slot: str) -> Hashable:
        """Return a key of the trials that a slot may run: host, GPUs and executor."""
        return self.gpus.of(slot), slot in self._decommissioned

    def has_come(self, job: int) -> bool:
        """Return whether any slot of a running job has said hello. Thread safe."""
        return job in self._job_hosts

    def of_job(self, job: int) -> list[str]:
        """Return the present slots of a job."""
        return [slot for slot in self._slots if SlotId.parse(slot).job == job]

    def job_over(self, job: int) -> None:
        """Let no further slot of a job join."""
        self._over.add(job)

    def forget_job(self, job: int) -> str | None:
        """Remove a job whose slots have left; return why no host is left, None if some may be.

        Spark may have better hosts for the next job than for this one.
        """
        hosts = self._job_hosts.pop(job, set())
        reasons = self.hosts.reasons(hosts)
        refused = hosts and len(reasons) == len(hosts) and not self._slots
        self._refused_jobs = self._refused_jobs + 1 if refused else 0
        return "; ".join(reasons) if self._refused_jobs == _MOST_REFUSED_JOBS else None

    def warnings(self) -> list[str]:
        """Return a warning for each host that gets no more trials, once others do."""
        if all(self.hosts.is_excluded(host) for host in self._slots.values()):
            return []
        met = set().union(*self._job_hosts.values())
        return [f"{reason}; this host gets no more trials" for reason in self.hosts.reasons(met)]

    def gpus_problem(self, running: int, now: float) -> str | None:
        """Return one sentence if all GPUs are set aside; None if the search can continue."""
        return self.gpus.problem(self._slots, running, self._requested, now)

    def _shared_gpus(self, message: Hello) -> str:
        """Return the warning of GPUs that Spark does not assign."""
        return (
            f"{self._requested} slots, {message.free_gpus} GPUs on host {message.host}: Spark "
            "assigns none of them, so each trial sees all; set gpus_per_trial or "
            "spark.task.resource.gpu.amount to give each its own"
        )
