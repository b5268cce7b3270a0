"""Resource profiles of Spark: how a job asks for other cores and GPUs than its application says."""

from __future__ import annotations

from typing import Any

from spark_jobs.cluster.task_needs import TaskNeeds


def profile_of(context: Any, needs: TaskNeeds, *, dynamic: bool) -> Any:
    """Return the resource profile of tasks with these needs, known to Spark.

    Without dynamic allocation its tasks run on the executors that there are, and Spark refuses a
    profile that asks for others. With it Spark starts executors for each profile and refuses one
    that does not say of which kind: it is the usual one here. Those of one search are there for the
    next one with the same needs, since that gets the same profile.

    Args:
        context: The SparkContext; not one of local mode, which has no profiles.
        needs: Of each task.
        dynamic: Is dynamic allocation on?
    """
    from pyspark.resource import (
        ExecutorResourceRequests,
        ResourceProfile,
        ResourceProfileBuilder,
        TaskResourceRequests,
    )

    manager = context._jsc.sc().resourceProfileManager()
    requests = TaskResourceRequests().cpus(needs.cpus)
    if needs.gpus:
        requests = requests.resource("gpu", needs.gpus)
    builder = ResourceProfileBuilder().require(requests)
    if dynamic:
        usual = ResourceProfile(manager.defaultResourceProfile()).executorResources
        builder = builder.require(ExecutorResourceRequests(context._jvm, usual))
    profile = builder.build
    known = manager.getEquivalentProfile(profile._java_resource_profile)
    if known.isDefined():
        return ResourceProfile(known.get())
    manager.addResourceProfile(profile._java_resource_profile)
    return profile


def tasks_at_once(context: Any, profile: Any) -> int:
    """Return how many tasks fit on the executors that are there.

    Args:
        context: The SparkContext; not one of local mode.
        profile: Of the tasks; None for what the application says.
    """
    jvm_context = context._jsc.sc()
    usual = jvm_context.resourceProfileManager().defaultResourceProfile()
    asked = usual if profile is None else profile._java_resource_profile
    return int(jvm_context.maxNumConcurrentTasks(asked))
