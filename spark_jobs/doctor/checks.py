"""Checks of a slot's host, and of its connections to driver, storage and data.

`experiment.doctor` runs them in every slot at once, and judges the results. Nothing is judged here:
a check returns a fact, or the reason why there is none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from spark_jobs.addresses import OwnAddress, own_address
from spark_jobs.channel.exchange import ChannelLost
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.data.reading import examine_data
from spark_jobs.doctor.facts import (
    Data,
    DriverCall,
    Found,
    Gpus,
    Met,
    RoundTrip,
    Space,
    TensorFlow,
)
from spark_jobs.doctor.installed import software
from spark_jobs.doctor.meeting import held_ports, meet
from spark_jobs.handover import Lent
from spark_jobs.installed import is_installed
from spark_jobs.messages import Hello, SlotId, encode
from spark_jobs.slot.devices import host_gpus, trial_environment
from spark_jobs.slot.held_ports import Ports
from spark_jobs.slot.host import host_name
from spark_jobs.slot.problems import PROBLEM, import_problem
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.host_cache import HostCache
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.context import DataSettings
from spark_jobs.zygote.shared_import import kept

SCHEMA = "found string"
"""Spark's schema of the row that a slot yields: a `Found` as JSON."""

DRIVERS_FILE = "driver"
"""The driver's file in the folder of an examination."""

_CONNECT = 5.0  # maximum seconds of a connection attempt
_MEET = 15.0  # maximum seconds for slots to connect to each other
_HOLD = 5.0  # seconds that a slot without a connection to the driver waits for the others

# In processes of their own: an import may crash, hang, and take hundreds of megabytes.
_IMPORT_TENSORFLOW = """
import json, signal, sys, time
signal.alarm(int(sys.argv[1]))
start = time.monotonic()
import tensorflow
seconds = time.monotonic() - start
print(json.dumps({
    "version": tensorflow.__version__,
    "cuda": str(tensorflow.sysconfig.get_build_info().get("cuda_version", "")),
    "gpus": len(tensorflow.config.list_physical_devices("GPU")),
    "seconds": seconds,
}))
"""
_LOAD_FUNCTION = """
import pickle, signal, sys
signal.alarm(int(sys.argv[1]))
pickle.loads(sys.stdin.buffer.read())
"""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The checks that a slot is to run; sent in the closure, as JSON.

    Attributes:
        number: The slot's number, from 1.
        key: A key shared by the slots of this examination only.
        folder: The folder of `DRIVERS_FILE`; '' to skip the check of storage.
        content: The content of that file.
        data: The path of the user's data; '' without any.
        modules: The modules whose versions to return.
        assigns_gpus: Whether Spark assigns GPUs in this application.
        has_function: Whether there is a train function to load.
        worker_ports: The ports on which slots try to reach each other; None to skip that.
        one_host: Whether all slots are on the driver's host.
        timeout: Maximum seconds of the examination; a third of it for the checks, which run at the
            same time.
    """

    number: int
    key: str
    folder: str
    content: str
    data: str
    modules: tuple[str, ...]
    assigns_gpus: bool
    has_function: bool
    timeout: float
    worker_ports: Ports | None = None
    one_host: bool = False


class Access(msgspec.Struct, frozen=True):
    """The access of an examination's slots to driver and storage. Secret; see `Handover`.

    Attributes:
        address: The address of the driver's channel.
        settings: The settings for folder and data.
    """

    address: Address
    settings: DataSettings


def examination_function(
    examination: Examination, access: Lent, function: Lent, search_path: list[str]
) -> Callable[[Iterable[Any]], Any]:
    """Return the function for `mapInArrow`; see `slot_function` for why it is made like this.

    Args:
        examination: The checks to run.
        access: An `Access`, as JSON.
        function: The train function, pickled; empty without one.
        search_path: Folders to import from, in addition to the executor's own.
    """
    data, marker, why = encode(examination), PROBLEM, import_problem()

    def slot(batches: Iterable[Any]) -> Iterator[Any]:
        import platform
        import sys

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        try:
            import pyarrow

            from spark_jobs.doctor.checks import run_examination
        except ModuleNotFoundError as error:
            where = f"Python {platform.python_version()} at {sys.executable}"
            raise RuntimeError(f"{marker}{where}: {why(error)}") from None
        for _ in batches:
            pass
        found = run_examination(data, access, function)
        yield pyarrow.RecordBatch.from_pydict({"found": [found]})

    return slot


def run_examination(data: bytes, access: Lent, function: Lent) -> str:
    """Run an `Examination` in a Spark task; return the `Found`, both as JSON."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        raise RuntimeError("an examination runs inside a Spark task")
    examination = msgspec.json.decode(data, type=Examination)
    gpu = task.resources().get("gpu")
    slot = str(SlotId(examination.number, task.partitionId(), task.attemptNumber()))
    gpus = tuple(gpu.addresses) if gpu else ()
    found = examine(examination, access, function, slot=slot, gpus=gpus, cpus=task.cpus())
    return encode(found).decode()


