"""The supported versions of Spark."""

from __future__ import annotations

import re

from search.errors import InvalidArgument

OLDEST = (4, 0)
"""The oldest supported Spark, as in the package's requirements."""


def check_spark_version(version: str, whose: str, hint: str) -> None:
    """Refuse a Spark that is too old.

    Args:
        version: The version, such as "4.0.1"; only the first two numbers count.
        whose: The name of the software with this version, for people: "pyspark".
        hint: The way to get a newer version.

    Raises:
        InvalidArgument: The version is older than `OLDEST`.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InvalidArgument("spark", f"{whose} {oldest} or newer", f"{whose} {version}", hint)
