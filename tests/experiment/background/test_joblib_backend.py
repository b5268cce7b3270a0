"""The executor as a backend of joblib, on threads; on Spark it is tested with scikit-learn."""

from __future__ import annotations

import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor

import joblib
import pytest

from experiment.background.joblib_backend import ExecutorBackend
from tests import ROOT
from tests.experiment.waiting import wait_until


def test_the_package_asks_for_a_joblib_whose_backends_submit():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "joblib>=1.5" in project["dependencies"]


@pytest.mark.parametrize(
    ("n_jobs", "calls"), [(None, 1), (1, 1), (3, 3), (-1, 2), (-2, 1), (-9, 1)]
)
def test_the_number_of_jobs_counts_slots(n_jobs, calls):
    with ThreadPoolExecutor(2) as pool, joblib.parallel_config(backend=ExecutorBackend(pool, 2)):
        assert joblib.effective_n_jobs(n_jobs) == calls


def test_no_jobs_at_all_are_refused():
    with pytest.raises(ValueError, match="n_jobs == 0 has no meaning"):
        ExecutorBackend(None, 2).effective_n_jobs(0)


class Picky(ThreadPoolExecutor):
    """An executor of two threads that accepts four calls, which end once it has them."""

    def __init__(self):
        super().__init__(2)
        self.accepted, self.gate = 0, threading.Event()

    def submit(self, *args, **kwargs):
        """Submit a call, or raise."""
        if self.accepted == 4:
            raise ValueError("too large")
        self.accepted += 1
        future = super().submit(*args, **kwargs)
        if self.accepted == 4:
            self.gate.set()
        return future


@pytest.mark.parametrize("returned", ["list", "generator_unordered"])
def test_a_batch_that_cannot_be_submitted_later_raises_its_error(returned):
    """joblib submits two batches per job in the caller's thread, and the others in callbacks."""
    errors = []

    def run():
        with Picky() as pool, joblib.parallel_config(backend=ExecutorBackend(pool, 2)):
            waits = (joblib.delayed(pool.gate.wait)() for _ in range(5))
            try:
                list(joblib.Parallel(2, return_as=returned)(waits))
            except ValueError as error:
                errors.append(str(error))

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: errors)
    assert errors == ["too large"]
