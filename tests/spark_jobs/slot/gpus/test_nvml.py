"""The contract of `Gpus`, inherited by the test with a real GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spark_jobs.slot.gpus.nvml import Gpus, GpuUse, Unowned
from tests.spark_jobs.slot.gpus.memory_contract import GIB, GpuMemoryContract


def test_without_the_package_all_results_are_empty(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with Gpus(["0"]) as gpus:
        assert gpus.known == ()
        assert gpus.use() == gpus.unowned() == {}


class TestLibraryThatStandsForNvml(GpuMemoryContract):
    @pytest.fixture(autouse=True)
    def _nvml(self, nvml):
        self.nvml = nvml

    @contextlib.contextmanager
    def take(self, memory: int) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(["sleep", "300"])
        try:
            self.nvml.set(0, str(process.pid), memory)
            yield process
        finally:
            process.kill()
            process.wait()

    def test_the_memory_in_use_is_exact_to_the_byte(self):
        with Gpus(["1", "0"]) as gpus:
            use = GpuUse(GIB // 2, 16 * GIB, 0.5)
            assert gpus.use() == {"1": use, "0": use}
            assert [gpus.position(address) for address in gpus.known] == [0, 1]

    def test_memory_without_a_process_has_no_owner(self):
        self.nvml.set(0, "kept", 3 * GIB)
        with Gpus(["0"]) as gpus, self.take(GIB):
            assert gpus.unowned() == {"0": Unowned(3 * GIB + GIB // 2, lists_owners=True)}
            self.nvml.hide_processes()
            assert gpus.unowned() == {"0": Unowned(4 * GIB + GIB // 2, lists_owners=False)}

    @pytest.mark.parametrize("uuid", ["GPU-8f1b1e2c-11", "MIG-5d0c-22"])
    def test_a_gpu_or_a_part_of_one_is_known_by_its_uuid(self, uuid):
        self.nvml.set(1, "uuid", uuid)
        self.nvml.drop(1, "utilization")
        with Gpus([uuid]) as gpus:
            assert gpus.use() == {uuid: GpuUse(GIB // 2, 16 * GIB, None)}

    def test_a_gpu_that_fails_later_is_missing_then(self, monkeypatch):
        import pynvml

        def lost(handle):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

        with Gpus(["0"]) as gpus:
            monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lost)
            assert gpus.use() == gpus.unowned() == {}

    def test_without_a_driver_there_is_nothing_and_no_error(self, monkeypatch):
        monkeypatch.setenv("FAKE_NVML", "/nonexistent")
        with Gpus(["0"]) as gpus:
            assert (gpus.known, gpus.use(), gpus.unowned()) == ((), {}, {})


def test_without_the_library_there_is_nothing_and_no_error(monkeypatch):
    import pynvml

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    with Gpus(["0"]) as gpus:
        assert (gpus.known, gpus.use(), gpus.unowned()) == ((), {}, {})


def test_a_slot_without_gpus_does_not_even_load_the_wrapper():
    import sys

    look = (
        "import sys; from spark_jobs.slot.gpus.nvml import Gpus\n"
        "with Gpus([]) as gpus: print(gpus.known, 'pynvml' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert shown.stdout == "() False\n"
