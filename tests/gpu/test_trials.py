"""Trials on a real GPU: they see the one they were given, and leave nothing on it."""

from __future__ import annotations

import os
import signal

import pytest

from spark_jobs.slot.gpus.gpu_watch import WatchedRunner
from spark_jobs.slot.gpus.nvml import GIB, Gpus
from tests.gpu.slot_processes import run_trials
from tests.gpu.training import train
from tests.spark_jobs.trial.events.reading import scalars

pytestmark = pytest.mark.gpu

SMALL = {"learning_rate": 0.01, "steps": 20, "batch": 32}


def visible_gpus(framework):
    """A train function: how many GPUs there are for it."""
    if framework == "torch":
        import torch

        return torch.cuda.device_count()
    import jax

    return sum(device.platform == "gpu" for device in jax.devices())


def take(framework, gib, kill=False):
    """A train function: takes memory of the GPU, and may end as a crash does."""
    if framework == "torch":
        import torch

        kept = torch.ones(gib << 30, dtype=torch.uint8, device="cuda")
    else:
        import jax.numpy as jnp

        kept = jnp.ones(gib << 30, "uint8").block_until_ready()
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(kept[0])


def test_a_trial_sees_the_gpu_that_it_was_given_and_no_other(start, framework):
    assert start(visible_gpus)(framework=framework).value == 1.0


def test_a_trial_that_was_given_none_sees_none(start, framework):
    assert start(visible_gpus, gpus=())(framework=framework).value == 0.0


def test_a_trial_computes_on_its_gpu(start, framework):
    outcome = start(train)(framework=framework, device="gpu", **SMALL)
    assert outcome.status == "finished", outcome.error
    assert 0 < outcome.metrics["loss"] < 10


@pytest.mark.parametrize("kill", [False, True])
def test_the_memory_of_a_trial_comes_back_when_it_ends_and_when_it_is_killed(
    start, framework, kill
):
    run, kept_by = start(take), []
    with Gpus(["0"]) as gpus:
        before = gpus.use()["0"].memory
        run.runner = WatchedRunner(run.runner, gpus, lambda *kept: kept_by.append(kept))
        outcome = run(framework=framework, gib=2, kill=kill)
        assert outcome.status == ("failed" if kill else "finished"), outcome.error
        assert kept_by == []
        assert gpus.use()["0"].memory - before < GIB


def test_the_use_of_the_gpu_becomes_curves_of_the_trial(start, framework):
    def train_until_recorded(framework):
        import pathlib

        from spark_jobs.trial.context import logdir
        from tests.gpu.training import train

        events = pathlib.Path(logdir(), "events.out.tfevents.trial")
        while not events.exists() or b"memory_GiB" not in events.read_bytes():
            train(framework, "gpu", 0.01, 10, 32)
        return 1

    run = start(train_until_recorded)
    with Gpus(["0"]) as gpus:
        run.runner = WatchedRunner(run.runner, gpus, lambda *kept: pytest.fail(str(kept)))
        outcome = run(framework=framework)
    assert outcome.status == "finished", outcome.error
    assert all(value > 0 for _, value in scalars(run.files.folder)["gpu/0/memory_GiB"])


def test_a_trial_keeps_to_its_share_of_the_memory(start, framework):
    with Gpus(["0"]) as gpus:
        total = gpus.use()["0"].total >> 30
    run = start(take, trials=4)
    assert run(framework=framework, gib=max(1, total // 8)).status == "finished"
    outcome = run(framework=framework, gib=total // 2)
    assert (outcome.status, outcome.error.kind) == ("failed", "gpu memory")


def test_trials_that_share_a_gpu_all_come_to_their_end(framework):
    params = {"framework": framework, "device": "gpu", **SMALL}
    outcomes = run_trials([params] * 8, slots=4, cores=4, preload=[framework])
    assert [outcome.status for outcome in outcomes] == ["finished"] * 8
