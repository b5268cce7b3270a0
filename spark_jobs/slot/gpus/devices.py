"""The GPUs and threads of a trial's process, set by environment variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.slot.gpus.nvml import Gpus
from spark_jobs.trial.memory.gpu_share import GpuShare


def trial_environment(
    gpus: Sequence[str], *, spark_assigns_gpus: bool, cpus: int, share: GpuShare | None = None
) -> dict[str, str | None]:
    """Return the environment variables of a trial on a slot.

    Args:
        gpus: Addresses of the GPUs that Spark assigned to the slot.
        spark_assigns_gpus: Whether Spark assigns GPUs in this application. If so, a slot without
            any sees none; if not, the user's CUDA_VISIBLE_DEVICES stays.
        cpus: Cores of the slot, and threads of TensorFlow unless the user set a number.
        share: The share of its GPU's memory that the trial may take; None for all of it.
    """
    environment: dict[str, str | None] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if gpus or spark_assigns_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        if "CUDA_DEVICE_ORDER" not in os.environ:  # CUDA's default: the fastest first
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order of nvidia-smi and NVML
    if share is not None:
        environment |= share.environment()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        if name not in os.environ:
            environment[name] = str(cpus)
    return environment


def gpu_share(gpus: Sequence[str], trials: int) -> GpuShare | None:
    """Return the share of its GPU's memory that a slot's trial may take; None for all of it.

    Args:
        gpus: Addresses of the GPUs that Spark assigned to the slot.
        trials: The number of trials that share a GPU.
    """
    return GpuShare.of(trials, total_memory(gpus[0])) if gpus and trials > 1 else None


def total_memory(address: str) -> int | None:
    """Return the bytes of a GPU's memory, without starting CUDA; None if NVML does not know.

    Args:
        address: The GPU's address from Spark: an index as in nvidia-smi, or a UUID ("GPU-...",
            "MIG-...").
    """
    with Gpus([address]) as gpus:
        use = gpus.use().get(address)
    return None if use is None else use.total


def host_gpus(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Return the number of GPUs of this host, without starting CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    if visible is None:
        return present
    listed = [address for address in visible.split(",") if address.strip() not in ("", "-1")]
    return min(present, len(listed))
