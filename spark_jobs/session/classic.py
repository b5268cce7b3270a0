"""A SparkSession in the driver's own process. All uses of SparkContext and the JVM are here."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from search.errors import InvalidArgument, shown
from spark_jobs.addresses import named, own_address
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.exposure import AUTHENTICATION, Exposure, exposure_of_spark, start_of
from spark_jobs.cluster.standalone_pages import FailingHost, failing_hosts
from spark_jobs.cluster.status_store import executors_of, logs_of, started_of
from spark_jobs.cluster.task_needs import TaskNeeds, is_local, on_one_host
from spark_jobs.session.accumulators import WithoutAccumulators, without_accumulators
from spark_jobs.session.delegation_tokens import DelegationTokens, KnownTokens, unlogged
from spark_jobs.session.resource_profiles import profile_of, tasks_at_once
from spark_jobs.session.session import SLOTS, Session, SharedBytes, importing
from spark_jobs.session.slot_job import LeavingTask, LostTask, SlotJob
from spark_jobs.storage import hadoop_settings
from spark_jobs.trial.context import DataSettings

_MOST_TASKS = 100_000  # maximum tasks of a stage that Spark itself keeps
_REGISTRATION = 5.0  # seconds for executors to register before the first count of slots
_SHUT = {AUTHENTICATION: "true", "spark.ui.killEnabled": "false"}
_MASTER_PAGE = 8080  # default port of a standalone master's page
_MOST_ENDED = 100  # Spark's default of ended executors that it keeps
_LISTENERS = 1_000  # milliseconds for Spark to record how the tasks of a job ended


def make_session() -> Any:
    """Return the session that spark-submit, Spark's files or SPARK_REMOTE configure.

    In local mode, where Spark itself creates the secret, authentication is on unless they set it.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    builder = SparkSession.builder
    # pyspark counts as remote only once it has a session.
    if not (is_remote() or "SPARK_REMOTE" in os.environ):
        SparkContext._ensure_initialized()  # the JVM has read the configuration
        asked = SparkConf()
        if is_local(asked.get("spark.master", "local") or ""):
            for name, value in _SHUT.items():
                builder = builder.config(name, asked.get(name, value) or value)
    return builder.getOrCreate()


