"""The contract of `Gpus`, inherited by the test with a real GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spark_jobs.slot.gpus.nvml import Gpus, GpuUse, Unowned
from tests.spark_jobs.slot.running import wait_until

GIB = 1 << 30


class GpuMemoryContract:
    """The contract for any GPU and its NVML."""

    address = "0"

    def take(self, memory: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """Run a process that holds some of the GPU's memory; killed at the end."""
        raise NotImplementedError

    def test_memory_that_a_process_has_is_seen_and_comes_back_when_it_is_killed(self):
        with Gpus([self.address]) as gpus:
            assert gpus.known == (self.address,)
            before = gpus.use()[self.address].memory
            with self.take(2 * GIB) as process:
                assert gpus.use()[self.address].memory - before > 1.9 * GIB
                process.kill()
                process.wait()
                wait_until(lambda: gpus.use()[self.address].memory - before < GIB)

    def test_memory_of_a_listed_process_has_an_owner(self):
        with Gpus([self.address]) as gpus:
            before = gpus.unowned()[self.address].memory
            with self.take(2 * GIB):
                during = gpus.unowned()[self.address]
                if during.lists_owners:
                    assert during.memory - before < GIB
                else:
                    assert during.memory - before > 1.9 * GIB

    def test_the_utilization_is_a_share(self):
        with Gpus([self.address]) as gpus:
            use = gpus.use()[self.address]
            assert 0 < use.memory < use.total
            assert use.utilization is None or 0 <= use.utilization <= 1

    def test_a_gpu_that_is_not_there_is_missing(self):
        with Gpus(["4711", self.address, "GPU-00000000-nobody", "nonsense"]) as gpus:
            assert gpus.known == (self.address,)
            assert list(gpus.use()) == list(gpus.unowned()) == [self.address]

    def test_gpus_can_be_entered_again_and_are_empty_outside(self):
        gpus = Gpus([self.address])
        for _ in range(2):
            assert gpus.known == ()
            with gpus:
                assert gpus.use().keys() == {self.address}
        assert gpus.use() == {}


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
