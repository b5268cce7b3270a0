"""A cluster that grows and shrinks during a search: real hosts that join and leave."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

import experiment
from spark_jobs.session.classic import ClassicSession
from tests.experiment import waiting
from tests.faults.held import check, held_in, hosts_of, release
from tests.servers.standalone import HOSTS

pytestmark = pytest.mark.slow

FIRST, SECOND = HOSTS
wait_until = functools.partial(waiting.wait_until, seconds=200)  # each host starts JVMs
DECOMMISSION = {"spark.decommission.enabled": "true"}
ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@pytest.fixture
def one_host(standalone):
    """The standalone cluster without one of its workers."""
    standalone.kill_worker(SECOND)
    standalone.wait_alive([FIRST])
    return standalone


def settings(cluster, **more: str) -> dict[str, str]:
    """Return the settings of an application that sets no number of executors."""
    given = cluster.settings() | more
    del given["spark.executor.instances"]
    return given


def used(folder: Path) -> set[str]:
    """Return the hosts on which trials were started."""
    return set(hosts_of(folder).values())


def leave(cluster, how: str) -> None:
    if how == "decommissioned":
        cluster.decommission_worker(SECOND)
    cluster.kill_worker(SECOND)


@pytest.mark.fault(17, 20)
@pytest.mark.parametrize(
    "how", ["killed", pytest.param("decommissioned", marks=pytest.mark.thorough)]
)
def test_a_host_that_joins_is_used_and_its_loss_is_survived(
    sparks, one_host, tmp_path, submit, how
):
    spark = sparks.get(one_host.master, **settings(one_host, **DECOMMISSION))
    handle = submit(spark, trials=6)
    wait_until(lambda: hosts_of(tmp_path))
    one_host.start_worker(SECOND)
    wait_until(lambda: used(tmp_path) == {FIRST, SECOND})
    assert handle._control.status().slots == 2
    leave(one_host, how)
    wait_until(lambda: handle._control.status().slots == 1)
    attempts = check(release(tmp_path, handle), [2.0 * x for x in range(6)], tmp_path)
    assert sorted(attempts.values()) == [1, 1, 1, 1, 1, 2]
    hosts = hosts_of(tmp_path)
    assert {hosts[Path(t.logdir).name] for t in handle.result().trials} == {FIRST}


@pytest.mark.fault(20)
def test_dynamic_allocation_adds_and_removes_executors(sparks, one_host, tmp_path, submit):
    """From no executor, over a host that joins later, to none."""
    spark = sparks.get(one_host.master, **settings(one_host, **ALLOCATION))

    def executors(*hosts):
        return sum(len(one_host.executors(host)) for host in hosts)

    wait_until(lambda: executors(FIRST) == 0)
    handle = submit(spark, trials=6)
    wait_until(lambda: used(tmp_path) == {FIRST})
    one_host.start_worker(SECOND)
    wait_until(lambda: used(tmp_path) == {FIRST, SECOND})
    attempts = check(release(tmp_path, handle), [2.0 * x for x in range(6)], tmp_path)
    assert set(attempts.values()) == {1}
    wait_until(lambda: executors(*HOSTS) == 0)


@pytest.mark.thorough
@pytest.mark.fault(20)
def test_trials_on_two_slots_wait_for_the_second_host_and_give_both_back(
    sparks, one_host, tmp_path, submit
):
    def train(x):
        (both,) = experiment.all_reduce([[1.0 + experiment.rank()]], op="sum")
        host = os.environ["SPARK_LOCAL_IP"]
        (tmp_path / f"{Path(experiment.logdir()).name}-{experiment.rank()}@{host}").touch()
        return x * float(both[0])

    spark = sparks.get(one_host.master, **settings(one_host, **ALLOCATION))
    handle = submit(spark, train=train, trials=2, workers_per_trial=2)
    wait_until(lambda: handle._control.status and handle._control.status().slots == 1)
    one_host.start_worker(SECOND)
    result = handle.result(timeout=200)
    assert [(trial.status, trial.value) for trial in result.trials] == [
        ("finished", 0.0),
        ("finished", 3.0),
    ]
    assert len(hosts_of(tmp_path)) == 4
    assert used(tmp_path) == {FIRST, SECOND}
    wait_until(lambda: sum(len(one_host.executors(host)) for host in HOSTS) == 0)


def test_searches_side_by_side_share_a_cluster_that_grows(sparks, one_host, tmp_path, submit):
    """`parallelism` keeps one search from taking the new executors, and the other one gets them."""
    spark = sparks.get(one_host.master, **settings(one_host))
    folders = [tmp_path / "capped", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    capped, other = folders
    first = submit(spark, train=held_in(capped), parallelism=1)
    wait_until(lambda: hosts_of(capped))
    second = submit(spark, train=held_in(other))
    wait_until(lambda: second._control.status)
    one_host.start_worker(SECOND)
    wait_until(lambda: hosts_of(other))
    assert (len(hosts_of(capped)), used(capped), used(other)) == (1, {FIRST}, {SECOND})
    # Its other slot waits in Spark until the first search frees an executor.
    check(release(capped, first), [0.0, 2.0, 4.0, 6.0], capped)
    wait_until(lambda: used(other) == {FIRST, SECOND})
    check(release(other, second), [0.0, 2.0, 4.0, 6.0], other)


@pytest.fixture
def bare(tmp_path):
    """A Python without packages on the second host."""
    path = tmp_path / "python"
    path.write_text(
        f'#!/bin/sh\n[ "$SPARK_LOCAL_IP" = {SECOND} ] && isolated=-S\n'
        f'exec "{sys.executable}" $isolated "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.thorough
@pytest.mark.fault(46)
def test_a_host_that_joins_and_lacks_a_package_is_named_and_left_out(
    sparks, one_host, tmp_path, monkeypatch, submit, bare
):
    spark = sparks.get(one_host.master, **settings(one_host, **{"spark.task.maxFailures": "1"}))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)

    def search():
        handle = submit(spark)
        wait_until(lambda: hosts_of(tmp_path))
        one_host.start_worker(SECOND)
        wait_until(lambda: len(warned))
        return release(tmp_path, handle)

    with pytest.warns(UserWarning, match=f"continues without host {SECOND}, Python") as warned:
        result = search()
    check(result, [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert len(warned) == 1
    assert used(tmp_path) == {FIRST}


@pytest.mark.thorough
@pytest.mark.fault(46)
@pytest.mark.parametrize("tries", ["1", "4"])
def test_a_host_that_lacks_a_package_from_the_start_is_named_and_left_out(
    sparks, standalone, tmp_path, monkeypatch, submit, bare, tries
):
    changes = {"spark.task.maxFailures": tries}
    spark = sparks.get(standalone.master, **standalone.settings() | changes)
    wait_until(lambda: ClassicSession(spark).task_slots() == 2)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)

    def search():
        handle = submit(spark)
        wait_until(lambda: len(warned) or handle.status() != "running")
        return release(tmp_path, handle)

    with pytest.warns(UserWarning, match=f"continues without host {SECOND}, Python") as warned:
        result = search()
    check(result, [0.0, 2.0, 4.0, 6.0], tmp_path)
    assert len(warned) == 1
    assert used(tmp_path) == {FIRST}


def test_an_executor_runs_more_calls_at_once_when_a_host_joins(sparks, one_host, tmp_path):
    spark = sparks.get(one_host.master, **settings(one_host))
    with experiment.executor(spark, logdir=tmp_path / "runs") as pool:
        futures = [pool.submit(held_in(tmp_path), x) for x in range(4)]
        wait_until(lambda: hosts_of(tmp_path))
        assert pool.parallelism == 1
        one_host.start_worker(SECOND)
        wait_until(lambda: used(tmp_path) == {FIRST, SECOND})
        assert pool.parallelism == 2
        (tmp_path / "release").touch()
        assert [future.result(240) for future in futures] == [0, 2, 4, 6]
