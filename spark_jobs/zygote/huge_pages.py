"""Fewer, larger pages for the zygote: a fork copies one table entry per page.

After the import of TensorFlow a process has 290 MB of private memory in 73,000 pages of 4 kB. With
most of it in pages of 2 MB, fork and exit of a child take about half as long; and half as long
again if Python's small objects lie side by side, since otherwise a third of the memory is in pieces
that are too small for such pages.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path

_MADV_COLLAPSE = 25  # Linux 6.1; works where transparent huge pages are off, too
_SIZE = 2 << 20  # bytes of a huge page on x86-64 and on most of Arm
_ARENAS = 200  # MiB; the import of TensorFlow and Keras takes 160
_BLOCK = bytes(512 - b"".__sizeof__())  # the largest object in an arena
_BLOCKS = 1984  # of these in an arena of 1 MiB, from Python 3.10 on


@contextlib.contextmanager
def side_by_side() -> Iterator[None]:
    """Let the small objects that the block creates lie side by side, for an import of much code.

    Python takes the memory for them in arenas of 1 MiB, which the kernel puts between the libraries
    that are loaded meanwhile. So this takes enough of them beforehand, by an object in each, and
    returns those that are empty after the block.
    """
    count = _ARENAS * _BLOCKS
    objects: list[bytes | None] = [None] * count  # it must not grow: it would lie between them
    for number in range(count):
        objects[number] = _BLOCK[1:] + b"\0"
    holding = objects[:: _BLOCKS // 2]
    del objects
    try:
        yield
    finally:
        holding.clear()


def use_huge_pages() -> int:
    """Collapse this process' anonymous memory into huge pages; return their number.

    Only an optimisation: if the kernel cannot do it, the pages stay as they are.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(madvise(start, _SIZE, _MADV_COLLAPSE) == 0 for start in huge_ranges(maps))


def huge_ranges(maps: Iterable[str]) -> Iterator[int]:
    """Yield the aligned addresses at which a huge page fits into anonymous writable memory.

    Args:
        maps: Lines of /proc/PID/maps.
    """
    for line in maps:
        fields = line.split()
        anonymous = len(fields) < 6 or fields[5] == "[heap]"
        if fields[1] == "rw-p" and anonymous:
            start, end = (int(address, 16) for address in fields[0].split("-"))
            yield from range(-(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE, _SIZE)
