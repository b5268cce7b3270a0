"""Searches with a client that is based only on the description of the messages."""

from __future__ import annotations

import ast
import inspect
import math

import msgspec
import pytest

import experiment
from experiment.driver.jobs import slot_jobs
from search.grid import PointSearch
from spark_jobs.channel.grpc_channel import ChannelServer
from tests import ROOT, other_client
from tests.experiment.driver.searches import Search, evolution

LOOPBACK = "127.0.0.1"


def test_the_other_client_shares_no_code_with_ours():
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(inspect.getsource(other_client)))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"__future__", "grpc", "json", "secrets", "time"}


def slot(server, name="1.0.0"):
    address = server.address
    return other_client.Slot(address.target, address.token, address.certificate, name)


def test_the_other_client_runs_an_evolution_to_its_end(tmp_path):
    search = Search(tmp_path / "run", evolution())
    with ChannelServer(LOOPBACK, search.coordinator) as server, slot(server) as other:
        assert other.run(lambda report, x, y: (x * x + y, "")) == search.searcher.total
    assert search.coordinator.trials.done
    assert all(
        result.value == pytest.approx(result.params["x"] ** 2 + result.params["y"])
        for result in search.coordinator.trials.results
    )


def test_the_other_client_reads_every_value_and_reports_failures(tmp_path):
    values = [None, True, "ü", 2**60, 0.1, math.inf, (1, (2,)), [1, [2]], {"a": (1, -math.inf)}]
    search = Search(tmp_path / "run", PointSearch([{"x": value} for value in values]))
    seen = []

    def train(report, x):
        seen.append(x)
        if x is None:
            raise ValueError("no x")
        return 1.0, ""

    with ChannelServer(LOOPBACK, search.coordinator) as server, slot(server) as other:
        assert other.run(train) == len(values)
    assert seen == values
    assert [type(x) for x in seen] == [type(x) for x in values]
    failed, *finished = search.coordinator.trials.results
    assert (failed.status, failed.error.message) == ("failed", "no x")
    assert {result.status for result in finished} == {"finished"}


def test_the_slots_of_a_real_search_may_be_other_clients(spark, logdir, monkeypatch):
    """Spark runs them; the driver gives them trials, stops one, and records their messages."""
    source = str(ROOT)

    def slot_function(job, lent, function, search_path, shared):
        address = msgspec.json.decode(lent())["address"]
        assert address.pop("mailbox") is None  # executors are on this host

        def run(batches):
            import sys

            from pyspark import TaskContext

            sys.path.append(source)
            from tests.other_client import Slot

            def train(report, x):
                for step in range(5):
                    if reason := report(step, score=x):
                        return x, reason
                return x, ""

            task = TaskContext.get()
            name = f"{job}.{task.partitionId()}.{task.attemptNumber()}"
            list(batches)
            with Slot(**address, name=name) as slot:
                slot.run(train)
            yield from ()

        return run

    monkeypatch.setattr(slot_jobs, "slot_function", slot_function)
    result = experiment.launch(
        spark,
        lambda x: pytest.fail("of another kind"),
        {"x": [1.0, 2.0, 30.0, 4.0]},
        logdir=logdir,
        optimization_key="score",
        stopping=experiment.Threshold(upper=9.0),
    )
    assert [trial.status for trial in result.trials] == [
        "finished",
        "finished",
        "stopped",
        "finished",
    ]
    assert [trial.value for trial in result.trials] == [1.0, 2.0, 30.0, 4.0]
    assert result.trials[2].reason == "step 0: 30 is above the threshold 9"
