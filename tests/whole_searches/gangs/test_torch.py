"""Trials whose workers train one model with PyTorch's DDP, on a real local Spark."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import experiment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.contract,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def train(rate):
    """Train on given batches as a program for `torchrun` does; print weights and gradients."""
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(experiment.rank())  # DDP begins with the weights of rank 0
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    if experiment.world_size() > 1:
        distributed.init_process_group("gloo")
        assert distributed.get_rank() == experiment.rank()
        assert distributed.get_world_size() == experiment.world_size()
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    data = np.random.default_rng(7).normal(size=(20, 32, 9)).astype(np.float32)
    for batch in data:
        part = torch.from_numpy(batch[experiment.rank() :: experiment.world_size()].copy())
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(part[:, :8]), part[:, 8:])
        loss.backward()
        optimizer.step()
    weights = [weight.detach().flatten() for weight in model.parameters()]
    gradients = [weight.grad.flatten() for weight in model.parameters()]
    print(
        json.dumps(
            {
                "weights": torch.cat(weights).tolist(),
                "gradients": torch.cat(gradients).tolist(),
                "part": part.tolist(),
            }
        )
    )
    if experiment.world_size() > 1:
        distributed.destroy_process_group()
    return float(loss)


def test_workers_train_the_model_of_one_by_ddp_as_it_is(spark, logdir):
    settings = {"strategy": None, "preload": (), "verbose": 0, "logdir": logdir}
    seen = []
    for workers in (1, 2):
        run = experiment.launch(
            spark, train, {"rate": [0.1]}, workers_per_trial=workers, **settings
        )
        assert run.trials[0].status == "finished", run.trials[0]
        seen.append(Path(run.trials[0].logdir, "stdout.log"))
    seen.append(Path(run.trials[0].logdir, "workers", "1", "stdout.log"))
    alone, first, second = (json.loads(log.read_text().splitlines()[-1]) for log in seen)
    assert first["part"] != second["part"]
    for what in ("weights", "gradients"):
        assert first[what] == second[what]
        assert np.abs(alone[what]).max() > 0.01
        np.testing.assert_allclose(first[what], alone[what], rtol=0, atol=1e-5)
