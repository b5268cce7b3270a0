"""What a trial's process may use of its host: GPUs and threads, said through its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def trial_environment(
    gpus: Sequence[str], *, spark_assigns_gpus: bool, cpus: int
) -> dict[str, str | None]:
    """Return the variables of a trial on a slot.

    Args:
        gpus: Addresses that Spark gave the slot.
        spark_assigns_gpus: Does Spark hand out GPUs in this application? Where it does, a slot
            without any sees none; where it does not, the user's CUDA_VISIBLE_DEVICES stays.
        cpus: Cores of the slot; as many threads for TensorFlow, where the user set no number.
    """
    environment: dict[str, str | None] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if gpus or spark_assigns_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        if name not in os.environ:
            environment[name] = str(cpus)
    return environment


def host_gpus(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Return how many GPUs a process on this host may see, without starting CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    if visible is None:
        return present
    listed = [address for address in visible.split(",") if address.strip() not in ("", "-1")]
    return min(present, len(listed))