class ClassicSession(Session):
    """A SparkSession in the driver's own process.

    Raises:
        InvalidArgument: Not a SparkSession, or a stopped one.
    """

    tells_lost_tasks = True

    def __init__(self, spark: Any) -> None:
        from pyspark.sql import SparkSession

        if not isinstance(spark, SparkSession):
            raise InvalidArgument(
                "spark", "a SparkSession", f"{shown(spark)} of type {type(spark).__name__}"
            )
        self._spark = spark
        self._context = spark.sparkContext
        if self.stopped:
            raise InvalidArgument("spark", "a running SparkSession", "a stopped one")
        self.master = str(self._context.master)

    @property
    def on_this_host(self) -> bool:
        """Whether this is local mode."""
        return on_one_host(self.master)

    @property
    def in_container(self) -> bool:
        """Whether YARN removes the driver's working directory when the application ends."""
        return self.master == "yarn" and self.setting("spark.submit.deployMode") == "cluster"

    @property
    def application_id(self) -> str:
        """The id of the Spark application."""
        return str(self._context.applicationId)

    @property
    def exposure(self) -> Exposure | None:
        """The risks of Spark's ports; None if they are protected."""
        return exposure_of_spark(self.master, self._is_on, start_of())

    @property
    def _kept(self) -> dict[str, Any]:
        return vars(self._context)

    @property
    def stopped(self) -> bool:
        """Whether the session has ended: stopped, or its JVM gone."""
        process = getattr(self._context._gateway, "proc", None)
        gone = process is not None and process.poll() is not None
        java_context = self._context._jsc
        if gone or java_context is None:
            return True
        try:  # Spark's flag is set at once, pyspark's only at the end: jobs fail in between
            return bool(java_context.sc().isStopped())
        except Exception:  # the JVM of another process, which does not answer
            return True

    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None if it is not set.

        `spark.experiment.*` and `spark.sql.*` are read from the session, where they may change; all
        others from the context, as Spark does. The session may show other values for these:
        `getOrCreate` stores options for an existing session there, without effect.
        """
        of_session = name.startswith(("spark.experiment.", "spark.sql."))
        conf = self._spark.conf if of_session else self._context._conf
        value = conf.get(name, None)
        return None if value is None else str(value)

    @property
    def driver_host(self) -> str:
        """The name by which executors reach the driver."""
        return "127.0.0.1" if self.on_this_host else (self.setting("spark.driver.host") or "")

    @property
    def bind_host(self) -> str:
        """The driver's address to listen on. In a container `driver_host` may be another one's."""
        chosen, name = self.setting("spark.driver.bindAddress"), self.driver_host
        everywhere = chosen in ("0.0.0.0", "::", "[::]")  # noqa: S104  # not listened on
        if chosen and not everywhere and not self.on_this_host:
            return chosen
        if any(named(name.strip("[]"))):
            return name
        return own_address(f"{name}:9", socket.gethostname(), one_host=False).host

    def check_settings(self) -> None:
        """Refuse settings with which Spark ends slots, or a search may fail to end its job.

        Raises:
            InvalidArgument: Spark kills idle Python workers, or threads share those of the JVM.
        """
        super().check_settings()
        pinned = os.environ.get("PYSPARK_PIN_THREAD", "true")
        if pinned.lower() != "true":
            raise InvalidArgument(
                "PYSPARK_PIN_THREAD",
                "true, or an environment without it",
                shown(pinned),
                "unset it before Spark starts: jobs of different threads may get each other's tags",
            )

    def hide_console_progress(self) -> None:
        """Stop Spark's progress bar, for good: Spark offers no way to start it again."""
        bar = self._context._jsc.sc().progressBar()
        if bar.isDefined():
            bar.get().stop()

    def _processors(self) -> int:
        return int(self._jvm.java.lang.Runtime.getRuntime().availableProcessors())

    def task_slots(self, tick: Callable[[], None] | None = None) -> int:
        """Return how many tasks the cluster can run at once."""
        configured = self._configured.slots(self.task_needs)
        if configured == 0 and tick is not None:
            # On a standalone cluster executors register after the session has started.
            self._wait_for_executors(tick)
        return max(1, self._slots_now(), configured)

    def _wait_for_executors(self, tick: Callable[[], None]) -> None:
        """Wait until executors have registered, and no more have for a second."""
        give_up = time.monotonic() + _REGISTRATION
        before = -1
        while (now := self._slots_now()) == 0 or now != before:
            if time.monotonic() > give_up:
                return
            before = now
            tick()
            time.sleep(1)

    def _slots_now(self) -> int:
        """Return how many tasks fit on the present executors, GPUs considered."""
        if is_local(self.master):
            return 0  # the master's name has the number
        return tasks_at_once(self._context, self._profile())

    def _profile(self) -> Any:
        """Return the resource profile of slots; None for the application's default."""
        needs = self.task_needs
        if needs == TaskNeeds.of(self.setting):
            return None
        dynamic = self._is_on("spark.dynamicAllocation.enabled")
        return profile_of(self._context, needs, dynamic=dynamic)

    def cluster(self) -> Cluster:
        """Return the present executors."""
        return Cluster(executors_of(self._context), self._context.uiWebUrl)

    def failing_hosts(self) -> Sequence[FailingHost]:
        """Return the hosts on which executors cannot start, of a standalone cluster only.

        Other clusters have no pages that show them. None is returned once so many executors have
        ended that Spark has forgotten which of them had started.
        """
        if not self.master.startswith("spark://"):
            return ()
        most_ended = int(self.setting("spark.ui.retainedDeadExecutors") or _MOST_ENDED)
        started = started_of(self._context, most_ended)
        if started is None:
            return ()
        host = self.master.removeprefix("spark://").partition(",")[0].rpartition(":")[0]
        page = f"http://{host}:{self.setting('spark.master.ui.port') or _MASTER_PAGE}"
        serving = {executor.host for executor in executors_of(self._context)}
        logs = logs_of(self._context)
        found = failing_hosts(
            self.application_id, logs=logs, master=page, serving=serving, started=started
        )
        return tuple(found)

    @contextlib.contextmanager
    def shared(self, data: bytes) -> Iterator[SharedBytes]:
        """Lend bytes to executors during the block, as a broadcast."""
        broadcast = self._context.broadcast(data)
        try:
            yield broadcast
        finally:
            with contextlib.suppress(Exception):  # a stopped session has removed them
                broadcast.destroy()

    def job(
        self,
        slot: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        tag: str,
        schema: str = SLOTS,
    ) -> SlotJob:
        """Return a job of slots."""

        def run() -> Any:
            self._context.addJobTag(tag)  # per thread, so set in the job's own
            self._context.setJobDescription(f"experiment: {count} slots")
            self._use_driver_python()
            profile = self._profile()
            with unlogged():  # the slot's closure may hold secrets
                if schema == SLOTS:
                    result = self._count_of(slot, count, profile)
                else:
                    frame = self._spark.range(0, count, 1, count)
                    with without_accumulators(self._context):
                        result = frame.mapInArrow(slot, schema, profile=profile).toArrow
            try:
                return result()
            except Exception:
                # Another thread records how tasks ended, and may be behind.
                with contextlib.suppress(Exception):  # a stopped session
                    self._context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS)
                raise

        return SlotJob(
            run,
            lambda: self._context.cancelJobsWithTag(tag),
            lambda: self._lost_tasks(tag),
            lambda: self._leaving_tasks(tag),
            lambda: self._running_tasks(tag),
        )

    def _count_of(
        self, slot: Callable[[Iterable[Any]], Iterator[Any]], count: int, profile: Any
    ) -> Callable[[], int]:
        """Return a function that runs slots as the job of an RDD, and counts what they yield.

        The first query of a session loads Spark SQL in the JVM and pyarrow in each worker: several
        seconds of a processor. The JVM counts the items, so no pickle comes back to this process.
        """
        slots: Any = self._context.parallelize((), count).mapPartitions(slot)
        slots.ctx = WithoutAccumulators(self._context)
        if profile is not None:
            slots = slots.withResources(profile)
        rows = slots._jrdd  # it pickles the closure

        return lambda: int(rows.count())

    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Run a function on each partition of a DataFrame."""
        self._use_driver_python()
        with without_accumulators(self._context):
            rows = frame.mapInArrow(importing(function, self.search_path()), schema)
        return rows.toArrow()

    @property
    def has_run_jobs(self) -> bool:
        """Whether its application has run jobs."""
        return not self._context._jsc.sc().statusStore().jobsList(None).isEmpty()

    def _lost_tasks(self, tag: str) -> list[LostTask]:
        return [
            LostTask(
                partition=task.index(),
                attempt=task.attempt(),
                host=str(task.host()),
                failed=str(task.status()) == "FAILED",
            )
            for task in self._tasks(tag, "FAILED", "KILLED")
        ]

    def _leaving_tasks(self, tag: str) -> list[LeavingTask]:
        scheduler = self._context._jsc.sc().taskScheduler()
        if scheduler.executorsPendingDecommission().isEmpty():  # the usual case
            return []
        executors: dict[str, list[LeavingTask]] = {}
        for task in self._tasks(tag, "RUNNING"):
            found = LeavingTask(task.index(), task.attempt())
            executors.setdefault(task.executorId(), []).append(found)
        return [
            task
            for executor, tasks in executors.items()
            if scheduler.getExecutorDecommissionState(executor).isDefined()
            for task in tasks
        ]

    def _tasks(self, tag: str, *statuses: str) -> Iterator[Any]:
        """Yield Spark's data on the tasks of a job with one of these statuses."""
        jvm_context, api = self._context._jsc.sc(), self._jvm.org.apache.spark.status.api.v1
        tracker, store = jvm_context.statusTracker(), jvm_context.statusStore()
        states = self._jvm.java.util.ArrayList()
        for status in statuses:
            states.add(api.TaskStatus.valueOf(status))
        for job in tracker.getJobIdsForTag(tag):
            for stage in tracker.getJobInfo(job).get().stageIds():
                attempt = tracker.getStageInfo(stage).get().currentAttemptId()
                tasks = store.taskList(stage, attempt, 0, _MOST_TASKS, api.TaskSorting.ID, states)
                for number in range(tasks.size()):
                    yield tasks.apply(number)

    def _running_tasks(self, tag: str) -> int:
        tracker = self._context._jsc.sc().statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForTag(tag)
            for stage in tracker.getJobInfo(job).get().stageIds()
        ]
        return sum(stage.get().numActiveTasks() for stage in stages if stage.isDefined())

    def _use_driver_python(self) -> None:
        """Let executors on this host use this interpreter, unless the user chose one.

        Otherwise they use `python3` from PATH, which lacks the packages of a virtual environment.
        The setting stays: restoring it would race with another search of this driver.
        """
        chosen = "PYSPARK_PYTHON" in os.environ or self.setting("spark.pyspark.python")
        if self.on_this_host and not chosen:
            self._context.pythonExec = sys.executable

    def data_settings(self) -> DataSettings:
        """Return the data settings of trials."""
        # Until something in the JVM uses HDFS, it has not read hdfs-site.xml of HADOOP_CONF_DIR.
        self._jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()
        conf: Any = self._context._jsc.hadoopConfiguration()
        values = {name: conf.get(name) for name in hadoop_settings.EXACT}
        # As JSON: a call into the JVM for each entry would take far longer. Spark needs Jackson.
        mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
        for prefix in hadoop_settings.PREFIXES:
            found = json.loads(mapper.writeValueAsString(conf.getPropsWithPrefix(prefix)))
            values |= {prefix + name: value for name, value in found.items()}
        # Trimmed as by Hadoop: in a formatted file a value may have a line of its own.
        known = {name: str(value).strip() for name, value in values.items() if value is not None}
        settings = hadoop_settings.HadoopSettings(known, self._hadoop_user)
        more = self.setting("spark.kerberos.access.hadoopFileSystems") or ""
        kept = vars(self._context).setdefault("_experiment_tokens", KnownTokens())
        tokens = self._tokens().get(settings.authorities(more), kept)
        settings = msgspec.structs.replace(settings, tokens=tokens)
        return DataSettings(settings, self._cache_settings())

    def renewed_tokens(self, data: DataSettings) -> AbstractContextManager[None]:
        """Renew delegation tokens during the block."""
        return self._tokens().renewed(data.hadoop.tokens)

    def _tokens(self) -> DelegationTokens:
        return DelegationTokens(
            self._context._gateway,
            self._context._jsc.hadoopConfiguration(),
            self.setting("spark.kerberos.principal") or "",
            self.setting("spark.kerberos.keytab") or "",
        )

    @property
    def _file_system(self) -> str:
        return str(self._context._jsc.hadoopConfiguration().get("fs.defaultFS") or "")

    @property
    def _hadoop_user(self) -> str:
        identities = self._jvm.org.apache.hadoop.security.UserGroupInformation
        return str(identities.getCurrentUser().getShortUserName())

    @property
    def _jvm(self) -> Any:
        """Java's packages."""
        return self._context._jvm

    def _bytes_setting(self, name: str) -> int:
        value = self.setting(name) or "0"
        try:
            sizes = self._jvm.org.apache.spark.network.util.JavaUtils
            return int(sizes.byteStringAsBytes(value))
        except Exception:
            raise InvalidArgument(name, "a size such as 20g", shown(value)) from None
