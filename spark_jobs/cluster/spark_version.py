"""Which versions of Spark the framework runs on."""

from __future__ import annotations

import re

from search.errors import InvalidArgument

OLDEST = (4, 0)
"""The oldest Spark that it runs on, as in the requirements of the package."""


def check_spark_version(version: str, whose: str, hint: str) -> None:
    """Refuse a Spark that is too old.

    Args:
        version: "4.0.1", or with more after the first two numbers.
        whose: What has this version, for people: "pyspark".
        hint: How to get another one.

    Raises:
        InvalidArgument: It is older than `OLDEST`.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InvalidArgument("spark", f"{whose} {oldest} or newer", f"{whose} {version}", hint)
