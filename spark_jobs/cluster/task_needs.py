"""The cores and GPUs that a slot needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from search.errors import InvalidArgument

TASK_GPUS = "spark.task.resource.gpu.amount"
_EXECUTOR_GPUS = "spark.executor.resource.gpu.amount"
_NO_LOCAL_GPUS = (
    "tasks that ask for GPUs wait for ever in local mode; local-cluster[1,4,8192] can assign them"
)


@dataclass(frozen=True, slots=True)
class TaskNeeds:
    """The needs of a task. As text: "1 core and 0.25 GPU".

    Attributes:
        cpus: Cores.
        gpus: GPUs; below 1, several tasks share one.
    """

    cpus: int
    gpus: float = 0.0

    @classmethod
    def of(cls, setting: Callable[[str], str | None]) -> TaskNeeds:
        """Return the needs that an application's settings name.

        Args:
            setting: Returns a Spark setting, or None if it is not set.
        """
        return cls(int(setting("spark.task.cpus") or 1), float(setting(TASK_GPUS) or 0))

    def __str__(self) -> str:
        cores = f"{self.cpus} core" if self.cpus == 1 else f"{self.cpus} cores"
        if not self.gpus:
            return cores
        return f"{cores} and {self.gpus:g} GPU" + ("s" if self.gpus > 1 else "")

    @property
    def tasks_per_gpu(self) -> int:
        """How many tasks share a GPU; 1 if none do."""
        return int(1 / self.gpus) if 0 < self.gpus < 1 else 1

    def fit(self, cores: int, gpus: int) -> int:
        """Return how many tasks an executor with these cores and GPUs runs at once."""
        return min(cores // self.cpus, self.fit_gpus(gpus)) if self.gpus else cores // self.cpus

    def fit_gpus(self, gpus: int) -> int:
        """Return for how many tasks these GPUs are enough, if each task needs some."""
        return gpus * self.tasks_per_gpu if self.gpus < 1 else int(gpus / self.gpus)


def slot_needs(
    gpus_per_trial: int | None,
    trials_per_gpu: int,
    setting: Callable[[str], str | None],
    master: str,
) -> TaskNeeds:
    """Return the needs of each slot of a search.

    Args:
        gpus_per_trial: The setting of `experiment.Settings`.
        trials_per_gpu: The setting of `experiment.Settings`.
        setting: Returns a Spark setting of the application, or None if it is not set.
        master: The URL of Spark's master.

    Raises:
        InvalidArgument: No executor can have that many GPUs.
    """
    usual = TaskNeeds.of(setting)
    name, asked, least = "gpus_per_trial", gpus_per_trial, "None or 0"
    if trials_per_gpu > 1:
        name, asked, least = "trials_per_gpu", trials_per_gpu, "1"
        needs = replace(usual, gpus=1 / trials_per_gpu)
    else:
        needs = usual if gpus_per_trial is None else replace(usual, gpus=float(gpus_per_trial))
    if is_local(master):
        if usual.gpus:
            expected = f"unset with the master {master}"
            raise InvalidArgument(TASK_GPUS, expected, f"{usual.gpus:g}", _NO_LOCAL_GPUS)
        if needs.gpus:
            expected = f"{least} with the master {master}"
            raise InvalidArgument(name, expected, f"{asked}", _NO_LOCAL_GPUS)
    offered = executor_gpus(setting)
    if needs.gpus and not offered:
        expected = f"{least}, since Spark knows of no GPUs of its executors"
        hint = f"or set {_EXECUTOR_GPUS} and spark.executor.resource.gpu.discoveryScript"
        raise InvalidArgument(name, expected, f"{asked}", hint)
    if needs.gpus > offered:
        expected = f"at most {offered}, the GPUs of an executor ({_EXECUTOR_GPUS})"
        raise InvalidArgument(name, expected, f"{asked}")
    return needs


def executor_gpus(setting: Callable[[str], str | None]) -> int:
    """Return how many GPUs of each executor Spark knows."""
    return int(setting(_EXECUTOR_GPUS) or 0)


def is_local(master: str) -> bool:
    """Return whether Spark runs tasks in the driver's own JVM, where it assigns cores only."""
    return master == "local" or master.startswith("local[")


def on_one_host(master: str) -> bool:
    """Return whether all of Spark's processes are on one host."""
    return master.startswith("local")