def examine(
    examination: Examination,
    lent: Lent,
    function: Lent,
    *,
    slot: str,
    gpus: tuple[str, ...],
    cpus: int,
) -> Found:
    """Run all checks at the same time, each independent of the others; wait for the other slots.

    A slot that cannot read its `Access` runs only the checks that do not need it.

    Args:
        examination: The checks to run.
        lent: The `Access`, as JSON.
        function: The train function, pickled.
        slot: The slot's name.
        gpus: Addresses of the GPUs that Spark assigned to it.
        cpus: Cores that Spark assigned to it.
    """
    start, host, limit = time.monotonic(), host_name(), examination.timeout / 3
    environment = trial_environment(gpus, spark_assigns_gpus=examination.assigns_gpus, cpus=cpus)
    with (
        _first(examination.key, host) as first,
        _first(examination.key, f"{host} {gpus}") as first_of_gpus,
        contextlib.ExitStack() as opened,
    ):
        checks: dict[str, Callable[[], Any]] = {
            "software": lambda: software(examination.modules),
            "gpus": lambda: Gpus(gpus, host_gpus()),
            "kept": lambda: tuple(kept()),
        }
        if "tensorflow" in examination.modules and first_of_gpus and is_installed("tensorflow"):
            checks["tensorflow"] = lambda: _tensorflow(environment, limit)
        try:
            access = msgspec.json.decode(lent(), type=Access)
        except OSError as error:
            if examination.folder:
                checks["folder"] = functools.partial(_without_access, error)
        else:
            channel = opened.enter_context(ChannelClient(access.address, slot))
            own = own_address(access.address.target, host, one_host=examination.one_host)
            checks["driver"] = lambda: _call_driver(
                channel, access.address, Hello(slot=slot, host=host)
            )
            checks["space"] = lambda: _space(access.settings)
            if examination.folder:
                checks["folder"] = lambda: round_trip(examination, access.settings)
            if examination.data:
                checks["data"] = lambda: look_at_data(examination.data, access.settings)
            if examination.has_function and first:
                checks["function"] = lambda: _load(function(), environment, limit)
        facts, trouble = gather(checks, limit)
        if "driver" in facts:
            meeting = functools.partial(_meet, channel, examination, own)
            met, failed = gather({"workers": meeting}, examination.timeout)
            facts, trouble = facts | met, trouble | failed
        else:
            time.sleep(max(0.0, start + _HOLD - time.monotonic()))
    return Found(slot=slot, host=host, executor=_executor(), trouble=trouble, **facts)


