"""The memory of this process' control groups, by which the kernel limits containers.

The standard library alone, for the keeper of an importer.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_LIMIT_AND_USE = (
    ("memory.max", "memory.current"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
)
# Of the group with those below it: version 1 prefixes this, and has a number without them, too.
_UNUSED_CACHE = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)


def memory_groups() -> Iterator[Path]:
    """Yield the folder of the control group of this process' memory, then those of its parents.

    In a container its own group is at the root, whatever its name.
    """
    groups = {}
    with contextlib.suppress(OSError):
        for line in _OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups[controllers] = path.strip("/")
    name, root = ("memory", _ROOT / "memory") if "memory" in groups else ("", _ROOT)
    folder = root / groups.get(name, "")
    yield folder
    while folder != root:
        folder = folder.parent
        yield folder


def memory_limits() -> Iterator[int]:
    """Yield the limits of these groups in bytes."""
    for folder in memory_groups():
        for limit, _ in _LIMIT_AND_USE:
            with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
                yield int((folder / limit).read_text())


def are_killed_together() -> bool:
    """Return whether the kernel, out of memory, kills all processes of such a group, not one."""
    for folder in memory_groups():
        with contextlib.suppress(OSError):  # not in version 1, nor at the root of a host
            if (folder / "memory.oom.group").read_text().strip() == "1":
                return True
    return False


def free_share() -> float:
    """Return the smallest free share of these groups' limits; 1 without a limit."""
    return min((free / max(limit, 1) for limit, free in _limits_and_free()), default=1.0)


def free_bytes() -> float:
    """Return the fewest bytes that are free below these groups' limits; inf without a limit."""
    return min((free for _, free in _limits_and_free()), default=math.inf)


def _limits_and_free() -> Iterator[tuple[int, int]]:
    """Yield the limits of these groups, and what is free below each, in bytes.

    Pages of files that were not read for some time count as free, since the kernel drops them.
    """
    for folder, (limit, use) in itertools.product(memory_groups(), _LIMIT_AND_USE):
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            allowed, used = int((folder / limit).read_text()), int((folder / use).read_text())
            found = _UNUSED_CACHE.findall((folder / "memory.stat").read_text())
            yield allowed, max(0, allowed - used + max(map(int, found), default=0))
