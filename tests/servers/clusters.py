"""The settings of local clusters, whose executors are JVMs of their own."""

from __future__ import annotations

from pathlib import Path

CLUSTER = "local-cluster[2,1,1024]"


MEMORY = {"spark.executor.memory": "512m"}


def gpu_settings(folder: Path, addresses: str) -> dict[str, str]:
    """Return settings for executors with fake GPUs, which a script announces."""
    script = folder / "discover"
    script.write_text(f'#!/bin/sh\necho \'{{"name": "gpu", "addresses": {addresses}}}\'\n')
    script.chmod(0o755)
    return {
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": str(script),
        "spark.task.resource.gpu.amount": "1",
    }
