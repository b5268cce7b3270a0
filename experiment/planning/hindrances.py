"""Settings of Spark that hurt a search, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiment.results.text import count
from experiment.setup.function.imports import FRAMEWORKS
from experiment.setup.preparation import Prepared
from experiment.setup.slot_count import SLOT_MEMORY
from search.searcher import batch_of
from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.memory_sizes import mebibytes

_CONTAINERS = ("yarn", "k8s")  # where memory limits are enforced
_OVERHEAD_FACTOR = 0.1  # Spark's default; a Python job in cluster mode on Kubernetes is given 0.4
_LEAST_OVERHEAD = 384  # MiB, Spark's minimum
_ADDRESS_SPACE = 4096  # MiB that TensorFlow with a small model maps, rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """A setting that hurts a search.

    Attributes:
        setting: The name of the Spark setting, or of the search's argument.
        value: Its value.
        effect: Its effect on the search.
        advice: A change of the setting that helps.
    """

    setting: str
    value: str
    effect: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A search's demand on a cluster, as the checks need it.

    Attributes:
        prepared: The search.
        cluster: The cluster that runs it.
        slots: Number of slots requested.
        now: Number of slots that fit on the current executors; None if unknown.
        cpus: Cores per slot.
        per_executor: Slots per executor; None if unknown.
        idle: Cores of the current executors that no slot can use.
    """

    prepared: Prepared
    cluster: Cluster
    slots: int
    now: int | None
    cpus: int
    per_executor: int | None
    idle: int

    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None if it is not set."""
        return self.prepared.session.setting(name)

    def is_on(self, name: str) -> bool:
        """Return whether a Spark setting is true."""
        return (self.setting(name) or "").lower() == "true"

    @property
    def imports_tensorflow(self) -> bool:
        """Whether each slot preloads TensorFlow."""
        packages = {name.partition(".")[0] for name in self.prepared.preload.modules}
        return not FRAMEWORKS.isdisjoint(packages)


def hindrances(demand: Demand) -> tuple[Hindrance, ...]:
    """Return the settings that hurt a search."""
    return tuple(hindrance for check in _CHECKS for hindrance in check(demand))


def _too_many(demand: Demand) -> Iterator[Hindrance]:
    wanted, now = demand.prepared.spec.settings.parallelism, demand.now
    fixed = not demand.is_on("spark.dynamicAllocation.enabled")
    if wanted is not None and fixed and now and now < demand.slots:
        effect = f"the executors run {now} at once: {count(demand.slots - now, 'slot')} may wait"
        yield Hindrance(
            setting="parallelism",
            value=str(wanted),
            effect=effect,
            advice="leave it out, or add executors",
        )


def _other_jobs(demand: Demand) -> Iterator[Hindrance]:
    running = sum(executor.running for executor in demand.cluster.executors or ())
    if running:
        yield Hindrance(
            setting="spark.scheduler.mode",
            value=demand.setting("spark.scheduler.mode") or "FIFO",
            effect=f"{count(running, 'task')} of other jobs of this application "
            f"{'runs' if running == 1 else 'run'} now: slots start on the cores that these leave "
            "free, and keep them until the search ends",
            advice="divide the slots among searches with parallelism=",
        )


def _speculation(demand: Demand) -> Iterator[Hindrance]:
    local = demand.prepared.session.master.partition("[")[0] == "local"  # Spark never speculates
    if demand.is_on("spark.speculation") and not local:
        yield Hindrance(
            setting="spark.speculation",
            value="true",
            effect="Spark starts copies of slots, since these run long, and the copies take cores",
            advice="set it to false",
        )


def _kept_executors(demand: Demand) -> Iterator[Hindrance]:
    waits = batch_of(demand.prepared.spec.searcher) is not None
    if waits and demand.is_on("spark.dynamicAllocation.enabled"):
        name = "spark.dynamicAllocation.executorIdleTimeout"
        yield Hindrance(
            setting=name,
            value=demand.setting(name) or "60s",
            effect="slots that wait at the end of a generation are running tasks: their executors "
            "never become idle and are not released",
            advice="a popsize that is a multiple of the slots, or a search without generations",
        )


def _idle_cores(demand: Demand) -> Iterator[Hindrance]:
    if demand.idle:
        yield Hindrance(
            setting="spark.task.cpus",
            value=str(demand.cpus),
            effect=f"no slot can use {count(demand.idle, 'core')} of the current executors",
            advice="make the cores of an executor a multiple of it, with enough GPUs for as many "
            "slots",
        )


def _memory(demand: Demand) -> Iterator[Hindrance]:
    kind = demand.prepared.session.master.partition(":")[0]
    if kind not in _CONTAINERS or not demand.imports_tensorflow or demand.per_executor is None:
        return
    room = _overhead(demand, kind)
    if kind == "yarn":  # on Kubernetes only in cluster mode
        room += mebibytes(demand.setting("spark.executor.pyspark.memory")) or 0
    needed = demand.per_executor * SLOT_MEMORY / 2**20
    if room < needed:
        yield Hindrance(
            setting="spark.executor.memoryOverhead",
            value=f"{room:.0f} MiB",
            effect=f"the memory limit of {count(demand.per_executor, 'trial')} in an executor; "
            f"TensorFlow with a small model takes {needed:.0f} MiB there, and an executor above "
            "its limit is killed",
            advice=f"set it to {needed:.0f}m or more",
        )


def _overhead(demand: Demand, kind: str) -> float:
    """Return the MiB of an executor's container beside its JVM's memory, as Spark computes them."""
    overhead = mebibytes(demand.setting("spark.executor.memoryOverhead"))
    if overhead is not None:
        return overhead
    factor = demand.setting("spark.executor.memoryOverheadFactor")
    if factor is None and kind == "k8s":
        factor = demand.setting("spark.kubernetes.memoryOverheadFactor")
    own = mebibytes(demand.setting("spark.executor.memory")) or 1024
    return max(_LEAST_OVERHEAD, own * float(factor or _OVERHEAD_FACTOR))


def _address_space(demand: Demand) -> Iterator[Hindrance]:
    name = "spark.executor.pyspark.memory"
    limit = mebibytes(demand.setting(name))
    if not limit or not demand.imports_tensorflow:
        return
    share = limit / int(demand.setting("spark.executor.cores") or 1)
    if share < _ADDRESS_SPACE:
        yield Hindrance(
            setting=name,
            value=demand.setting(name) or "",
            effect=f"Spark limits the address space of each Python process to {share:.0f} MiB; "
            f"TensorFlow with a small model takes up to {_ADDRESS_SPACE} MiB, on a GPU far more, "
            "so imports and trials fail",
            advice="leave it out, and add its memory to spark.executor.memoryOverhead",
        )


def _in_the_open(demand: Demand) -> Iterator[Hindrance]:
    if exposure := demand.prepared.session.exposure:
        off = ", ".join(exposure.off)
        yield Hindrance(setting=off, value="off", effect=exposure.danger, advice=exposure.remedy)


_CHECKS = (
    _too_many,
    _other_jobs,
    _speculation,
    _kept_executors,
    _idle_cores,
    _memory,
    _address_space,
    _in_the_open,
)
