"""What the tests on a GPU lean on, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_jobs.slot.gpus.nvml import Gpus
from tests.benchmarks import gpu_trials

_WITHOUT_SPARK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("grpc", "keras", "pandas", "pyspark", "tensorflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
sys.prefix = "/nonexistent"  # where nothing was installed
import tests.conftest, tests.gpu.conftest
import spark_jobs.slot.gpus.devices, spark_jobs.slot.gpus.gpu_watch, spark_jobs.slot.runners
import tests.gpu.slot_processes
"""


def test_trials_run_on_a_machine_that_has_neither_spark_nor_tensorflow():
    subprocess.run([sys.executable, "-c", _WITHOUT_SPARK], check=True)


def test_the_benchmark_says_that_there_is_no_gpu(capsys):
    with Gpus(["0"]) as gpus:
        if gpus.known:
            pytest.skip("there is a GPU")
    assert gpu_trials.main([]) == 1
    assert capsys.readouterr().out.startswith("no GPU: NVML knows none on this machine")
