"""The secured HDFS, which is there before the JVM of Spark, since Hadoop logs in only once."""

from __future__ import annotations

import pytest

from tests.kerberos.secured import secured_hdfs


@pytest.fixture(scope="session")
def secured(tmp_path_factory):
    with secured_hdfs(tmp_path_factory.mktemp("kerberos")) as secured:
        yield secured


@pytest.fixture
def driver(secured, sparks):
    """A local session of the user who has a ticket."""
    return sparks.get("local[2]")


@pytest.fixture
def driver_of_cluster(secured, cluster):
    """The same with executors in JVMs of their own."""
    return cluster
