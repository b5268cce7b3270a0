"""Findings from the facts that slots have sent; pure functions."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiment.diagnosis.diagnosis import DRIVER, Finding, Level
from experiment.results.text import count
from spark_jobs.doctor.facts import Data, Found, Software

_SKEW, _LARGE_SKEW = 1.0, 5.0  # seconds
_LITTLE, _VERY_LITTLE = 5 << 30, 1 << 30  # bytes of a disk
_INSTALL = "install the driver's versions on every executor, or set PYSPARK_PYTHON to a Python "
_ADVICE = {
    "software": "see the log of the executor",
    "tensorflow": "run `python -c 'import tensorflow'` on this host; or install another version",
    "function": "make its modules importable on every executor: spark.submit.pyFiles, --py-files",
    "folder": "set logdir= to a folder that every host can write to, or hdfs://...",
    "data": "check that every host reaches it, and that your user may read it",
    "space": "set spark.experiment.cache.folder to a folder of your own on a larger disk",
    "gpus": "see the log of the executor",
}
_CHECKS = {"folder": "logdir", "function": "train"}  # what findings call a fact
_OPTIONAL = {"pynvml"}  # without it trials run, but their GPUs are not monitored
_ALIKE = {"fsspec", "pynvml"}  # versions by year, or by NVIDIA's driver, are all compatible


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The driver's facts, to compare with those of slots.

    Attributes:
        software: The driver's software.
        heard: Time of each slot's last `Hello`, by the slot's name; seconds since 1970.
        target: "host:port" of the driver's channel.
        data: The user's data as the driver sees it; None if it cannot, or no path was given.
        logdir: The folder for runs.
        assigns_gpus: Whether Spark assigns GPUs in this application.
        executor_gpus: Number of GPUs per executor that Spark knows of.
        gpu_share: Maximum tasks that share a GPU.
        slot_memory: Bytes that a slot needs.
        worker_ports: The ports on which slots tried to reach each other; None if they did not.
    """

    software: Software
    heard: Mapping[str, float]
    target: str
    data: Data | None
    logdir: str
    assigns_gpus: bool
    executor_gpus: int
    gpu_share: int
    slot_memory: float
    worker_ports: tuple[int, int] | None = None


def assess(found: Sequence[Found], expected: Expected) -> Iterator[Finding]:
    """Yield the findings about the slots and their hosts, ordered by host."""
    found = sorted(found, key=lambda slot: slot.host)
    for slot in found:
        yield from _trouble(slot, expected)
        yield from _software(slot, expected.software)
        yield from _tensorflow(slot)
        if slot.function is not None:
            yield Finding(check="train", host=slot.host, level="ok", got="loads on the executor")
        yield from _driver(slot, expected)
        yield from _workers(slot, expected.worker_ports)
        yield from _logdir(slot, expected)
        yield from _data(slot, expected.data)
    for host in dict.fromkeys(slot.host for slot in found):
        of_host = [slot for slot in found if slot.host == host]
        yield from _space(host, of_host, expected)
        yield from _gpus(host, of_host, expected)
        yield from _kept(host, of_host)


def _trouble(slot: Found, expected: Expected) -> Iterator[Finding]:
    for fact, reason in slot.trouble.items():
        if fact in ("kept", "workers"):  # no search needs it, or not every one
            continue
        if fact == "driver":
            yield _unreachable(slot, expected.target, reason)
        else:
            check = _CHECKS.get(fact, fact)
            yield Finding(
                check=check,
                host=slot.host,
                level="red",
                got=reason,
                advice=_ADVICE[fact],
            )


def _unreachable(slot: Found, target: str, reason: str) -> Finding:
    host, _, port = target.rpartition(":")
    got = f"the driver at {host}, port {port}, cannot be reached: {reason}"
    advice = (
        f"let executors connect to {host}, on any port that the driver opens; or set "
        "spark.driver.host to a name of the driver that they can resolve"
    )
    finding = functools.partial(Finding, check="driver", host=slot.host)
    if slot.folder is not None and slot.folder.shared:  # see spark_jobs.channel.connecting
        got += "; messages of its trials go through the run's folder, each about a second slower"
        return finding(level="warning", got=got, expected="an answer", advice=advice)
    return finding(level="red", got=got, expected="an answer", advice=advice)


