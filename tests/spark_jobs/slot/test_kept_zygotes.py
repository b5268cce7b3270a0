"""The contract of a trial runner whose zygotes come from a keeper."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import psutil
import pytest

from spark_jobs import time_limits
from spark_jobs.slot.runners import ProcessRunner
from spark_jobs.warm.asking import KeeperEnded, Warm
from spark_jobs.warm.executor import Executor
from spark_jobs.zygote import process as zygote_process
from spark_jobs.zygote.process import KeptProcess, OwnProcess
from tests.experiment.waiting import alive, wait_until
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.slot import test_runners
from tests.spark_jobs.slot.running import LIGHT, Runner, program

HANGS_AFTER_THE_FORK = """
import os
import sys
import threading

if "spark_jobs.zygote.importer" in sys.orig_argv:
    os.register_at_fork(after_in_child=threading.Event().wait)
"""


class KeptRunner(ProcessRunner):
    """A runner that never starts a zygote by itself."""

    def _start(self):
        link = super()._start()
        assert isinstance(link.process, KeptProcess)
        return link


@pytest.mark.slow
@pytest.mark.contract
class TestKept(test_runners.TestForked):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def warm(cls, tmp_path_factory):
        """Keepers of a process that is no JVM, which is all they see of it."""
        with subprocess.Popen(["sleep", "3600"]) as jvm, pytest.MonkeyPatch.context() as patched:
            # The real limit may pass while this process gets no CPU, and the zygote is ready.
            patched.setattr(time_limits, "WARM_READY", 240.0)
            cls.warm_folder = tmp_path_factory.mktemp("warm") / ("long-" * 30)
            cls.jvm = jvm.pid
            yield
            jvm.kill()

    @staticmethod
    def is_left(pid):
        """Return whether a zygote runs; its parent, the importer, may reap it later."""
        return bool(alive([pid]))

    @classmethod
    def make(
        cls,
        function,
        key=None,
        timeout=None,
        environment=None,
        grace=1.0,
        preload=LIGHT,
        kept=True,
        **settings,
    ):
        made = program(function, key, preload=preload, **settings)
        warm = Warm(Executor(cls.warm_folder, cls.jvm), 300.0)
        kind = KeptRunner if kept else ProcessRunner
        return kind(made, environment, timeout, grace, warm=warm)

    @pytest.mark.fault(7)
    @pytest.mark.parametrize("guarded", [True, False])
    def test_a_killed_zygotes_trial_is_ended_by_the_keeper_that_reaps_it(
        self, tmp_path, monkeypatch, guarded
    ):
        """Once it is reaped, its number may be that of other processes."""
        killed = []
        monkeypatch.setattr(os, "killpg", lambda *group: killed.append(group))
        with self.make(functions.report_and_wait, "loss") as runner:
            zygote = psutil.Process(runner._zygote.process.pid)
            keeper = zygote.parent().parent()
            run = Runner(runner, tmp_path / "run")
            trial = []

            def kill(report):
                trial.extend(child.pid for child in zygote.children())
                (zygote if guarded else keeper).kill()
                wait_until(lambda: not runner._zygote.process.is_guarded)
                if not guarded:
                    zygote.kill()

            run.hear = kill
            assert run(x=1.0, flag=str(tmp_path / "never")).error.kind == "machine"
            assert killed == ([] if guarded else [(trial[0], signal.SIGKILL)])
            wait_until(lambda: not alive(trial))

    def test_one_time_limit_holds_for_all_keepers_that_are_asked(self, monkeypatch):
        """A slot that is silent for longer counts as lost."""
        limits = []

        def end(warm, imports, descriptors, until):
            limits.append(until)
            raise KeeperEnded("it ends")

        monkeypatch.setattr(zygote_process, "ask", end)
        before = time.monotonic() + time_limits.WARM_ANSWER
        with self.make(functions.double, kept=False):
            assert len(limits) == 3
        assert set(limits) == {limits[0]}
        assert before <= limits[0] <= time.monotonic() + time_limits.WARM_ANSWER

    @pytest.mark.fault(4)
    @pytest.mark.parametrize("size", [1, 1_000_000], ids=["sent", "not read"])
    def test_a_slot_imports_by_itself_if_a_kept_zygote_hangs(self, tmp_path, monkeypatch, size):
        (tmp_path / "hangs_later.py").write_text(HANGS_AFTER_THE_FORK)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(time_limits, "WARM_READY", 0.2)
        data = b"x" * size
        with self.make(lambda x: len(data) * x, preload=("hangs_later",), kept=False) as runner:
            assert isinstance(runner._zygote.process, OwnProcess)
            assert Runner(runner, tmp_path / "run")(x=2.0).value == 2.0 * size

    def test_nothing_is_left_after_the_runner(self, tmp_path):
        before = set(psutil.Process().children(recursive=True))
        with self.make(functions.double) as runner:
            zygote = psutil.Process(runner._zygote.process.pid)
            Runner(runner, tmp_path)(x=1)
            assert set(psutil.Process().children(recursive=True)) <= before
        assert not self.is_left(zygote.pid)

    def test_forked_trials_run_tensorflow(self, tmp_path):
        preload = ("tensorflow", "keras", "tests.spark_jobs.slot.patient", *LIGHT)
        with contextlib.ExitStack() as stack:
            runners = [
                stack.enter_context(self.make(function, key, preload=preload))
                for function, key in (
                    (functions.train_with_tensorflow, None),
                    (functions.fit_for_long, "loss"),
                )
            ]
            run = Runner(runners[0], tmp_path / "one")
            assert [run(x=3.0).value, run(x=2.0).value] == [9.0, 4.0]
            run = Runner(runners[1], tmp_path / "two")
            run.hear = run.stop
            assert run(x=3.0).status == "stopped"
            zygotes = [psutil.Process(runner._zygote.process.pid) for runner in runners]
            assert zygotes[0].parent() == zygotes[1].parent()
            assert [runner.warnings for runner in runners] == [(), ()]

    @pytest.mark.slow
    def test_after_an_op_at_import_each_slot_starts_fresh_interpreters(self, tmp_path, monkeypatch):
        (tmp_path / "runs_an_op.py").write_text("import tensorflow; tensorflow.constant(1.0)")
        monkeypatch.syspath_prepend(str(tmp_path))
        made = program(functions.train_with_tensorflow, preload=("tensorflow", "runs_an_op"))
        warm = Warm(Executor(self.warm_folder, self.jvm), 300.0)
        with ProcessRunner(made, timeout=120.0, warm=warm) as runner:
            assert isinstance(runner._zygote.process, OwnProcess)
            assert "op at import" in runner.warnings[0]
            assert Runner(runner, tmp_path / "run")(x=3.0).value == 9.0
