"""What the status store of a driver's JVM knows of its executors."""

from __future__ import annotations

from typing import Any

from spark_jobs.cluster.cluster import ClusterExecutor

_DRIVER = "driver"  # what the store calls the driver, which in local mode is the executor


def executors_of(context: Any) -> tuple[ClusterExecutor, ...]:
    """Return the executors of a SparkContext that are there now."""
    found = context._jsc.sc().statusStore().executorList(True)
    executors = [_executor(context, found.apply(number)) for number in range(found.size())]
    # A mere driver has no cores. An executor has no host before its block manager has registered,
    # a moment after itself.
    return tuple(executor for executor in executors if executor.cores and executor.host)


def logs_of(context: Any) -> list[str]:
    """Return the addresses of the logs of the executors that are there now."""
    found = context._jsc.sc().statusStore().executorList(True)
    logs = [found.apply(number).executorLogs().valuesIterator() for number in range(found.size())]
    return [str(kinds.next()) for kinds in logs if kinds.hasNext()]


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
    if not asked.contains("memory"):  # a profile of tasks alone, whose executors are like all
        asked = profiles.defaultResourceProfile().executorResources()
    return int(asked.apply("memory").amount()) << 20


def _resources(summary: Any) -> dict[str, tuple[str, ...]]:
    held: dict[str, tuple[str, ...]] = {}
    pairs = summary.resources().iterator()
    while pairs.hasNext():
        pair = pairs.next()
        held[str(pair._1())] = tuple(map(str, pair._2().addresses()))
    return held
