"""Resource profiles of Spark, by which a job asks for other cores and GPUs than its application."""

from __future__ import annotations

from typing import Any

from spark_jobs.cluster.task_needs import TaskNeeds


def profile_of(context: Any, needs: TaskNeeds, *, dynamic: bool) -> Any:
    """Return the resource profile of tasks with these needs, known to Spark.

    Without dynamic allocation the tasks run on the existing executors, and Spark refuses a profile
    with executor requests. With it Spark starts executors for each profile and refuses one without
    these requests: here they are the application's. A later search with the same needs gets the
    same profile, and so the same executors.

    Args:
        context: The SparkContext; not one of local mode, which has no profiles.
        needs: The needs of each task.
        dynamic: Whether dynamic allocation is on.
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
    """Return how many tasks fit on the present executors.

    Args:
        context: The SparkContext; not one of local mode.
        profile: The tasks' profile; None for the application's.
    """
    jvm_context = context._jsc.sc()
    usual = jvm_context.resourceProfileManager().defaultResourceProfile()
    asked = usual if profile is None else profile._java_resource_profile
    return int(jvm_context.maxNumConcurrentTasks(asked))
