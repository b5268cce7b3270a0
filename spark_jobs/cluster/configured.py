"""The executors of an application by its settings, whichever are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from spark_jobs.cluster.memory_sizes import mebibytes
from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus

_LOCAL = re.compile(r"local\[(\d+|\*)(?:\s*,\s*\d+)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_EXECUTOR_MEMORY = 1024  # MiB, Spark's default
_NO_LIMIT = 2**31 - 1  # Spark's default for the most executors of dynamic allocation


def is_on(setting: Callable[[str], str | None], name: str) -> bool:
    """Return whether a setting of Spark, false by default, is true.

    Args:
        setting: Returns a Spark setting, or None if it is not set.
        name: The setting's name.
    """
    return (setting(name) or "false").strip().lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredExecutors:
    """The executors that an application may have.

    Attributes:
        master: The URL of Spark's master.
        on_this_host: Whether all of them run on the driver's host, as its children.
        setting: Returns a Spark setting, or None if it is not set.
        processors: Returns the number that `local[*]` stands for; 0 if it is unknown.
    """

    master: str
    on_this_host: bool
    setting: Callable[[str], str | None]
    processors: Callable[[], int]

    @property
    def cores(self) -> int | None:
        """The cores of each; None if unknown."""
        asked = self.setting("spark.executor.cores")
        if match := _LOCAL_CLUSTER.match(self.master):
            of_worker = int(match[2])
            return min(of_worker, int(asked or of_worker))
        return None if asked is None else int(asked)

    @property
    def most(self) -> int | None:
        """Their greatest number; None if unknown."""
        if (executors := self._of_local_cluster) is not None:
            return executors
        if self.on_this_host:
            return 1
        most = self._asked
        return None if most in (None, _NO_LIMIT) else most

    def slots(self, needs: TaskNeeds) -> int:
        """Return how many tasks they can run at once; 0 if unknown.

        Args:
            needs: The needs of each task.
        """
        if self.master == "local":
            return 1
        if match := _LOCAL.fullmatch(self.master):
            cores = self.processors() if match[1] == "*" else int(match[1])
            return needs.fit(cores, executor_gpus(self.setting))
        each = self.cores or 1
        executors = self._of_local_cluster
        if executors is None and (executors := self._asked) is None:
            executors = _NO_LIMIT if self._is_dynamic else 0
        return self._within_cores(executors, each, needs)

    def may_grow(self, needs: TaskNeeds) -> bool:
        """Return whether their number or size may come to be more than settings say.

        Args:
            needs: The needs of each task.
        """
        if self.master.startswith("local"):
            return not self.slots(needs)
        if self.master.startswith("spark:") and not self._is_dynamic:
            return True  # as many as there are workers, which may join
        return self.cores is None or self.most is None

    def _within_cores(self, executors: int, each: int, needs: TaskNeeds) -> int:
        """Return the slots of executors with some cores each, as many as there may be."""
        gpus, most = executor_gpus(self.setting), self._most_cores
        if most is not None and self.setting("spark.executor.cores") is not None:
            executors = min(executors, most // each)
        slots = executors * needs.fit(each, gpus)
        return slots if most is None else min(slots, needs.fit(most, gpus * executors))

    @property
    def _of_local_cluster(self) -> int | None:
        """Their number with a master `local-cluster`, whose workers share cores and memory out."""
        match = _LOCAL_CLUSTER.match(self.master)
        if match is None:
            return None
        workers, cores, memory = map(int, match.groups())
        each = mebibytes(self.setting("spark.executor.memory")) or _EXECUTOR_MEMORY
        return workers * int(min(cores // (self.cores or cores), memory // each))

    @property
    def _most_cores(self) -> int | None:
        """The cores that the application may have on a standalone cluster; None for all."""
        if not self.master.startswith(("spark:", "local-cluster")):
            return None
        most = self.setting("spark.cores.max")
        return None if most is None else int(most)

    @property
    def _asked(self) -> int | None:
        """Their number in the settings, the greatest one of dynamic allocation; None without."""
        dynamic = self._is_dynamic
        name = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
        number = self.setting(name)
        return None if number is None else int(number)

    @property
    def _is_dynamic(self) -> bool:
        return is_on(self.setting, "spark.dynamicAllocation.enabled")
