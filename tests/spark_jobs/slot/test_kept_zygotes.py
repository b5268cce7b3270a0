"""The contract of a trial runner whose zygotes come from a keeper."""

from __future__ import annotations

import subprocess

import psutil
import pytest

from spark_jobs.slot.runners import ProcessRunner
from spark_jobs.slot.zygote_start import KeptProcess
from spark_jobs.warm.asking import Warm
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.slot import test_runners
from tests.spark_jobs.slot.test_runners import LIGHT, Runner, program


class KeptRunner(ProcessRunner):
    """A runner that never starts a zygote by itself."""

    def _start(self):
        link = super()._start()
        assert isinstance(link.process, KeptProcess)
        return link


class TestKept(test_runners.TestForked):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def warm(cls, tmp_path_factory):
        """Keepers of a process that is no JVM, which is all they see of it."""
        with subprocess.Popen(["sleep", "3600"]) as jvm:
            cls.warm_folder = tmp_path_factory.mktemp("warm") / ("long-" * 30)
            cls.jvm = jvm.pid
            yield
            jvm.kill()

    @classmethod
    def make(cls, function, timeout=None, environment=None, grace=1.0, preload=LIGHT, **settings):
        made = program(function, preload=preload, **settings)
        warm = Warm(cls.warm_folder, cls.jvm, 300.0)
        return KeptRunner(made, environment, timeout, grace, warm=warm)

    def test_nothing_is_left_after_the_runner(self, tmp_path):
        before = psutil.Process().children(recursive=True)
        with self.make(functions.double) as runner:
            zygote = psutil.Process(runner._zygote.process.pid)
            Runner(runner, tmp_path)(x=1)
            assert psutil.Process().children(recursive=True) == before
        assert not zygote.is_running()
