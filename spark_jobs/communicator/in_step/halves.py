"""Floating-point numbers of 16 bits for the way between two members."""

from __future__ import annotations

import numpy as np

from search.errors import InvalidArgument
from spark_jobs.communicator.arrays import Array

LARGEST = float(np.finfo(np.float16).max)
"""The largest number that 16 bits hold."""

_EXPONENT = 0x7C00  # the bits that are all set in infinities and in NaN


class Halves:
    """Rounds numbers to 16 bits, and remembers those that are too large for it.

    Attributes:
        overflow: The largest magnitude that became infinite; 0 without one.
    """

    def __init__(self) -> None:
        self.overflow = 0.0

    def of(self, numbers: Array) -> Array:
        """Return floating-point numbers in 16 bits: infinite where they exceed `LARGEST`."""
        with np.errstate(over="ignore", under="ignore"):
            halves = numbers.astype(np.float16)
        if (halves.view(np.uint16) & _EXPONENT == _EXPONENT).any():  # faster than `np.isfinite`
            lost = np.abs(numbers[np.isinf(halves) & np.isfinite(numbers)])
            self.overflow = max([self.overflow, *map(float, lost)])
        return halves


def summed(array: Array) -> Array:
    """Return numbers in the type to sum them in: of 32 bits, or their own wider or complex one."""
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def too_large(index: int, number: float) -> InvalidArgument:
    """Return the error for a number in `arrays[index]`, or a sum there, that exceeds `LARGEST`."""
    expected = f"numbers and sums from {-LARGEST:.0f} to {LARGEST:.0f} for compress='float16'"
    hint = "divide the arrays by a number before the call, or leave out compress"
    return InvalidArgument(f"arrays[{index}]", expected, f"{number:.6g}", hint)
