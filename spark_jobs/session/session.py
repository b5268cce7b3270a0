"""The interface to the user's SparkSession, classic or of Spark Connect."""

from __future__ import annotations

import abc
import contextlib
import copy
import math
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from search.errors import InvalidArgument, shown
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.configured import ConfiguredExecutors, is_on
from spark_jobs.cluster.exposure import Exposure, protection_of_spark
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus, slot_needs
from spark_jobs.session import spark_settings
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.trial.context import DataSettings

_PORTS = re.compile(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*")

SLOTS = "nothing byte"
"""Spark's schema of the rows that a search's slots yield: none, but Spark needs a column."""


class SharedBytes(Protocol):
    """Bytes that the driver lends to its executors; in a closure only a number refers to them."""

    @property
    def value(self) -> bytes:
        """The bytes."""


class Session(abc.ABC):
    """The user's SparkSession, classic or of Spark Connect. `session_of` creates it.

    Attributes:
        master: The URL of Spark's master.
        tells_lost_tasks: Whether its jobs know lost tasks, and tasks on executors that are being
            decommissioned. Those of Spark Connect do not: a slot there takes trials until its
            executor is gone.
    """

    master: str
    tells_lost_tasks: bool
    _asked: TaskNeeds | None = None

    @property
    @abc.abstractmethod
    def on_this_host(self) -> bool:
        """Whether all executors run on the driver's host, as its children."""

    @property
    @abc.abstractmethod
    def application_id(self) -> str:
        """The id of the Spark application."""

    @property
    @abc.abstractmethod
    def stopped(self) -> bool:
        """Whether the session has ended."""

    @property
    @abc.abstractmethod
    def driver_host(self) -> str:
        """The name by which executors reach the driver."""

    @property
    @abc.abstractmethod
    def bind_host(self) -> str:
        """The driver's address to listen on."""

    @property
    def assigns_gpus(self) -> bool:
        """Whether Spark assigns GPUs to slots."""
        return self._asked is not None or self.task_needs.gpus > 0

    @property
    def task_needs(self) -> TaskNeeds:
        """The cores and GPUs that a slot needs."""
        return self._asked or TaskNeeds.of(self.setting)

    def asking(self, gpus_per_trial: int | None, trials_per_gpu: int) -> Self:
        """Return this session for slots that ask for these GPUs, see `experiment.Settings`.

        Raises:
            InvalidArgument: No executor can have that many.
        """
        needs = slot_needs(gpus_per_trial, trials_per_gpu, self.setting, self.master)
        asking = copy.copy(self)
        asking._asked = None if gpus_per_trial is None and trials_per_gpu == 1 else needs
        return asking

    def tell_idle_gpus(self, warn: Callable[[str], None]) -> None:
        """Warn if an executor's cores are enough for fewer slots than its GPUs."""
        needs, gpus = self.task_needs, executor_gpus(self.setting)
        cores = self._executor_cores()
        if not needs.gpus or cores is None or needs.fit(cores, gpus) == needs.fit_gpus(gpus):
            return
        warn(
            f"an executor has GPUs for {needs.fit_gpus(gpus)} trials at once, but runs only "
            f"{needs.fit(cores, gpus)}: each needs {needs}, and the executor's cores are {cores}; "
            "give executors more cores, or lower spark.task.cpus"
        )

    def check_settings(self) -> None:
        """Refuse settings with which Spark ends slots that run long trials.

        Raises:
            InvalidArgument: Spark kills idle Python workers.
        """
        for prefix in ("spark.python.worker", "spark.sql.execution.pyspark.udf"):
            kills = self._is_on(f"{prefix}.killOnIdleTimeout")
            seconds = self.setting(f"{prefix}.idleTimeoutSeconds")
            if kills and seconds not in (None, "0", "0s"):
                raise InvalidArgument(
                    f"{prefix}.killOnIdleTimeout",
                    "false",
                    f"true, after {seconds}",
                    "to Spark, a slot that runs a long trial is idle",
                )

    def tell_risk(self, warn: Callable[[str], None]) -> None:
        """Warn, once per session, if Spark's ports are not protected."""
        if self.exposure is not None:
            self.tell_once(str(self.exposure), warn)

    def tell_once(self, sentence: str, warn: Callable[[str], None]) -> None:
        """Warn of something, unless this session has done so.

        Args:
            sentence: The warning; '' for none.
            warn: Called with it.
        """
        told: set[str] = self._kept.setdefault("_experiment_told", set())
        if sentence and sentence not in told:
            told.add(sentence)
            warn(sentence)

    @property
    @abc.abstractmethod
    def exposure(self) -> Exposure | None:
        """The risks of Spark's ports; None if they are protected."""

    @property
    def protection(self) -> str:
        """The first setting that protects the ports of Spark's processes; '' if none is on."""
        return protection_of_spark(self._is_on)

    @abc.abstractmethod
    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None if it is not set."""

    @abc.abstractmethod
    def hide_console_progress(self) -> None:
        """Stop Spark's progress bar on the terminal, which would show slots only."""

    @abc.abstractmethod
    def task_slots(self, tick: Callable[[], None] | None = None) -> int:
        """Return how many tasks the cluster can run at once, with all executors it may allocate.

        Args:
            tick: Called each second while waiting for executors. Default: no waiting.
        """

    @property
    def may_get_more_slots(self) -> bool:
        """Whether the cluster may come to run more tasks at once than `task_slots` returns now.

        Not in local mode, nor where settings limit the number and the size of executors. Those of a
        standalone cluster without dynamic allocation are as many as its workers, which may join.
        """
        return self._configured.may_grow(self.task_needs)

    @abc.abstractmethod
    def cluster(self) -> Cluster:
        """Return the present executors; unknown parts are None."""

    @property
    def has_run_jobs(self) -> bool:
        """Whether its application has run jobs; True if that is not known."""
        return True

    @abc.abstractmethod
    def failing_hosts(self) -> Sequence[FailingHost]:
        """Return the hosts on which executors cannot start, if the cluster's pages show them.

        Reads pages of other hosts, which may take some seconds.
        """

    @abc.abstractmethod
    def shared(self, data: bytes) -> AbstractContextManager[SharedBytes]:
        """Lend bytes to executors during the block."""

    @abc.abstractmethod
    def job(
        self,
        slot: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        tag: str,
        schema: str = SLOTS,
    ) -> SlotJob:
        """Return a job of slots.

        Args:
            slot: The function that each slot runs.
            count: The number of slots.
            tag: The job's tag for cancelling, unique among all jobs.
            schema: Spark's schema of the rows that a slot yields.
        """

    @abc.abstractmethod
    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Run a function on each partition of a DataFrame, in executors.

        Args:
            frame: A DataFrame of this session.
            function: Takes a partition's Arrow batches and yields batches; must be picklable.
            schema: Spark's schema of the batches that it yields.

        Returns:
            An Arrow table of all batches.
        """

    @abc.abstractmethod
    def data_settings(self) -> DataSettings:
        """Return the data settings of trials, from Spark's and Hadoop's settings."""

    @abc.abstractmethod
    def renewed_tokens(self, data: DataSettings) -> AbstractContextManager[None]:
        """Renew the delegation tokens of a search during the block."""

    def default_logdir(self) -> str:
        """Return the default folder of runs."""
        chosen = self.setting(spark_settings.LOGDIR.name)
        if chosen is not None:
            return chosen
        if self._file_system.startswith("hdfs://"):
            return f"{self._file_system.rstrip('/')}/user/{self._hadoop_user}/experiments"
        return "experiments"

    @property
    def in_container(self) -> bool:
        """Whether YARN removes the driver's working directory when the application ends."""
        return False

    def keep_warm(self) -> float:
        """Return the seconds for which executors keep what they have imported.

        Raises:
            InvalidArgument: The setting is no number of seconds.
        """
        name = spark_settings.KEEP_WARM.name
        value = self.setting(name) or spark_settings.KEEP_WARM.default
        with contextlib.suppress(ValueError):
            if 0 <= (seconds := float(value)) < math.inf:
                return seconds
        raise InvalidArgument(name, "a number of seconds, at least 0", shown(value))

    def worker_ports(self) -> tuple[int, int]:
        """Return the first and the last port on which workers of a trial may listen.

        Raises:
            InvalidArgument: The setting is no range of ports.
        """
        name = spark_settings.WORKER_PORTS.name
        value = self.setting(name) or spark_settings.WORKER_PORTS.default
        if match := _PORTS.fullmatch(value):
            first, last = int(match[1]), int(match[2])
            if 1024 <= first < last <= 65535:
                return first, last
        expected = "two ports from 1024 to 65535, the lower one first, such as 20000-20999"
        raise InvalidArgument(name, expected, shown(value))

    def shared_folder(self) -> str:
        """Return a folder for data that all executors can access.

        Raises:
            InvalidArgument: No such folder is known, and executors run on other hosts.
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
        """Return the folders from which executors may import the driver's modules."""
        return [os.path.abspath(path) for path in sys.path] if self.on_this_host else []

    @property
    @abc.abstractmethod
    def _file_system(self) -> str:
        """Hadoop's default file system, as a URL."""

    @property
    @abc.abstractmethod
    def _hadoop_user(self) -> str:
        """The user on Hadoop."""

    @property
    @abc.abstractmethod
    def _kept(self) -> dict[str, Any]:
        """Values stored with the user's session, shared by all objects of this class."""

    @abc.abstractmethod
    def _bytes_setting(self, name: str) -> int:
        """Return a setting in bytes; 0 if it is not set.

        Raises:
            InvalidArgument: The setting is no size.
        """

    def _cache_settings(self) -> CacheSettings:
        """Return the settings of the hosts' cache of data."""
        return CacheSettings(
            self.setting(spark_settings.CACHE_FOLDER.name) or "",
            self._bytes_setting(spark_settings.CACHE_LIMIT.name),
        )

    def _is_on(self, name: str) -> bool:
        return is_on(self.setting, name)

    def _executor_cores(self) -> int | None:
        """Return the cores of the smallest executor; None if unknown."""
        if there := self.cluster().executors:
            return min(executor.cores for executor in there)
        return self._configured.cores

    @property
    def _configured(self) -> ConfiguredExecutors:
        return ConfiguredExecutors(
            master=self.master,
            on_this_host=self.on_this_host,
            setting=self.setting,
            processors=self._processors,
        )

    def _processors(self) -> int:
        """Return the number of processors that Spark counts here; 0 if it runs elsewhere."""
        return len(os.sched_getaffinity(0)) if self.on_this_host else 0

    def present_slots(self) -> int | None:
        """Return how many tasks the present executors can run at once.

        Waits until those of a new session have registered. None if they are unknown, as in Spark
        Connect with dynamic allocation.
        """
        slots = self.task_slots(lambda: None)
        if not self._is_on("spark.dynamicAllocation.enabled"):
            return slots
        there = self.cluster().tasks(self.task_needs)
        return None if there is None else max(1, there)


def importing(
    function: Callable[[Iterable[Any]], Iterator[Any]], search_path: list[str]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that is unpickled once its modules can be imported.

    Args:
        function: The function to call; must be picklable.
        search_path: Folders to import from, in addition to the executor's own.
    """
    data = pickle.dumps(function)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        yield from pickle.loads(data)(batches)

    return run
