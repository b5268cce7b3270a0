"""An executor as a backend of joblib, so that scikit-learn's `n_jobs=` counts slots."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from joblib.parallel import ParallelBackendBase


class ExecutorBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """Runs joblib's batches as calls of an executor.

    Args:
        pool: The executor; it stays open.
        slots: Maximum calls that it runs at once.
        nesting_level: The nesting level of parallel calls; see joblib.
    """

    supports_retrieve_callback = True

    def __init__(self, pool: Executor, slots: int, nesting_level: int | None = None) -> None:
        super().__init__(nesting_level=nesting_level)
        self.default_n_jobs = slots
        self._pool = pool
        self._slots = slots
        self._futures: list[Future[Any]] = []

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls to submit at once; -1 means one per slot.

        None means 1, as for the backends of joblib.
        """
        if n_jobs is None:
            return 1
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 has no meaning")
        return n_jobs if n_jobs > 0 else max(1, self._slots + 1 + n_jobs)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None
    ) -> Future[Any]:
        """Submit a batch; the future has the error if it cannot be submitted.

        joblib submits most batches in callbacks. It would lose an error there, and wait for ever.
        """
        self._futures = [future for future in self._futures if not future.done()]
        try:
            future = self._pool.submit(func)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        self._futures.append(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return a batch's result, or raise its error."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that have not started."""
        for future in self._futures:
            future.cancel()
