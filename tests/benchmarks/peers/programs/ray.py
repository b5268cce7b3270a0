"""Ray Tune on a Ray cluster of this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.trials import Configuration, Train

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its servers listen on loopback only
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray import tune


class Program:
    """A Tuner per search, with a grid."""

    def __init__(self, slots: int, folder: Path, *, reuse_actors: bool) -> None:
        self._folder, self._reuse_actors = folder, reuse_actors
        ray.init(
            num_cpus=slots,
            include_dashboard=False,
            object_store_memory=200_000_000,
            log_to_driver=False,
            _temp_dir=str(folder),
        )

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        def run(config: dict[str, Any]) -> dict[str, float]:
            return {"value": train(**configurations[config["trial"]])}

        results = tune.Tuner(
            run,
            param_space={"trial": tune.grid_search(list(range(len(configurations))))},
            tune_config=tune.TuneConfig(time_budget_s=limit, reuse_actors=self._reuse_actors),
            run_config=tune.RunConfig(storage_path=str(self._folder / "runs"), verbose=0),
        ).fit()
        return [one.metrics["value"] for one in results if "value" in (one.metrics or {})]

    def close(self) -> None:
        ray.shutdown()
