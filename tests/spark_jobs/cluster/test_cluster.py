"""The executors of an application: as a value, of real sessions, and in words."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.cluster.cluster import Cluster, ClusterExecutor, executor_needs
from spark_jobs.cluster.task_needs import TaskNeeds
from spark_jobs.session.classic import ClassicSession
from tests.experiment.waiting import wait_until
from tests.servers.standalone import HOSTS


def executor(cores=1, gpus=0, host="a", **others):
    resources = {"gpu": tuple(map(str, range(gpus)))} if gpus else {}
    return ClusterExecutor(
        name="0", host=host, cores=cores, memory=2**30, resources=resources, **others
    )


def test_a_local_session_is_one_executor(spark):
    session = ClassicSession(spark)
    cluster = session.cluster()
    (only,) = cluster.executors
    assert (only.name, only.cores, only.running) == ("driver", 2, 0)
    assert only.memory > 2**27
    assert (session._configured.most, cluster.page) == (1, None)
    assert cluster.tasks(TaskNeeds(1)) == session.task_slots() == 2


@pytest.mark.slow
@pytest.mark.contract
def test_executors_with_their_gpus(sparks, tmp_path):
    script = tmp_path / "discover"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["3", "5"]}\'\n')
    script.chmod(0o755)
    settings = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": str(script),
        "spark.task.resource.gpu.amount": "0.5",
    }
    spark = sparks.get("local-cluster[1,3,1024]", **settings)
    session = ClassicSession(spark)
    wait_until(lambda: session.cluster().executors)
    cluster = session.cluster()
    (only,) = cluster.executors
    assert (only.name, only.cores, only.memory) == ("0", 3, 2**29)
    assert only.resources == {"gpu": ("3", "5")}
    assert (session._configured.most, cluster.page) == (1, spark.sparkContext.uiWebUrl)
    assert cluster.page.startswith("http://")
    assert cluster.tasks(TaskNeeds(1, 0.5)) == session.task_slots() == 3
    assert str(session.task_needs) == "1 core and 0.5 GPU"
    assert executor_needs(session.setting) == "512m of memory and 2 GPUs"
    assert str(cluster) == (
        f"1 executor with 3 cores, 512 MiB and 2 gpu on {only.host}, running 0 tasks"
    )


@pytest.mark.slow
def test_hosts_of_a_standalone_cluster(two_hosts):
    session = ClassicSession(two_hosts)
    wait_until(lambda: len(session.cluster().executors) == len(HOSTS))
    found = session.cluster()
    assert sorted(executor.host for executor in found.executors) == list(HOSTS)
    assert {(executor.cores, executor.memory) for executor in found.executors} == {(1, 2**29)}
    assert (session._configured.most, found.tasks(TaskNeeds(1))) == (2, 2)


@given(
    st.integers(0, 64),
    st.integers(1, 8),
    st.integers(0, 16),
    st.one_of(st.integers(1, 8), st.integers(1, 8).map(lambda n: Fraction(1, n))),
)
def test_tasks_never_need_more_than_an_executor_has(cores, cpus, gpus, amount):
    fit = executor(cores, gpus).tasks(TaskNeeds(cpus, float(amount)))
    assert fit * cpus <= cores
    assert fit * amount <= gpus
    assert (fit + 1) * cpus > cores or (fit + 1) * amount > gpus


def test_unknown_versions_are_none():
    assert Cluster() == Cluster(None, None)
    assert Cluster().tasks(TaskNeeds(1)) is None
    assert Cluster(()).tasks(TaskNeeds(1)) == 0


@pytest.mark.parametrize(
    ("executors", "words"),
    [
        ((), "no executor"),
        ((executor(running=1),), "1 executor with 1 core and 1024 MiB on a, running 1 task"),
        (
            (executor(2, 1), executor(2, 1, host="b"), executor(host="c")),
            "2 executors, each with 2 cores, 1024 MiB and 1 gpu on a, b, running 0 tasks; "
            "1 executor with 1 core and 1024 MiB on c, running 0 tasks",
        ),
        (
            tuple(executor(1 + n % 6, host=f"h{n}") for n in range(60)),
            "; ".join(
                f"10 executors, each with {'1 core' if n == 0 else f'{n + 1} cores'} and 1024 MiB "
                f"on h{n}, h{n + 6}, h{n + 12}, h{n + 18}, ..., running 0 tasks"
                for n in range(4)
            )
            + "; 2 more kinds",
        ),
    ],
    ids=["none", "one", "two kinds", "many"],
)
def test_executors_in_words(executors, words):
    assert str(Cluster(executors)) == words


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "1g of memory"),
        ({"cores": "1", "memory": "2g"}, "2g of memory and 1 core"),
        ({"memory": "2048"}, "2048m of memory"),
        ({"cores": "4", "resource.gpu.amount": "1"}, "1g of memory, 4 cores and 1 GPU"),
    ],
)
def test_the_needs_of_executors(settings, words):
    asked = {f"spark.executor.{name}": value for name, value in settings.items()}
    assert executor_needs(asked.get) == words
