"""The executors of an application by its settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_jobs.cluster.configured import ConfiguredExecutors, is_on
from spark_jobs.cluster.task_needs import TaskNeeds


def slots(master: str, settings: Mapping[str, str]) -> int:
    return configured(master, settings).slots(TaskNeeds.of(settings.get))


def configured(master: str, settings: Mapping[str, str]) -> ConfiguredExecutors:
    return ConfiguredExecutors(
        master=master,
        on_this_host=master.startswith("local"),
        setting=settings.get,
        processors=lambda: 4,
    )


def test_local_masters_have_one_executor():
    for master, expected in (("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("local[*]", 4)):
        assert configured(master, {}).most == 1
        assert slots(master, {}) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.cores": "4",
                "spark.task.cpus": "2",
            },
            10,
        ),
        ({}, 0),
        (
            {
                "spark.executor.instances": "3",
                "spark.executor.cores": "4",
                "spark.executor.resource.gpu.amount": "2",
                "spark.task.resource.gpu.amount": "1",
            },
            6,
        ),
    ],
)
def test_task_slots_that_a_cluster_can_come_to(settings, expected):
    assert slots("yarn", settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 8),
        ({"spark.executor.cores": "3"}, 6),  # the fourth core of each worker is left over
        ({"spark.executor.cores": "2"}, 4),  # the memory is enough for one executor each
        ({"spark.executor.cores": "2", "spark.executor.memory": "512m"}, 8),
        ({"spark.cores.max": "3"}, 3),
        ({"spark.cores.max": "3", "spark.executor.cores": "2"}, 2),
        ({"spark.cores.max": "3", "spark.task.cpus": "2"}, 1),
    ],
)
def test_slots_of_two_workers_with_four_cores(settings, expected):
    assert slots("local-cluster[2,4,1024]", settings) == expected


def test_slots_of_a_standalone_cluster_are_no_more_than_the_cores_of_the_application():
    settings = DYNAMIC | {
        "spark.dynamicAllocation.maxExecutors": "10",
        "spark.executor.cores": "2",
        "spark.cores.max": "5",
    }
    assert slots("spark://host:7077", settings) == 4
    assert slots("yarn", settings) == 20


@pytest.mark.parametrize(("memory", "most"), [("512m", 4), ("1g", 2), ("400000k", 4), (None, 2)])
def test_executors_of_one_worker_share_its_memory(memory, most):
    settings = {"spark.executor.cores": "2"}
    if memory is not None:
        settings["spark.executor.memory"] = memory
    assert configured("local-cluster[2,4,1024]", settings).most == most


CORES = {"spark.executor.cores": "4"}
DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
FIVE = DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "5"}
THREE = {"spark.executor.instances": "3"}


@pytest.mark.parametrize(
    ("master", "settings", "more"),
    [
        ("local", {}, False),
        ("local[3]", {}, False),
        ("local[*]", {}, False),
        ("local-cluster[2,1,1024]", {}, False),
        ("spark://host:7077", {}, True),
        ("spark://host:7077", THREE | CORES, True),
        ("spark://host:7077", FIVE | CORES, False),
        ("spark://host:7077", FIVE, True),
        ("yarn", {}, True),
        ("yarn", THREE | CORES, False),
        ("yarn", DYNAMIC | CORES, True),
        ("yarn", FIVE | CORES, False),
    ],
)
def test_clusters_may_get_more_slots_unless_settings_limit_them(master, settings, more):
    assert configured(master, settings).may_grow(TaskNeeds.of(settings.get)) == more


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("true", True),
        (" TRUE ", True),
        ("false", False),
        ("yes", False),
        ("", False),
        (None, False),
    ],
)
def test_a_setting_is_on_whatever_blanks_are_around_it(value, on):
    """As Spark reads it."""
    assert is_on(lambda name: value, "spark.speculation") == on
