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
    """Between the objects, the import maps libraries: without help each would cut a huge page.

    Where the first and the last object lie is not compared: the first ones fill what the process
    had free before, which may be anywhere.
    """
    code = """
import mmap, re
from pathlib import Path
from spark_jobs.zygote.huge_pages import huge_ranges, side_by_side

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

before = resident()
kept, libraries = [], []
with side_by_side():
    for _ in range(50):
        kept += [bytes(400) for _ in range(1_000)]
        libraries.append(mmap.mmap(-1, 1 << 20, prot=mmap.PROT_READ))
grown = resident() - before
pages = set(huge_ranges(Path("/proc/self/maps").read_text().splitlines()))
inside = sum(id(one) >> 21 << 21 in pages for one in kept)
print(inside, grown)
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    inside, grown = map(int, output.split())
    assert inside > 25_000, "of 50,000 objects lie in whole huge pages; without help none"
    assert grown < 60, "MiB"
