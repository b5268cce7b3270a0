"""dask.distributed with a cluster on this host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distributed import Client, LocalCluster, wait

from tests.benchmarks.peers.trials import Configuration, Train


class Program:
    """A cluster of processes with one thread each."""

    def __init__(self, slots: int, folder: Path) -> None:
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
        futures = [self._client.submit(train, **values, pure=False) for values in configurations]
        try:
            wait(futures, timeout=limit)
        except TimeoutError:
            late = [future for future in futures if not future.done()]
            self._client.cancel(late, force=True)
            futures = [future for future in futures if future not in late]
        return self._client.gather(futures, errors="skip")

    def close(self) -> None:
        self._client.close()
        self._cluster.close()
