"""DEHB: differential evolution with Hyperband, on dask."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dehb import DEHB
from distributed import Client, LocalCluster, wait

from tests.benchmarks.peers.trials import Configuration, Train, taking_turns


class Program:
    """A cluster of dask for the session."""

    def __init__(self, slots: int, folder: Path) -> None:
        self._folder = folder
        self._cluster = LocalCluster(
            n_workers=slots,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(folder),
        )
        self._client = Client(self._cluster)

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        run = taking_turns(self._folder, train, configurations)
        return list(self._evaluate(run, ["x"], fevals=len(configurations), total_cost=limit).traj)

    def evolve(
        self,
        train: Train,
        bounds: dict[str, tuple[float, float]],
        popsize: int,
        generations: int,
    ) -> None:
        search = self._evaluate(train, list(bounds), fevals=popsize * (generations + 1))
        wait(search.futures)  # of the trials that still run when `run` returns

    def _evaluate(self, train: Train, names: list[str], **budget: Any) -> DEHB:
        search = DEHB(
            f=functools.partial(_call, train, names),
            dimensions=len(names),
            min_fidelity=1,
            max_fidelity=3,
            client=self._client,
            seed=1,
            output_path=self._folder / uuid.uuid4().hex,
        )
        search.run(**budget)  # returns None after an error, which it only logs
        return search

    def close(self) -> None:
        self._client.close()
        self._cluster.close()


def _call(
    train: Callable[..., float], names: list[str], values: Sequence[float], fidelity: float
) -> dict[str, float]:
    """Call a train function as DEHB does; it ignores the fidelity."""
    del fidelity
    began = time.time()
    value = train(**dict(zip(names, map(float, values), strict=True)))
    return {"fitness": value, "cost": time.time() - began}
