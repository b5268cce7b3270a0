"""A trial's share of a GPU's memory, where several trials run on one GPU."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Self

import msgspec

from spark_jobs.import_hooks import when_imported

_SHARED = 0.9  # share of a GPU's memory for all trials; CUDA itself takes more in each process


class GpuShare(msgspec.Struct, frozen=True):
    """The share of its GPU's memory that a trial may take.

    Attributes:
        fraction: Share of the whole memory, between 0 and 1.
        memory: Bytes of the whole memory; None if unknown, and then TensorFlow has no limit.
    """

    fraction: float
    memory: int | None = None

    @classmethod
    def of(cls, trials: int, memory: int | None) -> Self:
        """Return the share of each of several trials on one GPU."""
        return cls(_SHARED / trials, memory)

    def environment(self) -> dict[str, str | None]:
        """Return the variables that limit JAX and CuPy to the share, unless the user set them.

        JAX takes the whole share when it starts. It refuses to start if both the old and the new
        name of its variable are set; all versions know the old one.
        """
        limits = {
            ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"): f"{self.fraction:.4f}",
            ("CUPY_GPU_MEMORY_LIMIT",): f"{self.fraction:.2%}",
        }
        return {n[0]: limit for n, limit in limits.items() if not os.environ.keys() & set(n)}


@contextlib.contextmanager
def limited(share: GpuShare | None) -> Iterator[None]:
    """Limit TensorFlow and PyTorch to the share, once the block imports them.

    Not all of their versions have a variable for it. Setting the limit starts CUDA, so it must
    happen in the trial's own process.
    """
    if share is None:
        yield
        return
    with (
        when_imported("tensorflow", lambda module: _limit_tensorflow(module, share)),
        when_imported("torch", lambda module: _limit_torch(module, share)),
    ):
        yield


def _limit_tensorflow(tensorflow: Any, share: GpuShare) -> None:
    if share.memory is None:
        return
    config, mebibytes = tensorflow.config, int(share.fraction * share.memory) >> 20
    with _tried(tensorflow):
        for gpu in config.list_physical_devices("GPU"):
            limit = config.LogicalDeviceConfiguration(memory_limit=mebibytes)
            config.set_logical_device_configuration(gpu, [limit])
        config.experimental.set_memory_growth = _grow


def _grow(device: Any, enable: bool) -> None:
    """Do nothing, where `set_memory_growth` would raise: memory grows up to the limit anyway."""


def _limit_torch(torch: Any, share: GpuShare) -> None:
    with _tried(torch):
        if torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(share.fraction)


@contextlib.contextmanager
def _tried(module: ModuleType) -> Iterator[None]:
    """Write an error to the trial's log and continue: a trial without a limit is better than none.

    Such as when an earlier trial in the same process (isolation='none') has started TensorFlow.
    """
    try:
        yield
    except Exception as error:
        print(f"no limit to {module.__name__}'s GPU memory: {error}", file=sys.stderr)
