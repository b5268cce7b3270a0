"""The executors in the status store of a driver's JVM."""

from __future__ import annotations

from typing import Any

from spark_jobs.cluster.cluster import ClusterExecutor

_DRIVER = "driver"  # the store's id of the driver, which in local mode is the executor


def executors_of(context: Any) -> tuple[ClusterExecutor, ...]:
    """Return the present executors of a SparkContext."""
    found = context._jsc.sc().statusStore().executorList(True)
    executors = [_executor(context, found.apply(number)) for number in range(found.size())]
    # A driver that is no executor has no cores. An executor has no host before its block manager
    # has registered, a moment after itself.
    return tuple(executor for executor in executors if executor.cores and executor.host)


def logs_of(context: Any) -> list[str]:
    """Return the addresses of the present executors' logs."""
    found = context._jsc.sc().statusStore().executorList(True)
    logs = [found.apply(number).executorLogs().valuesIterator() for number in range(found.size())]
    return [str(kinds.next()) for kinds in logs if kinds.hasNext()]


def started_of(context: Any, most_ended: int) -> frozenset[int] | None:
    """Return the ids of the executors that have started, present and ended ones.

    Args:
        context: The SparkContext; not one of local mode.
        most_ended: The number of ended executors that the store keeps,
            `spark.ui.retainedDeadExecutors`. With one more it forgets a tenth of them at once.

    Returns:
        None if the store may have forgotten some.
    """
    found = context._jsc.sc().statusStore().executorList(False)
    executors = [found.apply(number) for number in range(found.size())]
    ended = sum(not executor.isActive() for executor in executors)
    if ended > most_ended - max(most_ended // 10, 1):
        return None
    return frozenset(int(e.id()) for e in executors if str(e.id()) != _DRIVER)


def _executor(context: Any, summary: Any) -> ClusterExecutor:
    name = str(summary.id())
    return ClusterExecutor(
        name=name,
        host=str(summary.hostPort()).rpartition(":")[0],
        cores=int(summary.totalCores()),
        memory=_heap(context) if name == _DRIVER else _memory(context, summary),
        resources=_resources(summary),
        running=int(summary.activeTasks()),
    )


def _heap(context: Any) -> int:
    return int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())


def _memory(context: Any, summary: Any) -> int:
    profiles = context._jsc.sc().resourceProfileManager()
    asked = profiles.resourceProfileFromId(summary.resourceProfileId()).executorResources()
    if not asked.contains("memory"):  # a profile of tasks only, with default executors
        asked = profiles.defaultResourceProfile().executorResources()
    return int(asked.apply("memory").amount()) << 20


def _resources(summary: Any) -> dict[str, tuple[str, ...]]:
    held: dict[str, tuple[str, ...]] = {}
    pairs = summary.resources().iterator()
    while pairs.hasNext():
        pair = pairs.next()
        held[str(pair._1())] = tuple(map(str, pair._2().addresses()))
    return held
