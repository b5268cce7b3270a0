"""Sizes of memory in Spark's settings."""

import pytest

from spark_jobs.cluster.memory_sizes import mebibytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", 512),
        ("512m", 512),
        (" 2G ", 2048),
        ("1gb", 1024),
        ("2048k", 2),
        ("1048576b", 1),
        ("1t", 2**20),
        ("", None),
        ("much", None),
        (None, None),
    ],
)
def test_a_size_is_in_mebibytes(text, expected):
    assert mebibytes(text) == expected
