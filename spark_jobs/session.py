"""The user's SparkSession: the only module that touches SparkContext or the JVM."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from search.errors import InvalidArgument, shown
from spark_jobs import hadoop
from spark_jobs.context import DataSettings
from spark_jobs.host_cache import CacheSettings
from spark_jobs.slot_job import LostTask, SlotJob
from spark_jobs.tokens import DelegationTokens, KnownTokens, unlogged

_LOCAL = re.compile(r"local\[(\d+|\*)(?:\s*,\s*\d+)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")
# Each encrypts what Spark's processes send each other; the first one is advised.
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
_MOST_TASKS = 100_000  # of a stage, which is how many Spark itself remembers
_REGISTRATION = 30.0  # seconds that executors have to register before slots are counted


class SharedBytes(Protocol):
    """Bytes that the driver lends to its executors; part of a closure, it is only a number."""

    @property
    def value(self) -> bytes:
        """The bytes."""


class ClassicSession:
    """A SparkSession in the driver's own process.

    Raises:
        InvalidArgument: Not a SparkSession, a stopped one, or one of Spark Connect.
    """

    def __init__(self, spark: Any) -> None:
        from pyspark.sql import SparkSession

        if _is_connect(spark):
            raise InvalidArgument(
                "spark", "a SparkSession in this process", "a Spark Connect session"
            )
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
        """Do all executors run on the driver's host, as its children?"""
        return self.master.startswith("local")

    @property
    def application_id(self) -> str:
        """Spark's name of the application."""
        return str(self._context.applicationId)

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

    def tell_risk(self, warn: Callable[[str], None]) -> None:
        """Warn, once in a session, where Spark's processes talk in the open."""
        told = vars(self._context).setdefault("_experiment_risk_told", [])
        if not told and (risk := self._risk()):
            told.append(risk)
            warn(risk)

    def _risk(self) -> str | None:
        if self.on_this_host:
            return None
        authenticated = self._is_on("spark.authenticate")
        off = [] if authenticated else ["spark.authenticate"]
        if not any(self._is_on(name) for name in _ENCRYPTION):
            off.append(_ENCRYPTION[0])
        if not off:
            return None
        pose = "" if authenticated else ", or pose as one of Spark's processes"
        return (
            "whoever reaches the network of this cluster can read the train function and the token "
            f"of a search{pose}: set {' and '.join(off)} to true"
        )

    @property
    def stopped(self) -> bool:
        """Is the session of no use any more: stopped, or its JVM gone?"""
        process = getattr(self._context._gateway, "proc", None)
        gone = process is not None and process.poll() is not None
        return gone or self._context._jsc is None

    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None where it is not set."""
        value = self._spark.conf.get(name, None)
        return None if value is None else str(value)

    def _is_on(self, name: str) -> bool:
        return (self.setting(name) or "false").lower() == "true"

    @property
    def driver_host(self) -> str:
        """The name by which executors reach the driver."""
        return "127.0.0.1" if self.on_this_host else (self.setting("spark.driver.host") or "")

    @property
    def bind_host(self) -> str:
        """The driver's address to listen on."""
        chosen = self.setting("spark.driver.bindAddress")
        everywhere = chosen in ("0.0.0.0", "::", "[::]")  # noqa: S104  # what is not listened on
        if self.on_this_host or not chosen or everywhere:
            return self.driver_host
        return chosen

    @property
    def assigns_gpus(self) -> bool:
        """Does Spark hand out GPUs to the tasks of this application?"""
        return float(self.setting("spark.task.resource.gpu.amount") or 0) > 0

    def hide_console_progress(self) -> None:
        """Stop the bar that Spark draws on the terminal; it has only slots to show.

        It stays away: Spark offers no way to start it again.
        """
        bar = self._context._jsc.sc().progressBar()
        if bar.isDefined():
            bar.get().stop()

    @property
    def task_needs(self) -> str:
        """What a task asks of an executor: "1 core and 1 GPU"."""
        cpus = int(self.setting("spark.task.cpus") or 1)
        needs = f"{cpus} core" if cpus == 1 else f"{cpus} cores"
        if self.assigns_gpus:
            amount = float(self.setting("spark.task.resource.gpu.amount") or 0)
            needs += f" and {amount:g} GPU" if amount <= 1 else f" and {amount:g} GPUs"
        return needs

    def task_slots(self, tick: Callable[[], None] = lambda: None) -> int:
        """Return how many tasks the cluster can run at once, dynamic allocation at its most.

        Args:
            tick: Called each second in which executors are waited for.
        """
        configured = self._slots_configured()
        if configured == 0:  # a standalone cluster: its executors register after the session
            self._wait_for_executors(tick)
        return max(1, self._slots_now(), configured)

    def _wait_for_executors(self, tick: Callable[[], None]) -> None:
        """Wait until executors are there and no more have come for a second."""
        give_up = time.monotonic() + _REGISTRATION
        before = -1
        while (now := self._slots_now()) == 0 or now != before:
            if time.monotonic() > give_up:
                return
            before = now
            tick()
            time.sleep(1)

    def _slots_now(self) -> int:
        """Return how many tasks fit on the executors that are there, GPUs considered."""
        if _LOCAL.fullmatch(self.master) or self.master == "local":
            return 0  # all is known from the name
        jvm_context = self._context._jsc.sc()
        profile = jvm_context.resourceProfileManager().defaultResourceProfile()
        return int(jvm_context.maxNumConcurrentTasks(profile))

    def _slots_configured(self) -> int:
        cpus = int(self.setting("spark.task.cpus") or 1)
        if self.master == "local":
            return 1
        if match := _LOCAL.fullmatch(self.master):
            cores = (os.cpu_count() or 1) if match[1] == "*" else int(match[1])
            return cores // cpus
        if match := _LOCAL_CLUSTER.match(self.master):
            return int(match[1]) * (int(match[2]) // cpus)
        executor_cores = int(self.setting("spark.executor.cores") or 1)
        if self._is_on("spark.dynamicAllocation.enabled"):
            executors = int(self.setting("spark.dynamicAllocation.maxExecutors") or 2**31 - 1)
        else:
            executors = int(self.setting("spark.executor.instances") or 0)
        return executors * (executor_cores // cpus)

    @contextlib.contextmanager
    def shared(self, data: bytes) -> Iterator[SharedBytes]:
        """Lend bytes to executors while the block lasts: Spark keeps them in files of its own."""
        broadcast = self._context.broadcast(data)
        try:
            yield broadcast
        finally:
            with contextlib.suppress(Exception):  # of a stopped session nothing is left
                broadcast.destroy()

    def job(self, slot: Callable[[Iterable[Any]], Iterator[Any]], count: int, tag: str) -> SlotJob:
        """Return a job of `count` slots; `tag` names it for cancelling, unique among all jobs."""

        def run() -> None:
            self._context.addJobTag(tag)  # belongs to the thread, so set in the one that runs it
            self._context.setJobDescription(f"experiment: {count} slots")
            self._use_driver_python()
            with unlogged():  # the slot's closure holds secrets
                slots = self._mapped(self._spark.range(0, count, 1, count), slot, "trials long")
            slots.toArrow()

        return SlotJob(
            run,
            lambda: self._context.cancelJobsWithTag(tag),
            lambda: self._lost_tasks(tag),
            lambda: self._running_tasks(tag),
        )

    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Run a function on each partition of a DataFrame, in executors.

        Args:
            frame: Of this session.
            function: Takes a partition's Arrow batches and yields batches; it can be pickled.
            schema: Of what it yields, as Spark writes it.

        Returns:
            An Arrow table of all that it yielded.
        """
        data, search_path = pickle.dumps(function), self.search_path()

        def run(batches: Iterable[Any]) -> Iterator[Any]:
            import pickle
            import sys

            sys.path.extend(folder for folder in search_path if folder not in sys.path)
            yield from pickle.loads(data)(batches)

        self._use_driver_python()
        return self._mapped(frame, run, schema).toArrow()

    def _mapped(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Return `frame.mapInArrow`, of which nothing but Arrow comes back to this process.

        With it would come the accumulators of the workers, as pickles that a train function in a
        slot's own process can write and that PySpark loads here.
        """
        context = vars(self._context)
        with context.setdefault("_experiment_accumulators", threading.Lock()):
            accumulator, context["_javaAccumulator"] = context["_javaAccumulator"], None
            try:
                return frame.mapInArrow(function, schema)
            finally:
                context["_javaAccumulator"] = accumulator

    def _lost_tasks(self, tag: str) -> list[LostTask]:
        jvm: Any = self._context._jvm
        jvm_context, api = self._context._jsc.sc(), jvm.org.apache.spark.status.api.v1
        tracker, store = jvm_context.statusTracker(), jvm_context.statusStore()
        states = jvm.java.util.ArrayList()
        states.add(api.TaskStatus.FAILED)
        states.add(api.TaskStatus.KILLED)
        found = []
        for job in tracker.getJobIdsForTag(tag):
            for stage in tracker.getJobInfo(job).get().stageIds():
                attempt = tracker.getStageInfo(stage).get().currentAttemptId()
                tasks = store.taskList(stage, attempt, 0, _MOST_TASKS, api.TaskSorting.ID, states)
                for task in (tasks.apply(number) for number in range(tasks.size())):
                    failed = str(task.status()) == "FAILED"
                    found.append(LostTask(task.index(), task.attempt(), str(task.host()), failed))
        return found

    def _running_tasks(self, tag: str) -> int:
        tracker = self._context._jsc.sc().statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForTag(tag)
            for stage in tracker.getJobInfo(job).get().stageIds()
        ]
        return sum(stage.get().numActiveTasks() for stage in stages if stage.isDefined())

    def _use_driver_python(self) -> None:
        """Let executors on this host use this interpreter, where the user chose none.

        Otherwise they take `python3` from PATH, which lacks the packages of a virtual environment.
        The session stays so: putting it back would race with another search of this driver.
        """
        chosen = "PYSPARK_PYTHON" in os.environ or self.setting("spark.pyspark.python")
        if self.on_this_host and not chosen:
            self._context.pythonExec = sys.executable

    def data_settings(self) -> DataSettings:
        """Return how trials get at their data, out of Spark's and Hadoop's settings."""
        conf = self._context._jsc.hadoopConfiguration()
        values = {name: conf.get(name) for name in hadoop.EXACT}
        for prefix in hadoop.PREFIXES:
            found = conf.getPropsWithPrefix(prefix)
            values |= {prefix + name: found[name] for name in found}
        known = {name: str(value) for name, value in values.items() if value is not None}
        settings = hadoop.HadoopSettings(known, self._hadoop_user)
        cache = CacheSettings(
            self.setting("spark.experiment.cache.folder") or "",
            self._bytes_setting("spark.experiment.cache.limit"),
        )
        more = self.setting("spark.kerberos.access.hadoopFileSystems") or ""
        kept = vars(self._context).setdefault("_experiment_tokens", KnownTokens())
        tokens = self._tokens().get(settings.authorities(more), kept)
        return DataSettings(msgspec.structs.replace(settings, tokens=tokens), cache)

    def renewed_tokens(self, data: DataSettings) -> AbstractContextManager[None]:
        """Renew the delegation tokens of a search as long as the block lasts."""
        return self._tokens().renewed(data.hadoop.tokens)

    def _tokens(self) -> DelegationTokens:
        return DelegationTokens(
            self._context._gateway,
            self._context._jsc.hadoopConfiguration(),
            self.setting("spark.kerberos.principal") or "",
            self.setting("spark.kerberos.keytab") or "",
        )

    @property
    def _hadoop_user(self) -> str:
        identities = self._java.hadoop.security.UserGroupInformation
        return str(identities.getCurrentUser().getShortUserName())

    @property
    def _java(self) -> Any:
        """Java's packages org.apache.*."""
        jvm: Any = self._context._jvm
        return jvm.org.apache

    def default_logdir(self) -> str:
        """Return the folder of runs of a user who names none."""
        chosen = self.setting("spark.experiment.logdir")
        if chosen is not None:
            return chosen
        default = str(self._context._jsc.hadoopConfiguration().get("fs.defaultFS") or "")
        if default.startswith("hdfs://"):
            return f"{default.rstrip('/')}/user/{self._hadoop_user}/experiments"
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

    def _bytes_setting(self, name: str) -> int:
        value = self.setting(name) or "0"
        try:
            sizes = self._java.spark.network.util.JavaUtils
            return int(sizes.byteStringAsBytes(value))
        except Exception:
            raise InvalidArgument(name, "a size such as 20g", shown(value)) from None

    def search_path(self) -> list[str]:
        """Return the folders from which executors may import what the driver imports."""
        return [os.path.abspath(path) for path in sys.path] if self.on_this_host else []


def data_settings_of(spark: Any) -> DataSettings:
    """Return how to get at data in a session, of Spark Connect too.

    There the JVM and its Hadoop configuration are out of reach: the settings that begin with
    `spark.hadoop.` count, and who asks is this process's own user.
    """
    if not _is_connect(spark):
        return ClassicSession(spark).data_settings()
    prefix = "spark.hadoop."
    conf = {name: str(value) for name, value in spark.conf.getAll.items()}
    given = {n.removeprefix(prefix): value for n, value in conf.items() if n.startswith(prefix)}
    return DataSettings(hadoop.HadoopSettings.of_client(given))


def _is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def active_data_settings() -> DataSettings:
    """Return the settings of this process's session; where there is none, those of Hadoop's files.

    Raises:
        InvalidArgument: A file of HADOOP_CONF_DIR cannot be read.
    """
    session = _session_of_this_process()
    if session is not None:
        return data_settings_of(session)
    folder = os.environ.get("HADOOP_CONF_DIR") or None
    return DataSettings(hadoop.HadoopSettings.of_files(folder))


def _session_of_this_process() -> Any:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()  # not getActiveSession: of a new thread there is none
    except PySparkRuntimeError:
        return None
    stopped = not _is_connect(session) and session.sparkContext._jsc is None
    return None if stopped else session
