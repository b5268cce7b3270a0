"""Sizes of memory in Spark's settings."""

from __future__ import annotations

import re

_MIB = {"b": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
_SIZE = re.compile(r"\s*(\d+)\s*([bkmgtp]?)b?\s*", re.IGNORECASE)


def mebibytes(text: str | None) -> float | None:
    """Return a size in MiB, which is its unit if it has none; None if it is none.

    Args:
        text: The value of a setting, such as '512m', '2g' or '1024'; None if it is not set.
    """
    match = _SIZE.fullmatch(text or "")
    return int(match[1]) * _MIB[match[2].lower() or "m"] if match else None
