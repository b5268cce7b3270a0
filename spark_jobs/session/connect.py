"""A session of Spark Connect: the driver of Spark is a server, and this process its client.

There is no SparkContext and no JVM here. Private parts of pyspark's client are used in this module
only.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, Self

import grpc
import msgspec
from pyspark.sql.connect.client import DefaultChannelBuilder

from search.errors import InvalidArgument, shown
from spark_jobs import time_limits
from spark_jobs.addresses import is_loopback, named, on_route, split_address
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.exposure import (
    Exposure,
    command_with,
    exposure_of_connect,
    exposure_of_spark,
)
from spark_jobs.cluster.spark_version import check_spark_version
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus, on_one_host
from spark_jobs.session import spark_settings
from spark_jobs.session.session import SLOTS, Session, SharedBytes, importing
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.storage import hadoop_settings
from spark_jobs.trial.context import DataSettings

_FIRST_ANSWER = 60.0  # seconds for the first answer of a server that has just started
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_NOBODY = f"experiment-{secrets.token_hex(8)}"  # a tag of no operation, not of the user's either
_ENDED = "INVALID_HANDLE.SESSION_"  # the server's error class for a lost session
# Failed checks in a row, for other reasons, after which the server counts as gone.
_REFUSALS = round(time_limits.SERVER_REFUSAL / time_limits.SERVER_LOOK)
_HADOOP = "spark.hadoop."
_SIZE = re.compile(r"(\d+)\s*(?:([kmgtp]?)b?)", re.IGNORECASE)
_UNITS = {unit: 1 << (10 * power) for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_SPLITS = re.compile(r"\bsplits=\D*(\d+)")


class ConnectSession(Session):
    """A SparkSession made by `SparkSession.builder.remote(...)`.

    Settings are read once, when this object is created.

    Raises:
        InvalidArgument: A stopped session, or the server does not answer or is too old.
    """

    tells_lost_tasks = False
    """False: a client cannot use the server's status tracker."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._client = spark.client
        self._patience = _FIRST_ANSWER
        self._seen = time.monotonic()
        self._gone = False
        self._refusals = 0
        if spark.is_stopped:
            raise InvalidArgument("spark", "a running SparkSession", "a stopped one")
        try:
            self._interrupt(_NOBODY)  # pyspark would wait for an absent server
        except ConnectionError as error:
            raise InvalidArgument(
                "spark", "a Spark Connect server that answers", str(error)
            ) from None
        except grpc.RpcError as error:
            whose = "that its server has ended" if _says_ended(error) else "whose server refuses"
            got = f"one {whose}: {shown(error.details())}"
            raise InvalidArgument("spark", "a running SparkSession", got) from None
        whose, hint = "a Spark Connect server of Spark", "connect to a newer server"
        check_spark_version(str(spark.version), whose, hint)
        self._settings = {name: str(value) for name, value in spark.conf.getAll.items()}
        self.master = self.setting("spark.master") or ""

    @property
    def _server(self) -> tuple[str, int]:
        """The server's host and port."""
        builder = self._client._builder
        return split_address(getattr(builder, "endpoint", f"{builder.host}:443"))

    def _ask(self, call: str, request: Any) -> Any:
        """Call the server once, without pyspark's retries: a search runs meanwhile.

        Raises:
            ConnectionError: The server does not answer.
            grpc.RpcError: The server refuses the call.
        """
        method, metadata = getattr(self._client._stub, call), self._client._builder.metadata()
        try:
            return method(request, metadata=metadata, timeout=self._patience)
        except grpc.RpcError as error:
            if error.code() in _SILENT:
                raise ConnectionError(shown(error.details())) from None
            raise

    def _interrupt(self, tag: str) -> None:
        self._ask("Interrupt", self._client._interrupt_request("tag", tag))

    def asking(self, gpus_per_trial: int | None, trials_per_gpu: int) -> Self:
        """Return this session for slots that ask for these GPUs, if all its tasks get them.

        Raises:
            InvalidArgument: Its tasks do not get them.
        """
        asking, usual = super().asking(gpus_per_trial, trials_per_gpu), TaskNeeds.of(self.setting)
        if asking.task_needs == usual:
            return asking
        name, got = "gpus_per_trial", gpus_per_trial
        if trials_per_gpu != 1:
            name, got = "trials_per_gpu", trials_per_gpu
        expected = f"left out in Spark Connect, where each task has {usual}"
        hint = "set spark.task.resource.gpu.amount where the server is started"
        raise InvalidArgument(name, expected, shown(got), hint)

    @property
    def on_this_host(self) -> bool:
        """Whether the server runs on this host.

        A server behind a tunnel, which also has a loopback address, counts as one of this host
        unless `spark.experiment.driver.host` is set.
        """
        here = is_loopback(self._own_address) and self.driver_host == self._own_address
        return here and on_one_host(self.master)

    @property
    def application_id(self) -> str:
        """The id of the Spark application, which is the server."""
        return self.setting("spark.app.id") or ""

    def check_settings(self) -> None:
        """Refuse settings with which Spark ends slots, or hides that one was lost.

        Raises:
            InvalidArgument: Spark kills idle Python workers, or runs tasks twice.
        """
        super().check_settings()
        if self._is_on("spark.speculation"):
            raise InvalidArgument(
                "spark.speculation",
                "false",
                "true",
                "a client of Spark Connect cannot distinguish the copy of a slot from the "
                "successor of a lost one; it is a setting of the server",
            )

    @property
    def exposure(self) -> Exposure | None:
        """The risks of the server's ports; None if they are protected."""
        builder, here = self._client._builder, is_loopback(self._own_address)
        usual = isinstance(builder, DefaultChannelBuilder)  # others authenticate their own way
        return exposure_of_connect(
            str(self._server[1]) if here else "",
            exposure_of_spark(self.master, self._is_on, command_with),
            token=not usual or builder.token is not None,
            encrypted=not usual or here or builder.secure,
        )

    @property
    def _kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = vars(self._spark)
        return kept

    @property
    def stopped(self) -> bool:
        """Whether the session has ended: closed here or on the server, or the server gone."""
        if not self._gone and time.monotonic() > self._seen + time_limits.SERVER_LOOK:
            self._gone = self._has_ended()
            self._seen = time.monotonic()
        return self._gone or bool(self._spark.is_stopped)

    def _has_ended(self) -> bool:
        try:
            self._interrupt(_NOBODY)
        except ConnectionError:  # pyspark's client waits for a network that fails
            return _refuses(*self._server)
        except Exception as error:
            self._refusals += 1
            return _says_ended(error) or self._refusals >= _REFUSALS
        self._refusals = 0
        return False

    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None if it is not set."""
        return self._settings.get(name)

    @property
    def driver_host(self) -> str:
        """The name by which executors reach this process."""
        return self.setting(spark_settings.DRIVER_HOST.name) or self._own_address

    @property
    def bind_host(self) -> str:
        """This host's address to listen on: `driver_host`'s, else `_own_address`."""
        ours = any(named(self.driver_host.strip("[]")))
        return self.driver_host if ours else self._own_address

    @property
    def _own_address(self) -> str:
        """This host's address in the network of the server."""
        own = next(on_route(*self._server), None)  # None: a name that only a proxy knows
        return "127.0.0.1" if own is None or is_loopback(own.host) else own.host

    def hide_console_progress(self) -> None:
        """Do nothing: pyspark's client draws no progress bar for slot jobs."""

    def task_slots(self, tick: Callable[[], None] | None = None) -> int:
        """Return how many tasks the cluster can run at once, without waiting for executors."""
        return max(1, self._slots_now(), self._configured.slots(self.task_needs))

    def _slots_now(self) -> int:
        """Return how many tasks fit on the present executors.

        With GPUs, and without settings for the number and size of executors, it is one executor's:
        slots beyond the GPUs would wait for ever.
        """
        needs, gpus, cores = self.task_needs, executor_gpus(self.setting), self._cores()
        each = self._executor_cores()
        # Before an executor has registered Spark may tell fewer cores than one has.
        if each is None or (cores < each and not needs.gpus):
            return needs.fit(cores, gpus * (self._configured.most or 1))
        return cores // each * needs.fit(each, gpus)

    def cluster(self) -> Cluster:
        """Return unknown executors: a client cannot know the present ones."""
        return Cluster()

    def failing_hosts(self) -> Sequence[FailingHost]:
        """Return nothing: a client cannot know them."""
        return ()

    def _processors(self) -> int:
        """Return the number of processors that Spark counts here; 0 if it runs elsewhere."""
        return self._cores() if self.on_this_host else 0

    def _cores(self) -> int:
        """Return the executors' present cores: Spark plans as many partitions of a range.

        If `spark.default.parallelism` is set, it is that number.
        """
        from pyspark.sql.connect.proto import AnalyzePlanRequest

        request = self._client._analyze_plan_request_with_metadata()
        request.explain.plan.CopyFrom(self._plan(self._spark.range(1 << 20)))
        request.explain.explain_mode = AnalyzePlanRequest.Explain.EXPLAIN_MODE_SIMPLE
        found = _SPLITS.search(self._ask("AnalyzePlan", request).explain.explain_string)
        self._patience = time_limits.SERVER_ANSWER
        return int(found[1]) if found else 1

    def _plan(self, frame: Any) -> Any:
        return frame._plan.to_proto(self._client)

    @contextlib.contextmanager
    def shared(self, data: bytes) -> Iterator[SharedBytes]:
        """Lend bytes to executors, as part of the closure.

        Spark Connect has no broadcasts, and needs none: a classic driver writes a closure of more
        than 1 MiB to a file, but the server passes on one of any size from memory.
        """
        yield SimpleNamespace(value=data)  # a class that every executor has

    def job(
        self,
        slot: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        tag: str,
        schema: str = SLOTS,
    ) -> SlotJob:
        """Return a job of slots."""

        def run() -> Any:
            self._spark.addTag(tag)  # per thread, so set in the job's own
            frame = self._spark.range(0, count, 1, count).mapInArrow(slot, schema)
            if schema != SLOTS:  # these workers run no function of the user
                return frame.toArrow()
            request = self._client._execute_plan_request_with_metadata()
            request.plan.CopyFrom(self._plan(frame))
            # Unlike toArrow() it ignores the results: the workers' accumulators come with them, as
            # pickles that a train function in a slot's own process can forge.
            try:
                self._client._execute(request)
            finally:
                self._release()
            return None

        return SlotJob(run, lambda: self._interrupt(tag), list, list, lambda: 0)

    def _release(self) -> None:
        """Wait until the server has released the finished execution.

        pyspark's client releases it in a thread of its own. If the session is stopped before, the
        server logs the plan with the slots' closure, which may hold the token.
        """
        released = getattr(self._client, "_release_futures", ())
        concurrent.futures.wait(set(released), timeout=time_limits.SERVER_ANSWER)

    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Run a function on each partition of a DataFrame."""
        return frame.mapInArrow(importing(function, self.search_path()), schema).toArrow()

    def data_settings(self) -> DataSettings:
        """Return the data settings of trials.

        Hadoop's settings are those of this host's HADOOP_CONF_DIR, and the session's that begin
        with `spark.hadoop.`; the user is this process's own, without tokens.
        """
        here = hadoop_settings.HadoopSettings.of_files()
        given = hadoop_settings.HadoopSettings.of_client(
            {
                name.removeprefix(_HADOOP): value
                for name, value in self._settings.items()
                if name.startswith(_HADOOP)
            }
        )
        hadoop = msgspec.structs.replace(given, values={**here.values, **given.values})
        return DataSettings(hadoop, self._cache_settings())

    def _bytes_setting(self, name: str) -> int:
        value = self.setting(name) or "0"
        if match := _SIZE.fullmatch(value.strip()):
            return int(match[1]) * _UNITS[match[2].lower()]
        raise InvalidArgument(name, "a size such as 20g", shown(value))

    def renewed_tokens(self, data: DataSettings) -> AbstractContextManager[None]:
        """Do nothing: without a JVM there are no delegation tokens."""
        return contextlib.nullcontext()

    @property
    def _file_system(self) -> str:
        return self.data_settings().hadoop.values.get("fs.defaultFS", "")

    @property
    def _hadoop_user(self) -> str:
        return self.data_settings().hadoop.user


def _says_ended(error: Exception) -> bool:
    """Return whether an error of the server says that the session has ended."""
    return isinstance(error, grpc.RpcError) and _ENDED in (error.details() or "")


def _refuses(host: str, port: int) -> bool:
    """Return whether the server's host refuses connections to its port."""
    try:
        socket.create_connection((host, port), time_limits.SERVER_ANSWER).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False
