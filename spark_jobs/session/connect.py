"""A session of Spark Connect: the driver of Spark is a server, and this process its client.

There is no SparkContext and no JVM here. What pyspark's client keeps to itself and is needed all
the same is used in this module only.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import ipaddress
import os
import re
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
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.exposure import (
    Exposure,
    command_with,
    exposure_of_connect,
    exposure_of_spark,
)
from spark_jobs.cluster.spark_version import check_spark_version
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.cluster.task_needs import TaskNeeds, executor_gpus, slot_needs
from spark_jobs.session.session import SLOTS, Session, SharedBytes, importing
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.storage import hadoop_settings
from spark_jobs.trial.context import DataSettings

_FIRST_ANSWER = 60.0  # of a server that has just started
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_ENDED = "INVALID_HANDLE.SESSION_"  # was closed, was changed or was not found, says the server
# Looks in a row that failed for another reason.
_REFUSALS = round(time_limits.SERVER_REFUSAL / time_limits.SERVER_LOOK)
_HADOOP = "spark.hadoop."
_SIZE = re.compile(r"(\d+)\s*(?:([kmgtp]?)b?)", re.IGNORECASE)
_UNITS = {unit: 1 << (10 * power) for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_SPLITS = re.compile(r"\bsplits=\D*(\d+)")


class ConnectSession(Session):
    """A SparkSession made by `SparkSession.builder.remote(...)`.

    Settings are those of the moment in which this was made.

    Raises:
        InvalidArgument: A stopped session, or the server does not answer or is too old.
    """

    tells_lost_tasks = False
    """The server's status tracker is out of reach."""

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
            self._interrupt("")  # is there what pyspark would wait for?
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
        """Host and port of the server."""
        builder = self._client._builder
        host, _, port = getattr(builder, "endpoint", f"{builder.host}:443").rpartition(":")
        return host.strip("[]"), int(port)

    def _ask(self, call: str, request: Any) -> Any:
        """Ask the server once, without pyspark's patience: a search goes on meanwhile.

        Raises:
            ConnectionError: It does not answer.
            grpc.RpcError: It refuses.
        """
        method, metadata = getattr(self._client._stub, call), self._client._builder.metadata()
        try:
            return method(request, metadata=metadata, timeout=self._patience)
        except grpc.RpcError as error:
            if error.code() in _SILENT:
                raise ConnectionError(shown(error.details())) from None
            raise

    def _interrupt(self, tag: str) -> None:
        self._ask("Interrupt", self._client._interrupt_request("tag", tag or "nobody"))

    def asking(self, gpus_per_trial: int | None, trials_per_gpu: int) -> Self:
        """Return this session for slots that ask for these GPUs, where its tasks get them anyway.

        Raises:
            InvalidArgument: They do not.
        """
        needs = slot_needs(gpus_per_trial, trials_per_gpu, self.setting, self.master)
        usual = TaskNeeds.of(self.setting)
        if needs == usual:
            asking = copy.copy(self)
            asking._asked = None if gpus_per_trial is None and trials_per_gpu == 1 else needs
            return asking
        name, got = "gpus_per_trial", gpus_per_trial
        if trials_per_gpu != 1:
            name, got = "trials_per_gpu", trials_per_gpu
        expected = f"left out in Spark Connect, where each task has {usual}"
        hint = "set spark.task.resource.gpu.amount where the server is started"
        raise InvalidArgument(name, expected, shown(got), hint)

    @property
    def on_this_host(self) -> bool:
        """See `Session`.

        A server behind a tunnel, which has a loopback address too, is taken for one of this host,
        unless `spark.experiment.driver.host` is set.
        """
        here = _is_loopback(self._own_address) and self.driver_host == self._own_address
        return here and self.master.startswith("local")

    @property
    def application_id(self) -> str:
        """Spark's name of the application, which is the server."""
        return self.setting("spark.app.id") or ""

    def check_worker_timeouts(self) -> None:
        """Refuse settings with which Spark ends slots, or nobody can tell lost ones.

        Raises:
            InvalidArgument: Python workers are to be killed when they are idle for a time, or tasks
                are run twice.
        """
        super().check_worker_timeouts()
        if self._is_on("spark.speculation"):
            raise InvalidArgument(
                "spark.speculation",
                "false",
                "true",
                "a client of Spark Connect cannot tell a copy of a slot from one that takes the "
                "place of a lost slot; it is a setting of the server",
            )

    @property
    def exposure(self) -> Exposure | None:
        """What strangers can do through the server's ports; None where they are shut out."""
        builder, here = self._client._builder, _is_loopback(self._own_address)
        usual = isinstance(builder, DefaultChannelBuilder)  # others have ways of their own
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
        """Is the session of no use any more: closed here or there, or its server gone?"""
        if not self._gone and time.monotonic() > self._seen + time_limits.SERVER_LOOK:
            self._gone = self._has_ended()
            self._seen = time.monotonic()
        return self._gone or bool(self._spark.is_stopped)

    def _has_ended(self) -> bool:
        try:
            self._interrupt("")
        except ConnectionError:  # of a mere network pyspark's client waits for the end
            return _refuses(*self._server)
        except Exception as error:
            self._refusals += 1
            return _says_ended(error) or self._refusals >= _REFUSALS
        self._refusals = 0
        return False

    def setting(self, name: str) -> str | None:
        """See `Session`."""
        return self._settings.get(name)

    @property
    def driver_host(self) -> str:
        """The name by which executors reach this process."""
        return self.setting("spark.experiment.driver.host") or self._own_address

    @property
    def bind_host(self) -> str:
        """This host's address to listen on: that of `driver_host`, else the one below."""
        return self.driver_host if _is_ours(self.driver_host) else self._own_address

    @property
    def _own_address(self) -> str:
        """This host's address in the network by which it reaches the server."""
        host, port = self._server
        with contextlib.suppress(OSError):  # a name that only a proxy knows
            for family, kind, _, _, address in socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM
            ):
                with socket.socket(family, kind) as probe:
                    probe.connect(address)  # sends nothing
                    own = str(probe.getsockname()[0])
                return "127.0.0.1" if _is_loopback(own) else own
        return "127.0.0.1"

    def hide_console_progress(self) -> None:
        """Do nothing: slot jobs are run such that pyspark's client draws no bar of them."""

    def task_slots(self, tick: Callable[[], None] | None = None) -> int:
        """See `Session`; `tick` is not called, since nothing is waited for."""
        return max(1, self._slots_now(), self._slots_configured())

    def _slots_now(self) -> int:
        """Return how many tasks fit on the executors that are there.

        Where tasks have GPUs and nothing says how large or how many executors are, it is taken for
        one: slots beyond the GPUs would wait for ever.
        """
        needs, gpus, cores = self.task_needs, executor_gpus(self.setting), self._cores()
        each = self._executor_cores()
        if not needs.gpus or each is None:
            return needs.fit(cores, gpus * (self._most_executors() or 1))
        return cores // each * needs.fit(each, gpus)

    def cluster(self) -> Cluster:
        """Return what settings say of the executors; which are there now, nobody can know."""
        return Cluster(None, self._most_executors())

    def failing_hosts(self) -> Sequence[FailingHost]:
        """See `Session`: nobody can know."""
        return ()

    def _cores(self) -> int:
        """Return how many cores the executors have now: Spark plans as many parts of a range.

        Where `spark.default.parallelism` is set, it is that number.
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
        """Lend bytes to executors: here as part of the closure.

        Spark Connect has no broadcasts, and needs none: a classic driver writes a closure of more
        than 1 MiB to a file, the server passes one of any size on from memory.
        """
        yield SimpleNamespace(value=data)  # of a class that every executor has

    def job(
        self,
        slot: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        tag: str,
        schema: str = SLOTS,
    ) -> SlotJob:
        """See `Session`."""

        def run() -> Any:
            self._spark.addTag(tag)  # belongs to the thread, so set in the one that runs it
            frame = self._spark.range(0, count, 1, count).mapInArrow(slot, schema)
            if schema != SLOTS:  # no function of the user runs in these workers
                return frame.toArrow()
            request = self._client._execute_plan_request_with_metadata()
            request.plan.CopyFrom(self._plan(frame))
            # Unlike toArrow() it looks at nothing that comes back: with it come accumulators of the
            # workers, as pickles that a train function in a slot's own process can write.
            try:
                self._client._execute(request)
            finally:
                self._release()
            return None

        return SlotJob(run, lambda: self._interrupt(tag), list, list, lambda: 0)

    def _release(self) -> None:
        """Wait until the server knows that what it has executed is done with.

        pyspark's client tells it in a thread of its own. A session that is stopped before has the
        server log the plan, in which the slots' closure is, and so may be the token.
        """
        released = getattr(self._client, "_release_futures", ())
        concurrent.futures.wait(set(released), timeout=time_limits.SERVER_ANSWER)

    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """See `Session`."""
        return frame.mapInArrow(importing(function, self.search_path()), schema).toArrow()

    def data_settings(self) -> DataSettings:
        """See `Session`.

        Hadoop's settings are those of this host's HADOOP_CONF_DIR, and of the session those that
        begin with `spark.hadoop.`; who asks is this process's own user, without tokens.
        """
        here = hadoop_settings.HadoopSettings.of_files(os.environ.get("HADOOP_CONF_DIR") or None)
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
        """Do nothing as long as the block lasts: no JVM, no delegation tokens."""
        return contextlib.nullcontext()

    @property
    def _file_system(self) -> str:
        return self.data_settings().hadoop.values.get("fs.defaultFS", "")

    @property
    def _hadoop_user(self) -> str:
        return self.data_settings().hadoop.user


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def _is_ours(host: str) -> bool:
    """Has this host such an address?"""
    with contextlib.suppress(OSError):
        family, kind, _, _, (address, *_) = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind((address, 0))
        return True
    return False


def _says_ended(error: Exception) -> bool:
    """Does the server say that the session is no more?"""
    return isinstance(error, grpc.RpcError) and _ENDED in (error.details() or "")


def _refuses(host: str, port: int) -> bool:
    """Is the server's host there, and the server not?"""
    try:
        socket.create_connection((host, port), time_limits.SERVER_ANSWER).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