def gather(
    checks: Mapping[str, Callable[[], Any]], limit: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run checks at the same time; return the facts, and the reasons of failed checks, by name.

    Args:
        checks: Name to check. A check that takes too long continues in its thread, without effect.
        limit: Maximum seconds.
    """
    facts: dict[str, Any] = {}
    trouble: dict[str, str] = {}

    def run(name: str, check: Callable[[], Any]) -> None:
        try:
            facts[name] = check()
        except Exception as error:
            trouble[name] = in_a_line(error)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in checks.items()]
    until = time.monotonic() + limit
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    known, failed = dict(facts), dict(trouble)
    late = (name for name in checks if name not in known and name not in failed)
    return known, failed | dict.fromkeys(late, f"no answer within {limit:g} s")


def in_a_line(error: BaseException) -> str:
    """Return an error in one line, for people."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    named = isinstance(error, OSError | RuntimeError)
    return (lines[0] if named else f"{type(error).__name__}: {lines[0]}")[:500]


def _tensorflow(environment: Mapping[str, str | None], limit: float) -> TensorFlow:
    output = _run_python(_IMPORT_TENSORFLOW, b"", environment, limit)
    return msgspec.json.decode(output.splitlines()[-1], type=TensorFlow)


def _load(function: bytes, environment: Mapping[str, str | None], limit: float) -> str:
    """Load the train function as a trial would."""
    _run_python(_LOAD_FUNCTION, function, environment, limit)
    return ""


def _run_python(
    program: str, data: bytes, environment: Mapping[str, str | None], limit: float
) -> bytes:
    """Run a program in an interpreter of its own and return its output.

    Raises:
        RuntimeError: The program failed; the message is its last line.
    """
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    seconds = max(1, int(limit))
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", program, str(seconds)],
            input=data,
            env={name: value for name, value in variables.items() if value is not None},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {seconds} s") from None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(said[-1][:500] if said else f"ended with status {ended.returncode}")
    return ended.stdout


@contextlib.contextmanager
def _first(key: str, name: str) -> Iterator[bool]:
    """Yield whether this is an examination's first slot on this host to ask for this name."""
    digest = hashlib.sha256(f"{key} {name}".encode()).hexdigest()[:32]
    mark = Path(tempfile.gettempdir(), f"experiment-examination-{digest}")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        yield False
        return
    except OSError:  # no folder for a mark: better twice than never
        yield True
        return
    try:
        yield True
    finally:
        mark.unlink(missing_ok=True)


def _call_driver(channel: ChannelClient, address: Address, hello: Hello) -> DriverCall:
    host, _, port = address.target.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
    channel.hello(hello)  # opens the connection
    before, start = time.time(), time.monotonic()
    channel.hello(hello)
    return DriverCall(before, time.monotonic() - start)


def _meet(channel: ChannelClient, examination: Examination, own: OwnAddress) -> Met | None:
    """Wait for the other slots, and connect to some of them; None if this slot is not to do so."""
    with held_ports(examination.worker_ports, own) as held:
        attempt = None
        with contextlib.suppress(ChannelLost):  # others find out about the driver
            attempt = channel.next(address=None if held is None else held.address)
        if attempt is None or attempt.gang is None or held is None:
            return None
        return meet(attempt.gang, held, min(_MEET, examination.timeout / 6))


def _without_access(error: OSError) -> RoundTrip:
    """Return the result for the driver's folder if the `Access` in it cannot be read."""
    if isinstance(error, FileNotFoundError):
        return RoundTrip(0.0, shared=False)
    raise error


def round_trip(examination: Examination, settings: DataSettings) -> RoundTrip:
    """Read the driver's file in the folder of an examination; write, rename, read and remove one.

    Raises:
        OSError: One of these failed, or the content that was read differs from the written one.
    """
    folder, start = Location.parse(examination.folder), time.monotonic()
    name = f"slot-{examination.number}-{secrets.token_hex(4)}"
    part, whole = folder.below(f"{name}.part"), folder.below(name)
    content = secrets.token_bytes(4096)
    with contextlib.closing(writable_files_at(folder, settings.hadoop)) as files:
        try:
            shared = _content(files, folder.below(DRIVERS_FILE)) == examination.content.encode()
        except FileNotFoundError:
            shared = False
        if shared:  # on another host nothing must be left
            files.write(part, content)
            files.rename(part, whole)
            same = _content(files, whole) == content
            files.remove(whole)
            if not same:
                raise OSError(f"{whole}: the content read differs from the content written")
    return RoundTrip(time.monotonic() - start, shared)


def _content(files: WritableFiles, location: Location) -> bytes:
    content = bytearray()
    files.read(files.status(location), content.extend)
    return bytes(content)


def look_at_data(path: str, settings: DataSettings) -> Data:
    """List the user's data and read from its first file, as trials do.

    Raises:
        OSError: The data does not exist, or cannot be read.
    """
    start = time.monotonic()
    sizes, read = examine_data(path, settings)
    return Data(files=len(sizes), bytes=sum(sizes), read=read, seconds=time.monotonic() - start)


def _space(settings: DataSettings) -> Space:
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    cache = HostCache(settings.cache)
    memory = int(psutil.virtual_memory().available)
    free = shutil.disk_usage(scratch).free
    return Space(
        memory=memory,
        scratch=free,
        cache=cache.room(),
        scratch_folder=scratch,
        cache_folder=str(cache.folder),
    )


def _executor() -> str:
    """Return Spark's id of this process' executor; 'driver' in local mode."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if "--executor-id" in words[:-1]:
                return str(words[words.index("--executor-id") + 1])
    return "driver"
