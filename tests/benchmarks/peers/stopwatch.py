"""Wall time, processor time of a run's process tree, and the load of everything else meanwhile."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import psutil


class Stopwatch:
    """Measures the block under `with`; several blocks add up.

    The tree's root is this process's parent, `measured.py`: orphans are its children.

    Attributes:
        seconds: Wall time.
        processor: Processor seconds of the tree.
        others: Processor seconds of all other processes of the machine.
    """

    def __init__(self) -> None:
        self.seconds = self.processor = self.others = 0.0

    def __enter__(self) -> Stopwatch:
        self._began = time.perf_counter(), tree_seconds(os.getppid()), busy_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        wall, tree, busy = self._began
        tree = tree_seconds(os.getppid()) - tree
        self.seconds += time.perf_counter() - wall
        self.processor += tree
        self.others += max(0.0, busy_seconds() - busy - tree)

    def costs(self) -> dict[str, float]:
        """Return processor seconds, and the cores that others kept busy on average."""
        return {"processor": self.processor, "others": self.others / max(self.seconds, 1e-9)}


def tree_seconds(root: int) -> float:
    """Return the processor seconds of a process and its descendants, ended ones too.

    A process's time passes to its parent's `children_*` when it is waited for, and is lost where a
    parent ignores SIGCHLD. A process that ends while this reads may be missed or counted twice,
    which later readings correct.
    """
    return sum(sum(_times(process)[:4]) for process in _tree(root))


def busy_seconds() -> float:
    """Return the seconds that all cores have worked, or were taken by other virtual machines."""
    times: Any = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _tree(root: int) -> list[psutil.Process]:
    top = psutil.Process(root)
    return [top, *top.children(recursive=True)]


def _times(process: psutil.Process) -> tuple[float, ...]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return tuple(process.cpu_times())
    return (0.0,)
