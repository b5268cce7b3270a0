"""The memory and the use of a slot's GPUs, from NVIDIA's management library (NVML)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

GIB = 1 << 30


class GpuUse(NamedTuple):
    """The use of a GPU at one moment, by all processes.

    Attributes:
        memory: Bytes in use.
        total: Bytes in all.
        utilization: Share of the time in which it computed, 0 to 1; None if unknown, as for a part
            of a GPU (MIG).
    """

    memory: int
    total: int
    utilization: float | None


class Unowned(NamedTuple):
    """Memory of a GPU that belongs to no process that NVML lists.

    Attributes:
        memory: Bytes, including those of NVIDIA's driver.
        lists_owners: Whether NVML lists processes with memory there. In many containers it lists
            none, and all memory seems to have no owner.
    """

    memory: int
    lists_owners: bool


class Gpus:
    """GPUs in NVML. A context manager; outside it, all results are empty.

    Without NVIDIA's driver, its library, or the package pynvml all results are empty, which is no
    error. A GPU that the library does not know, or that fails, is missing in the results.

    Args:
        addresses: The GPUs' addresses from Spark: indexes as in nvidia-smi, or UUIDs ("GPU-...",
            "MIG-...").
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._handles: dict[str, Any] = {}
        self._initialized = False

    def __enter__(self) -> Self:
        if self._addresses:
            with contextlib.suppress(ModuleNotFoundError):
                self._open()
        return self

    def _open(self) -> None:
        import pynvml  # late: slots without GPUs do not need it

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._initialized = True
            for address in self._addresses:
                with contextlib.suppress(pynvml.NVMLError):
                    self._handles[address] = _handle(address)

    def __exit__(self, *error: object) -> None:
        self._handles = {}
        if self._initialized:
            import pynvml

            self._initialized = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    @property
    def known(self) -> tuple[str, ...]:
        """The addresses of the GPUs that NVML knows, in Spark's order."""
        return tuple(self._handles)

    def position(self, address: str) -> int:
        """Return a framework's number of a GPU: its position among the slot's GPUs."""
        return self._addresses.index(address)

    def use(self) -> dict[str, GpuUse]:
        """Return the present use of each GPU, by its address."""
        if not self._handles:
            return {}
        import pynvml

        uses = {}
        for address, handle in self._handles.items():
            with contextlib.suppress(pynvml.NVMLError):
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                uses[address] = GpuUse(int(memory.used), int(memory.total), _utilization(handle))
        return uses

    def unowned(self) -> dict[str, Unowned]:
        """Return each GPU's memory without a listed owner, by its address."""
        if not self._handles:
            return {}
        import pynvml

        unowned = {}
        for address, handle in self._handles.items():
            with contextlib.suppress(pynvml.NVMLError):
                owned = _memory_by_process(handle)
                memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
                unowned[address] = Unowned(max(0, memory - sum(owned.values())), bool(owned))
        return unowned


def _handle(address: str) -> Any:
    import pynvml

    if address.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(address))
    return pynvml.nvmlDeviceGetHandleByUUID(address)


def _utilization(handle: Any) -> float | None:
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except pynvml.NVMLError:
        return None


def _memory_by_process(handle: Any) -> dict[int, int]:
    """Return the bytes of each process on a GPU, if known."""
    import pynvml

    processes = [
        *pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        *pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
    ]
    return {
        process.pid: process.usedGpuMemory
        for process in processes
        if process.usedGpuMemory is not None
    }
