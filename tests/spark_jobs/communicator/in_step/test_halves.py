"""Numbers are rounded to 16 bits, and those that are too large are remembered."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.communicator.in_step.halves import LARGEST, Halves, summed, too_large


def test_numbers_are_rounded():
    halves = Halves()
    found = halves.of(np.array([0.1, -1.0, 65504.0, 1e-9], np.float32))
    assert found.dtype == np.float16
    assert found.tolist() == [np.float16(0.1), -1.0, LARGEST, 0.0]
    assert halves.overflow == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_number_that_became_infinite_is_remembered(dtype):
    halves = Halves()
    found = halves.of(np.array([1.0, 70_000.0, -80_000.0, np.inf, np.nan], dtype))
    assert found[1] == np.inf
    assert found[2] == -np.inf
    halves.of(np.array([2.0], dtype))
    halves.of(np.array([66_000.0], dtype))
    assert halves.overflow == 80_000


def test_infinite_numbers_are_not_too_large():
    halves = Halves()
    halves.of(np.array([np.inf, -np.inf, np.nan], np.float32))
    assert halves.overflow == 0


def test_sums_have_at_least_32_bits():
    types = [summed(np.zeros(1, dtype)).dtype for dtype in (np.float16, np.float32, np.float64)]
    assert types == [np.float32, np.float32, np.float64]


def test_the_error_has_name_limit_number_and_remedy():
    assert str(too_large(1, 70_000.0)) == (
        "arrays[1]: expected numbers and sums from -65504 to 65504 for compress='float16', got "
        "70000; divide the arrays by a number before the call, or leave out compress"
    )
