"""Checks of a slot's host, and of its connections to driver, storage and data.

`examination.py` runs them in a slot. A check returns a fact, or raises why there is none.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

import msgspec
import psutil

from spark_jobs.addresses import split_address
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.data.finding import examine_data
from spark_jobs.doctor.facts import Data, DriverCall, Room, RoundTrip, TensorFlow
from spark_jobs.messages import Hello
from spark_jobs.storage.files import content_of
from spark_jobs.storage.host_cache import HostCache
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.context import DataSettings
from spark_jobs.trial.memory.control_groups import are_killed_together, free_bytes
from spark_jobs.warm.executor import spark_folder
from spark_jobs.zygote.shared_import import zygote_environment

DRIVERS_FILE = "driver"
"""The driver's file in the folder of an examination."""

_CONNECT = 5.0  # maximum seconds of a connection attempt

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


def import_tensorflow(environment: Mapping[str, str | None], limit: float) -> TensorFlow:
    """Import TensorFlow as a trial would, in a process of its own.

    Args:
        environment: The variables of a trial's environment.
        limit: Maximum seconds.

    Raises:
        RuntimeError: The import failed, or took too long.
    """
    output = _run_python(_IMPORT_TENSORFLOW, b"", environment, limit)
    return msgspec.json.decode(output.splitlines()[-1], type=TensorFlow)


def load_function(function: bytes, environment: Mapping[str, str | None], limit: float) -> str:
    """Load the train function as a trial would, in a process of its own; see `import_tensorflow`.

    Raises:
        RuntimeError: It cannot be loaded, or that took too long.
    """
    _run_python(_LOAD_FUNCTION, function, environment, limit)
    return ""


def _run_python(
    program: str, data: bytes, environment: Mapping[str, str | None], limit: float
) -> bytes:
    """Run a program in an interpreter of its own and return its output.

    Raises:
        RuntimeError: The program failed; the message is its last line.
    """
    # As of a zygote: it runs the user's code, for which Spark's secrets are not.
    variables = {**zygote_environment(), "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
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


def call_driver(channel: ChannelClient, address: Address, hello: Hello) -> DriverCall:
    """Open the connection to the driver, and measure a call on it.

    Raises:
        OSError: The driver's port cannot be reached.
        ChannelLost: The driver does not answer, or refuses the message.
    """
    socket.create_connection(split_address(address.target), _CONNECT).close()
    channel.hello(hello)  # opens the connection
    before, start = time.time(), time.monotonic()
    channel.hello(hello)
    return DriverCall(before, time.monotonic() - start)


def round_trip(folder: str, content: str, slot: str, settings: DataSettings) -> RoundTrip:
    """Read the driver's file in a folder; write, rename, read and remove one.

    Args:
        folder: The folder.
        content: The content of `DRIVERS_FILE`.
        slot: The slot's name, for the name of the file.
        settings: The settings of the folder.

    Raises:
        OSError: One of these failed, or the content that was read differs from the written one.
    """
    place, start = Location.parse(folder), time.monotonic()
    name = f"slot-{slot}-{secrets.token_hex(4)}"
    part, whole = place.below(f"{name}.part"), place.below(name)
    written = secrets.token_bytes(4096)
    with contextlib.closing(writable_files_at(place, settings.hadoop)) as files:
        try:
            shared = content_of(files, files.status(place.below(DRIVERS_FILE))) == content.encode()
        except FileNotFoundError:
            shared = False
        if shared:  # on another host nothing must be left
            files.write(part, written)
            files.rename(part, whole)
            same = content_of(files, files.status(whole)) == written
            files.remove(whole)
            if not same:
                raise OSError(f"{whole}: the content read differs from the content written")
    return RoundTrip(time.monotonic() - start, shared)


def look_at_data(path: str, settings: DataSettings) -> Data:
    """List the user's data and read from its first file, as trials do.

    Raises:
        OSError: The data does not exist, or cannot be read.
    """
    start = time.monotonic()
    sizes, read = examine_data(path, settings)
    return Data(
        files=len(sizes),
        bytes=sum(sizes),
        read=read,
        seconds=time.monotonic() - start,
        copied=Location.parse(path).scheme != "file",
    )


def room(settings: DataSettings) -> Room:
    """Return the free memory, of the container if it has less, and the free space on disks."""
    scratch = spark_folder() or tempfile.gettempdir()
    cache = HostCache(settings.cache)
    memory = int(min(psutil.virtual_memory().available, free_bytes()))
    free = shutil.disk_usage(scratch).free
    return Room(
        memory=memory,
        scratch=free,
        cache=cache.room(),
        scratch_folder=scratch,
        cache_folder=str(cache.folder),
        kills_all=are_killed_together(),
    )


def in_a_line(error: BaseException) -> str:
    """Return an error in one line, for people."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    named = isinstance(error, OSError | RuntimeError)
    return (lines[0] if named else f"{type(error).__name__}: {lines[0]}")[:500]
