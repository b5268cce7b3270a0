"""The contract of readings of a GPU's memory."""

from __future__ import annotations

import contextlib
import subprocess

from spark_jobs.slot.gpus.nvml import Gpus
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
