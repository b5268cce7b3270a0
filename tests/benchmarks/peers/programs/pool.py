"""Python's process pool: the least that processes cost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path

from tests.benchmarks.peers.trials import Configuration, Train


class Program:
    """A pool kept for the session."""

    def __init__(self, slots: int, folder: Path) -> None:
        del folder
        self._pool = ProcessPoolExecutor(slots)

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        futures = [self._pool.submit(train, **values) for values in configurations]
        ended, _ = wait(futures, timeout=limit)
        return [future.result() for future in ended if future.exception() is None]

    def close(self) -> None:
        self._pool.shutdown()
