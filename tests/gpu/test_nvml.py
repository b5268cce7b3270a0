"""The contract of NVML on a real GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.spark_jobs.slot.gpus.memory_contract import GpuMemoryContract

_TAKE = {
    "jax": (
        "import os; os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'; "
        "import jax.numpy as jnp; kept = jnp.ones({memory}, 'uint8').block_until_ready()"
    ),
    "torch": "import torch; kept = torch.ones({memory}, dtype=torch.uint8, device='cuda')",
}


@pytest.mark.gpu
class TestNvidiasLibrary(GpuMemoryContract):
    @pytest.fixture(autouse=True)
    def _framework(self, framework):
        self.framework = framework

    @contextlib.contextmanager
    def take(self, memory: int) -> Iterator[subprocess.Popen[bytes]]:
        code = _TAKE[self.framework].format(memory=memory) + "; print('taken', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout.readline() == b"taken\n"
                yield process
            finally:
                process.kill()
