"""Hosts with a wrong clock: trials run there, and TensorBoard's times are the driver's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import experiment
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.messages import Stop
from tests import clock
from tests.spark_jobs.channel.channel_contract import Script

SLOT = """
import sys, time
import msgspec
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.messages import Hello

address = msgspec.json.decode(sys.stdin.buffer.read(), type=Address)
with ChannelClient(address, "1.0.0") as slot:
    lag = slot.hello(Hello(slot="1.0.0", host="host"))
    print(msgspec.json.encode([time.time(), lag]).decode())
    slot.next()
"""


@pytest.mark.parametrize("days", [-10_000, -2, 0, 800, 20_000])
def test_a_slot_whose_clock_is_off_connects_and_learns_the_drivers_time(days):
    handler = Script(Stop())
    with ChannelServer("127.0.0.1", handler) as server:
        began = time.time()
        slot = subprocess.run(
            [sys.executable, "-c", SLOT],
            input=msgspec.json.encode(server.address),
            env=clock.environment(days),
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        ended = time.time()
    own, lag = json.loads(slot.stdout)
    assert began + days * 86_400 <= own <= ended + days * 86_400
    assert began <= own + lag <= ended
    assert handler.answers == []


def wall_times(folder: str):
    """Return the times in all event files below a folder."""
    files = [str(path) for path in Path(folder).rglob("*tfevents*")]
    return [event.wall_time for path in files for event in EventFileLoader(path).Load()]


def reports(x):
    for step in range(3):
        experiment.report(step=step, loss=x)
    return {"loss": x, "clock": time.time()}


@pytest.mark.fault(6)
@pytest.mark.parametrize("days", [-2, 800])
@pytest.mark.slow
def test_trials_of_a_host_whose_clock_is_off_have_the_drivers_times(
    spark, tmp_path, monkeypatch, days
):
    python = clock.python_with_clock_off_by(days, tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", python)  # else the session takes the driver's
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    began = time.time()
    result = experiment.launch(
        spark,
        reports,
        [{"x": 1.0}, {"x": 2.0}],
        logdir=str(tmp_path),
        name="off",
        preload=(),
        verbose=0,
        deadline=120,
        optimization_key="loss",
    )
    ended = time.time()
    assert [trial.status for trial in result.trials] == ["finished"] * 2
    clocks = [trial.metrics["clock"] - days * 86_400 for trial in result.trials]
    assert [own for own in clocks if not began <= own <= ended] == []
    times = wall_times(result.logdir)
    assert len(times) > 10
    assert [off for off in times if not began <= off <= ended] == []
