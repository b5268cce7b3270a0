from __future__ import annotations

import subprocess
import sys

from spark_jobs.zygote.huge_pages import huge_ranges, use_huge_pages

MEGABYTE = 1 << 20


def test_only_whole_aligned_pages_of_anonymous_writable_memory_are_taken():
    maps = [
        f"{1 * MEGABYTE:x}-{7 * MEGABYTE:x} rw-p 00000000 00:00 0",
        f"{8 * MEGABYTE:x}-{10 * MEGABYTE:x} rw-p 00000000 00:00 0   [heap]",
        f"{12 * MEGABYTE:x}-{16 * MEGABYTE:x} r--p 00000000 00:00 0",
        f"{16 * MEGABYTE:x}-{20 * MEGABYTE:x} rw-p 00000000 08:01 42   /usr/lib/some.so",
        f"{21 * MEGABYTE:x}-{22 * MEGABYTE:x} rw-p 00000000 00:00 0",
    ]
    assert list(huge_ranges(maps)) == [2 * MEGABYTE, 4 * MEGABYTE, 8 * MEGABYTE]


def test_memory_keeps_its_contents():
    data = [bytes([number % 256]) * 100_000 for number in range(100)]
    assert use_huge_pages() >= 0
    assert all(block == bytes([n % 256]) * 100_000 for n, block in enumerate(data))


def test_small_objects_of_an_import_lie_side_by_side_and_the_rest_is_returned():
    code = """
import re
from pathlib import Path
from spark_jobs.zygote.huge_pages import side_by_side

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

before = resident()
with side_by_side():
    kept = [bytes(400) for _ in range(50_000)]
print((max(map(id, kept)) - min(map(id, kept))) >> 20, resident() - before)
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    apart, grown = map(int, output.split())
    assert apart < 30, "MiB from the first to the last, which have 20 MiB"
    assert grown < 60, "MiB"
