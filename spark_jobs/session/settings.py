"""What a session's settings say, whatever its kind."""

from __future__ import annotations

import abc
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from search.errors import InvalidArgument
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.exposure import Exposure
from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus

_LOCAL = re.compile(r"local\[(\d+|\*)(?:\s*,\s*\d+)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")


class SessionSettings(abc.ABC):
    """What follows from the settings of a session.

    Attributes:
        master: Spark's name of the cluster.
    """

    master: str
    _asked: TaskNeeds | None = None

    @property
    @abc.abstractmethod
    def on_this_host(self) -> bool:
        """Do all executors run on the driver's host?"""

    @abc.abstractmethod
    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None where it is not set."""

    @abc.abstractmethod
    def cluster(self) -> Cluster:
        """Return the executors that are there now."""

    @property
    @abc.abstractmethod
    def _file_system(self) -> str:
        """Hadoop's default file system, as a URL."""

    @property
    @abc.abstractmethod
    def _hadoop_user(self) -> str:
        """Who asks Hadoop."""

    def _is_on(self, name: str) -> bool:
        return (self.setting(name) or "false").lower() == "true"

    def check_worker_timeouts(self) -> None:
        """Refuse settings with which Spark ends slots that run long trials.

        Raises:
            InvalidArgument: Python workers are to be killed when they are idle for a time.
        """
        for prefix in ("spark.python.worker", "spark.sql.execution.pyspark.udf"):
            kills = self._is_on(f"{prefix}.killOnIdleTimeout")
            seconds = self.setting(f"{prefix}.idleTimeoutSeconds")
            if kills and seconds not in (None, "0", "0s"):
                raise InvalidArgument(
                    f"{prefix}.killOnIdleTimeout",
                    "false",
                    f"true, after {seconds}",
                    "Spark takes a slot that runs a long trial for idle",
                )

    @property
    def assigns_gpus(self) -> bool:
        """Is it Spark that says which GPUs a slot has, if any?"""
        return self._asked is not None or self.task_needs.gpus > 0

    @property
    def task_needs(self) -> TaskNeeds:
        """What a slot asks of an executor."""
        return self._asked or TaskNeeds.of(self.setting)

    def tell_idle_gpus(self, warn: Callable[[str], None]) -> None:
        """Warn where an executor has too few cores for the slots that its GPUs are enough for."""
        needs, gpus = self.task_needs, executor_gpus(self.setting)
        cores = self._executor_cores()
        if not needs.gpus or cores is None or needs.fit(cores, gpus) == needs.fit_gpus(gpus):
            return
        warn(
            f"an executor runs {needs.fit(cores, gpus)} of the {needs.fit_gpus(gpus)} trials at "
            f"once that its GPUs are enough for: each asks for {needs}, and its cores are {cores}; "
            "give executors more of them, or lower spark.task.cpus"
        )

    def _executor_cores(self) -> int | None:
        """Return the cores of the smallest executor; None where nothing says so."""
        if there := self.cluster().executors:
            return min(executor.cores for executor in there)
        if match := _LOCAL_CLUSTER.match(self.master):
            return int(match[2])
        cores = self.setting("spark.executor.cores")
        return None if cores is None else int(cores)

    def _slots_configured(self) -> int:
        needs, gpus = self.task_needs, executor_gpus(self.setting)
        if self.master == "local":
            return 1
        if match := _LOCAL.fullmatch(self.master):
            if match[1] != "*":
                return needs.fit(int(match[1]), gpus)
            return needs.fit(os.cpu_count() or 1, gpus) if self.on_this_host else 0
        if match := _LOCAL_CLUSTER.match(self.master):
            return int(match[1]) * needs.fit(int(match[2]), gpus)
        cores = int(self.setting("spark.executor.cores") or 1)
        if self._is_on("spark.dynamicAllocation.enabled"):
            executors = int(self.setting("spark.dynamicAllocation.maxExecutors") or 2**31 - 1)
        else:
            executors = int(self.setting("spark.executor.instances") or 0)
        return executors * needs.fit(cores, gpus)

    def _most_executors(self) -> int | None:
        """Return how many executors there can be; None where nothing says so."""
        if match := _LOCAL_CLUSTER.match(self.master):
            return int(match[1])
        if self.on_this_host:
            return 1
        dynamic = self._is_on("spark.dynamicAllocation.enabled")
        name = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
        most = self.setting(name)
        return None if most is None or int(most) == 2**31 - 1 else int(most)

    @property
    @abc.abstractmethod
    def exposure(self) -> Exposure | None:
        """What strangers can do through Spark's own ports; None where they are shut out."""

    @property
    @abc.abstractmethod
    def _kept(self) -> dict[str, Any]:
        """What is kept as long as the session lasts, whoever makes another object of this class."""

    def tell_risk(self, warn: Callable[[str], None]) -> None:
        """Warn, once in a session, where strangers can do something through Spark's own ports."""
        if "_experiment_risk" in self._kept:
            return
        self._kept["_experiment_risk"] = exposure = self.exposure
        if exposure is not None:
            warn(str(exposure))

    def default_logdir(self) -> str:
        """Return the folder of runs of a user who names none."""
        chosen = self.setting("spark.experiment.logdir")
        if chosen is not None:
            return chosen
        if self._file_system.startswith("hdfs://"):
            return f"{self._file_system.rstrip('/')}/user/{self._hadoop_user}/experiments"
        return "experiments"

    def shared_folder(self) -> str:
        """Return a folder for data that all executors see.

        Raises:
            InvalidArgument: None is known, and executors run on other hosts.
        """
        folder = self.default_logdir()
        if folder and (self.on_this_host or folder != "experiments"):
            return folder.rstrip("/")
        raise InvalidArgument(
            "path",
            "a folder that all executors see, or hdfs://...",
            "nothing",
            "or set spark.experiment.logdir to one",
        )

    def search_path(self) -> list[str]:
        """Return the folders from which executors may import what the driver imports."""
        return [os.path.abspath(path) for path in sys.path] if self.on_this_host else []
