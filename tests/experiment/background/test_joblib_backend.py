"""The executor as a backend of joblib, on threads; on Spark it is tested with scikit-learn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import joblib
import pytest

from experiment.background.joblib_backend import ExecutorBackend


@pytest.mark.parametrize(
    ("n_jobs", "calls"), [(None, 1), (1, 1), (3, 3), (-1, 2), (-2, 1), (-9, 1)]
)
def test_the_number_of_jobs_counts_slots(n_jobs, calls):
    with ThreadPoolExecutor(2) as pool, joblib.parallel_config(backend=ExecutorBackend(pool, 2)):
        assert joblib.effective_n_jobs(n_jobs) == calls
