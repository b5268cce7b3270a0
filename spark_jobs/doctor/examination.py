"""The examination of a slot: all checks at once, in a Spark task of its own.

Nothing is judged here, but in `experiment.diagnosis`: the slot returns a fact per check, or the
reason why there is none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.addresses import OwnAddress, own_address
from spark_jobs.channel.exchange import ChannelLost
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.doctor.checks import (
    call_driver,
    import_tensorflow,
    in_a_line,
    load_function,
    look_at_data,
    room,
    round_trip,
)
from spark_jobs.doctor.facts import Found, Gpus, Met, RoundTrip
from spark_jobs.doctor.meeting import meet
from spark_jobs.doctor.software import software
from spark_jobs.handover import Lent
from spark_jobs.installed import is_installed
from spark_jobs.messages import Hello, SlotId, encode
from spark_jobs.slot.gang.held_ports import HeldPorts, Ports
from spark_jobs.slot.gpus.devices import host_gpus, trial_environment
from spark_jobs.slot.host import executor_argument, host_name
from spark_jobs.slot.problems import PROBLEM, import_problem
from spark_jobs.trial.context import DataSettings
from spark_jobs.zygote.shared_import import kept

SCHEMA = "found string"
"""Spark's schema of the row that a slot yields: a `Found` as JSON."""
_MEET = 15.0  # maximum seconds for slots to connect to each other
_HOLD = 5.0  # seconds that a slot without a connection to the driver waits for the others


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

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        try:
            import pyarrow

            from spark_jobs.doctor.examination import run_examination
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
    assert task is not None, "an examination runs inside a Spark task"
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
            checks["tensorflow"] = lambda: import_tensorflow(environment, limit)
        try:
            access = msgspec.json.decode(lent(), type=Access)
        except OSError as error:
            if examination.folder:
                checks["folder"] = functools.partial(_without_access, error)
        else:
            channel = opened.enter_context(ChannelClient(access.address, slot))
            own = own_address(access.address.target, host, one_host=examination.one_host)
            checks["driver"] = lambda: call_driver(
                channel, access.address, Hello(slot=slot, host=host)
            )
            checks["space"] = lambda: room(access.settings)
            if examination.folder:
                checks["folder"] = functools.partial(
                    round_trip, examination.folder, examination.content, slot, access.settings
                )
            if examination.data:
                checks["data"] = lambda: look_at_data(examination.data, access.settings)
            if examination.has_function and first:
                checks["function"] = lambda: load_function(function(), environment, limit)
        facts, trouble = gather(checks, limit)
        if "driver" in facts:
            meeting = functools.partial(_meet, channel, examination, own)
            met, failed = gather({"workers": meeting}, examination.timeout)
            facts, trouble = facts | met, trouble | failed
        else:
            time.sleep(max(0.0, start + _HOLD - time.monotonic()))
    executor = executor_argument("--executor-id") or "driver"  # in local mode
    return Found(slot=slot, host=host, executor=executor, trouble=trouble, **facts)


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


def _meet(channel: ChannelClient, examination: Examination, own: OwnAddress) -> Met | None:
    """Wait for the other slots, and connect to some of them; None if this slot is not to do so."""
    ports = examination.worker_ports
    holding = None if ports is None else contextlib.closing(HeldPorts(own, ports))
    with holding or contextlib.nullcontext() as held:
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
