"""scipy's differential evolution, whose workers are processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import differential_evolution

from tests.benchmarks.peers.trials import Configuration, Train, taking_turns

_FEWEST = 5  # individuals that scipy demands


class Program:
    """A pool of processes for the session."""

    def __init__(self, slots: int, folder: Path) -> None:
        self._pool, self._folder = multiprocessing.Pool(slots), folder

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        """Evaluate whole populations: at most as many trials as there are configurations."""
        popsize = max(_FEWEST, min(len(configurations), 10))
        run = taking_turns(self._folder, train, configurations)
        generations = max(0, len(configurations) // popsize - 1)
        evolve_by_generation(self._pool.map, run, {"x": (0.0, 1.0)}, popsize, generations)
        return [None] * (popsize * (generations + 1))

    def evolve(
        self,
        train: Train,
        bounds: dict[str, tuple[float, float]],
        popsize: int,
        generations: int,
    ) -> None:
        evolve_by_generation(self._pool.map, train, bounds, popsize, generations)

    def close(self) -> None:
        self._pool.terminate()


def evolve_by_generation(
    evaluate: Callable[..., Any],
    train: Train,
    bounds: dict[str, tuple[float, float]],
    popsize: int,
    generations: int,
) -> None:
    """Evolve with scipy; `evaluate` is a `map` that runs a generation in parallel."""
    lows, highs = zip(*bounds.values(), strict=True)
    rng = np.random.default_rng(1)
    differential_evolution(
        functools.partial(_call, train, list(bounds)),
        list(bounds.values()),
        init=rng.uniform(lows, highs, (popsize, len(bounds))),
        maxiter=generations,
        tol=0,
        polish=False,
        updating="deferred",
        workers=evaluate,
        rng=rng,
    )


def _call(train: Train, names: Sequence[str], values: Sequence[float]) -> float:
    return train(**dict(zip(names, map(float, values), strict=True)))