def _software(slot: Found, driver: Software) -> Iterator[Finding]:
    there = slot.software
    if there is None:
        return
    advice = f"{_INSTALL}that has them; {there.executable} has not"
    missing = [module for module in driver.versions if there.versions.get(module) is None]
    other = {
        module: f"{module} {there.versions[module]} (driver: {version})"
        for module, version in driver.versions.items()
        if version and there.versions.get(module) and there.versions[module] != version
    }
    differ = ", ".join(other.values())
    lacks = f"no {', '.join(missing)}" if missing else ""
    finding = functools.partial(Finding, check="software", host=slot.host)
    if not _OPTIONAL.issuperset(missing):
        yield finding(level="red", got=lacks, expected="the driver's packages", advice=advice)
    elif there.source != driver.source:
        got = "another version of this framework than the driver's"
        advice = "use the driver's: ship its zip with --py-files, or install it on every executor"
        yield finding(level="red", got=got, expected="the same sources", advice=advice)
    elif any(_clashes(m, there.versions[m] or "", driver.versions[m] or "") for m in other):
        yield finding(level="red", got=differ, expected="the driver's versions", advice=advice)
    elif missing or other or there.python != driver.python:
        python = "" if there.python == driver.python else f"Python {there.python}"
        python += f" (driver: {driver.python})" if python else ""
        got = ", ".join(filter(None, [lacks, python, differ]))
        yield finding(level="warning", got=got, expected="the driver's versions", advice=advice)
    else:
        got = f"Python {there.python}, {count(len(driver.versions), 'package')} as on the driver"
        yield finding(level="ok", got=got)


def _clashes(module: str, there: str, driver: str) -> bool:
    """Return whether two versions of a module are incompatible."""
    parts = 2 if module == "pyspark" else 1
    return module not in _ALIKE and there.split(".")[:parts] != driver.split(".")[:parts]


def _tensorflow(slot: Found) -> Iterator[Finding]:
    there = slot.tensorflow
    if there is None:
        return
    built = f"built for CUDA {there.cuda}" if there.cuda else "built without CUDA"
    got = f"{there.version}, {built}, imported in {there.seconds:.1f} s"
    wanted = len(slot.gpus.assigned) if slot.gpus is not None else 0
    finding = functools.partial(Finding, check="tensorflow", host=slot.host)
    if there.gpus < wanted:
        got += f", sees {there.gpus} of its slot's {count(wanted, 'GPU')}"
        advice = (
            "install tensorflow[and-cuda] and NVIDIA's driver on this host, and check that the "
            "discovery script lists existing GPUs"
        )
        yield finding(level="red", got=got, expected="all of them", advice=advice)
    else:
        yield finding(level="ok", got=got)


def _driver(slot: Found, expected: Expected) -> Iterator[Finding]:
    call, heard = slot.driver, expected.heard.get(slot.slot)
    if call is None or heard is None:
        return
    got = f"{expected.target} answers in {call.seconds * 1000:.1f} ms"
    finding = functools.partial(Finding, host=slot.host)
    yield finding(check="driver", level="ok", got=got)
    skew = call.before + call.seconds / 2 - heard
    sure = abs(skew) - call.seconds / 2
    got = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the driver's clock"
    if sure < _SKEW:
        yield finding(check="clock", level="ok", got=f"within {abs(skew) + call.seconds / 2:.2g} s")
    else:
        level: Level = "red" if sure > _LARGE_SKEW else "warning"
        advice = "run a time service (chrony, ntpd) on this host and on the driver's"
        yield finding(
            check="clock", level=level, got=got, expected=f"less than {_SKEW:g} s", advice=advice
        )


def _workers(slot: Found, ports: tuple[int, int] | None) -> Iterator[Finding]:
    """Yield whether a slot reaches others; only trials on several slots need that."""
    if ports is None:
        return
    finding = functools.partial(Finding, check="workers", host=slot.host)
    span = f"ports {ports[0]} to {ports[1]}"
    if slot.workers is not None:
        met = slot.workers
        others = count(met.others, "other slot")
        yield finding(level="ok", got=f"{others} reached at {span} in {met.seconds * 1000:.0f} ms")
    elif reason := slot.trouble.get("workers"):
        yield finding(
            level="warning",
            got=reason.partition("; ")[0],
            expected="workers of a trial that reach each other, with workers_per_trial=",
            advice=f"open {span} between executors, or set spark.experiment.workerPorts to ports "
            "that are open",
        )


def _logdir(slot: Found, expected: Expected) -> Iterator[Finding]:
    trip = slot.folder
    if trip is None:
        return
    finding = functools.partial(Finding, check="logdir", host=slot.host)
    if trip.shared:
        got = f"{expected.logdir}: written, renamed, read, removed in {trip.seconds * 1000:.0f} ms"
        yield finding(level="ok", got=got)
    else:
        got = f"does not see {expected.logdir} of the driver"
        advice = "set logdir= to a folder that all hosts share, or hdfs://..."
        yield finding(level="red", got=got, expected="the driver's folder", advice=advice)


def _data(slot: Found, driver: Data | None) -> Iterator[Finding]:
    there = slot.data
    if there is None:
        return
    got = f"{count(there.files, 'file')}, {size(there.bytes)}"
    finding = functools.partial(Finding, check="data", host=slot.host)
    if driver is not None and (there.files, there.bytes) != (driver.files, driver.bytes):
        wanted = f"{count(driver.files, 'file')}, {size(driver.bytes)}, as on the driver"
        advice = "put the data into a folder that all hosts share, or hdfs://..."
        yield finding(level="red", got=got, expected=wanted, advice=advice)
        return
    if there.copied and slot.space is not None and there.bytes > slot.space.cache:
        got = f"{got}; {slot.space.cache_folder} has room for {size(slot.space.cache)}"
        advice = (
            "set spark.experiment.cache.folder to a larger disk, raise "
            "spark.experiment.cache.limit, or read it in batches"
        )
        yield finding(level="warning", got=got, expected="room for a copy", advice=advice)
        return
    read = f"{size(there.read)} of the first file read in {there.seconds:.2g} s"
    yield finding(level="ok", got=f"{got}; {read}")


