"""What a trial's process may use of its host: GPUs and threads, said through its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.slot.nvml import Gpus
from spark_jobs.trial.gpu_share import GpuShare


def trial_environment(
    gpus: Sequence[str], *, spark_assigns_gpus: bool, cpus: int, share: GpuShare | None = None
) -> dict[str, str | None]:
    """Return the variables of a trial on a slot.

    Args:
        gpus: Addresses that Spark gave the slot.
        spark_assigns_gpus: Does Spark hand out GPUs in this application? Where it does, a slot
            without any sees none; where it does not, the user's CUDA_VISIBLE_DEVICES stays.
        cpus: Cores of the slot; as many threads for TensorFlow, where the user set no number.
        share: How much of its GPU's memory the trial may take; None for all of it.
    """
    environment: dict[str, str | None] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if gpus or spark_assigns_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        if "CUDA_DEVICE_ORDER" not in os.environ:  # CUDA's own begins with the fastest GPU
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts, and NVML
    if share is not None:
        environment |= share.environment()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        if name not in os.environ:
            environment[name] = str(cpus)
    return environment


def gpu_share(gpus: Sequence[str], trials: int) -> GpuShare | None:
    """Return how much of its GPU's memory each trial of a slot may take; None for all of it.

    Args:
        gpus: Addresses that Spark gave the slot.
        trials: How many trials share a GPU.
    """
    return GpuShare.of(trials, total_memory(gpus[0])) if gpus and trials > 1 else None


def total_memory(address: str) -> int | None:
    """Return the bytes of a GPU's memory, without starting CUDA; None where NVML does not say.

    Args:
        address: As Spark gives it: an index as of nvidia-smi, or a UUID ("GPU-...", "MIG-...").
    """
    with Gpus([address]) as gpus:
        use = gpus.use().get(address)
    return None if use is None else use.total


def host_gpus(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Return how many GPUs a process on this host may see, without starting CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    if visible is None:
        return present
    listed = [address for address in visible.split(",") if address.strip() not in ("", "-1")]
    return min(present, len(listed))
