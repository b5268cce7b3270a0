"""The executors of an application, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterExecutor:
    """One executor.

    Attributes:
        name: Spark's id of it: a number as text, 'driver' in local mode.
        host: Spark's name for its host.
        cores: Cores for its tasks.
        memory: Bytes of its JVM's heap (`spark.executor.memory`), without Python's processes.
        resources: Other resources, name to addresses: `{'gpu': ('0', '1')}`.
        running: The number of its running tasks, of any job.
    """

    name: str
    host: str
    cores: int
    memory: int
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    running: int = 0

    def tasks(self, needs: TaskNeeds) -> int:
        """Return how many tasks with these needs it can run at once, if no other runs."""
        return needs.fit(self.cores, len(self.resources.get("gpu", ())))


@dataclass(frozen=True, slots=True)
class Cluster:
    """The executors of an application at one moment.

    Attributes:
        executors: The present executors; None if unknown.
        page: The address of Spark's pages of this application; None if it has none, or unknown.
    """

    executors: tuple[ClusterExecutor, ...] | None = None
    page: str | None = None

    def tasks(self, needs: TaskNeeds) -> int | None:
        """Return how many tasks can run at once, if no other runs; None if unknown."""
        if self.executors is None:
            return None
        return sum(executor.tasks(needs) for executor in self.executors)

    def __str__(self) -> str:
        """Return a description: "1 executor with 4 cores and 2048 MiB on a, running 1 task"."""
        return "" if self.executors is None else _in_words(self.executors)


_MOST_NAMED = 4  # maximum kinds of executors, and hosts of each kind, in a description


def _in_words(executors: tuple[ClusterExecutor, ...]) -> str:
    if not executors:
        return "no executor"
    kinds: dict[str, list[ClusterExecutor]] = {}
    for executor in executors:
        kinds.setdefault(_size(executor), []).append(executor)
    described = [_kind(size, alike) for size, alike in list(kinds.items())[:_MOST_NAMED]]
    more = [] if len(kinds) <= _MOST_NAMED else [f"{len(kinds) - _MOST_NAMED} more kinds"]
    return "; ".join([*described, *more])


def _kind(size: str, alike: list[ClusterExecutor]) -> str:
    hosts = list(dict.fromkeys(executor.host for executor in alike))
    where = ", ".join(hosts[:_MOST_NAMED]) + (", ..." if len(hosts) > _MOST_NAMED else "")
    number = "1 executor with" if len(alike) == 1 else f"{len(alike)} executors, each with"
    running = sum(executor.running for executor in alike)
    tasks = "1 task" if running == 1 else f"{running} tasks"
    return f"{number} {size} on {where}, running {tasks}"


def _size(executor: ClusterExecutor) -> str:
    cores = "1 core" if executor.cores == 1 else f"{executor.cores} cores"
    others = [f"{len(held)} {name}" for name, held in sorted(executor.resources.items())]
    return _listed([cores, f"{executor.memory >> 20} MiB", *others])


def executor_needs(setting: Callable[[str], str | None]) -> str:
    """Return an application's request for each executor: "7g of memory, 2 cores and 1 GPU".

    Args:
        setting: Returns a Spark setting, or None if it is not set.
    """
    memory = setting("spark.executor.memory") or "1g"
    parts = [f"{memory}{'m' if memory.isdecimal() else ''} of memory"]
    cores = setting("spark.executor.cores")
    if cores is not None:
        parts.append("1 core" if cores == "1" else f"{cores} cores")
    if gpus := executor_gpus(setting):
        parts.append("1 GPU" if gpus == 1 else f"{gpus} GPUs")
    return _listed(parts)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