def _space(host: str, slots: Sequence[Found], expected: Expected) -> Iterator[Finding]:
    space = next((slot.space for slot in slots if slot.space is not None), None)
    if space is None:
        return
    got = f"{size(space.scratch)} free in {space.scratch_folder}"
    finding = functools.partial(Finding, host=host)
    if space.scratch < _LITTLE:
        level: Level = "red" if space.scratch < _VERY_LITTLE else "warning"
        advice = "free disk space, or set spark.local.dir to a larger disk"
        yield finding(
            check="space", level=level, got=got, expected=f"at least {size(_LITTLE)}", advice=advice
        )
    else:
        yield finding(
            check="space", level="ok", got=f"{got}, {size(space.cache)} for copies of data"
        )
    needed = len(slots) * expected.slot_memory
    got = f"{size(space.memory)} free for {count(len(slots), 'slot')}"
    if space.memory < needed:
        advice = "free memory, or run fewer trials at once: parallelism=, spark.task.cpus"
        wanted = f"{size(int(expected.slot_memory))} for each, with TensorFlow"
        yield finding(check="memory", level="warning", got=got, expected=wanted, advice=advice)
    else:
        yield finding(check="memory", level="ok", got=got)
    if space.kills_all:
        yield finding(
            check="out of memory",
            level="warning",
            got="the kernel kills all processes of an executor's container (memory.oom.group is 1)",
            expected="only the trial that exhausts its memory",
            advice="set singleProcessOOMKill: true for the kubelets, from Kubernetes 1.32 on; or "
            "leave more room for trials: spark.executor.memoryOverhead",
        )


def _kept(host: str, slots: Sequence[Found]) -> Iterator[Finding]:
    found = {modules for slot in slots for modules in slot.kept or ()}
    if found:
        imports = "; ".join(", ".join(modules) or "this package" for modules in sorted(found))
        got = f"ready for the next search, or being imported: {imports}"
        yield Finding(check="shared import", host=host, level="ok", got=got)


def _gpus(host: str, slots: Sequence[Found], expected: Expected) -> Iterator[Finding]:
    known = [slot.gpus for slot in slots if slot.gpus is not None]
    assigned = Counter(address for gpus in known for address in gpus.assigned)
    present = max((gpus.present for gpus in known), default=0)
    share = expected.gpu_share
    twice = [address for address, tasks in assigned.items() if tasks > share]
    finding = functools.partial(Finding, check="gpus", host=host)
    if twice:
        got = f"GPU {', '.join(sorted(twice))} in {max(assigned.values())} slots at once"
        advice = (
            "the Spark workers of this host list the same GPUs: give each worker a discovery "
            "script that lists its own"
        )
        wanted = "one slot per GPU" if share == 1 else f"at most {share} slots per GPU"
        yield finding(level="red", got=got, expected=wanted, advice=advice)
    elif assigned and present < len(assigned):
        got = f"{count(len(assigned), 'GPU')} assigned by Spark, {present} on the host"
        advice = (
            "check which GPUs the discovery script lists, and that NVIDIA's driver is installed; "
            "GPUs of other makers are not counted here"
        )
        yield finding(level="warning", got=got, expected="existing GPUs", advice=advice)
    elif assigned:
        to = "a slot of its own" if share == 1 else f"at most {share} slots"
        got = f"{count(len(assigned), 'GPU')} assigned, each to {to}"
        yield finding(level="ok", got=got)
    elif expected.executor_gpus and not expected.assigns_gpus:
        offered = count(expected.executor_gpus, "GPU")
        got = f"{offered} per executor, but slots request none: all trials see all of them"
        advice = (
            "set gpus_per_trial= or trials_per_gpu= of the search and of experiment.doctor; or set "
            "spark.task.resource.gpu.amount"
        )
        yield finding(level="warning", got=got, expected="GPUs that Spark assigns", advice=advice)
    elif present and not expected.assigns_gpus:
        got = f"{count(present, 'GPU')}, which Spark does not assign: all trials see all of them"
        advice = (
            "set spark.executor.resource.gpu.amount and its discoveryScript, and gpus_per_trial= "
            "of the search or spark.task.resource.gpu.amount"
        )
        yield finding(level="warning", got=got, expected="GPUs that Spark assigns", advice=advice)
    else:
        yield finding(level="ok", got="none, and none requested")


def size(amount: int) -> str:
    """Return a number of bytes with its unit: "512 bytes", "3.4 MB"."""
    value = float(amount)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 999.5:  # else it is rounded to 1e+03
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def about_driver(check: str, got: str, expected: str = "", advice: str = "") -> Finding:
    """Return a red finding about the driver."""
    return Finding(check=check, host=DRIVER, level="red", got=got, expected=expected, advice=advice)
