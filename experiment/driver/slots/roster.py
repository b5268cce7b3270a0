"""The slots of a search: which are there, on which hosts, and which of them may get work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable

from experiment.driver.slots.gpus import Gpus
from experiment.driver.slots.hosts import Hosts
from spark_jobs.messages import Hello, SlotId

_MOST_REFUSED_JOBS = 3


class Roster:
    """Knows the slots that said hello and have not left, by name, and their hosts and GPUs.

    Args:
        asked: How many slots the search asked for.

    Attributes:
        hosts: Which of them get no more work.
        gpus: Which of them get no more trials.
        has_started: Has any slot ever said its first words?
        let_go: Slots that were told to end since their executors leave; who counts slots takes
            them out.
    """

    def __init__(self, asked: int) -> None:
        self._asked = asked
        self.hosts, self.gpus = Hosts(), Gpus()
        self.has_started = False
        self.let_go: deque[str] = deque()
        self._slots: dict[str, str] = {}  # slots that get work, with their hosts
        self._lost: set[str] = set()
        self._leaving: set[str] = set()  # slots whose executors are being decommissioned
        self._job_hosts: dict[int, set[str]] = {}  # on which a job's slots have said hello
        self._over: set[int] = set()  # jobs
        self._refused_jobs = 0  # in a row, that met no host but those in trouble

    def __len__(self) -> int:
        return len(self._slots)

    def host(self, slot: str) -> str | None:
        """Return the host of a slot; None of one that is not there."""
        return self._slots.get(slot)

    def hear(self, message: Hello) -> bool:
        """Take in a slot's first words; False where its job or its task is known to be over."""
        job = SlotId.parse(message.slot).job
        if job in self._over or message.slot in self._lost:
            return False
        self._job_hosts.setdefault(job, set()).add(message.host)
        self.has_started = True
        return True

    def join(self, slot: str, host: str) -> bool:
        """Count a slot among those that get work; False where its host gets none."""
        if self.hosts.is_excluded(host):
            return False
        self._slots[slot] = host
        return True

    def leave(self, slot: str) -> str:
        """Forget a slot; return its host, '' where it was not there."""
        return self._slots.pop(slot, "")

    def end(self, slot: str) -> None:
        """Forget a slot that is told to end."""
        del self._slots[slot]
        if slot in self._leaving:
            self.let_go.append(slot)

    def lose(self, slot: str) -> bool:
        """Note that Spark has given a slot up; False where that was known."""
        known = slot in self._lost
        self._lost.add(slot)
        return not known

    def decommission(self, slots: Collection[str]) -> list[str]:
        """Give slots no more work, as their executors leave; return the hosts where that is new."""
        hosts = {self._slots[s] for s in slots if s in self._slots and s not in self._leaving}
        self._leaving.update(slots)
        return sorted(hosts)

    def is_leaving(self, slot: str) -> bool:
        """Is a slot's executor being decommissioned?"""
        return slot in self._leaving

    def gets_work(self, slot: str) -> bool:
        """May a slot that is there get a trial?"""
        kept = slot in self._leaving or self.hosts.is_excluded(self._slots[slot])
        return not kept and not self.gpus.reasons(slot)

    def working_hosts(self) -> set[str]:
        """Return the hosts of slots that may get trials."""
        return {host for slot, host in self._slots.items() if self.gets_work(slot)}

    def avoids(self, host: str) -> Callable[[int], bool]:
        """Return a function that says of a trial whether it is to run on other hosts than this.

        It is where it died on this one and not on all that give work.
        """
        working = self.working_hosts()

        def avoids(trial: int) -> bool:
            avoided = self.hosts.avoided_by(trial)
            return host in avoided and not working <= avoided

        return avoids

    def alike(self, slot: str) -> Hashable:
        """Return what decides what a slot may run: host, GPUs and executor."""
        return self.gpus.of(slot), slot in self._leaving

    def has_come(self, job: int) -> bool:
        """Has any slot of a job that runs said its first words? From another thread, too."""
        return job in self._job_hosts

    def of_job(self, job: int) -> list[str]:
        """Return the slots of a job that are there."""
        return [slot for slot in self._slots if SlotId.parse(slot).job == job]

    def job_over(self, job: int) -> None:
        """Let no slot of a job join any more."""
        self._over.add(job)

    def forget_job(self, job: int) -> str | None:
        """Forget a job whose slots are gone; return why no host is left, None where some may be.

        Spark may have a better host for the next job than those that this one met.
        """
        hosts = self._job_hosts.pop(job, set())
        reasons = self.hosts.reasons(hosts)
        refused = hosts and len(reasons) == len(hosts) and not self._slots
        self._refused_jobs = self._refused_jobs + 1 if refused else 0
        return "; ".join(reasons) if self._refused_jobs == _MOST_REFUSED_JOBS else None

    def warnings(self) -> list[str]:
        """Name the hosts that get no more work, once the search goes on without them."""
        if all(self.hosts.is_excluded(host) for host in self._slots.values()):
            return []
        met = set().union(*self._job_hosts.values())
        return [f"{reason}; this host gets no more work" for reason in self.hosts.reasons(met)]

    def gpus_problem(self, running: int, now: float) -> str | None:
        """Return in one sentence that all GPUs are set aside; None where it can go on."""
        return self.gpus.problem(self._slots, running, self._asked, now)

    def shared_gpus(self, message: Hello) -> str:
        """Return what the user should know of GPUs that Spark does not assign."""
        return (
            f"{self._asked} slots, {message.free_gpus} GPUs on host {message.host}: Spark "
            "assigns none of them, so each trial sees all; set gpus_per_trial or "
            "spark.task.resource.gpu.amount to give each its own"
        )
