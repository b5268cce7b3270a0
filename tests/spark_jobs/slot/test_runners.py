"""The contract of a trial runner, inherited by the test of each implementation."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import uuid

import psutil
import pytest

from search.trial import Failure, Outcome, Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Gang, Report, encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot import runners
from spark_jobs.slot.driver_watch import Abandoned
from spark_jobs.slot.gang.variables import variables_of
from spark_jobs.slot.runners import InProcessRunner, ProcessRunner
from spark_jobs.trial.gang_connections import NEEDED
from spark_jobs.trial.memory.gpu_share import GpuShare
from spark_jobs.trial.pipe.frames import frame
from spark_jobs.trial.pipe.link import StopTrial
from spark_jobs.trial.trial_process import Task
from spark_jobs.zygote import link as zygote_link
from spark_jobs.zygote import zygote
from spark_jobs.zygote.bounded_log import KEPT
from spark_jobs.zygote.link import RunnerBroken, ZygoteLink, failure_of_silence, status_of
from spark_jobs.zygote.messages import Alive, Ended, Ready, Started
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.slot.running import (
    LIGHT,
    Runner,
    alive,
    program,
    sleeping,
    wait_until,
)

FORGED = [  # what a train function may write into the pipe to its supervisor
    'R{"step": 1, "metrics": {"loss": "abc"}}',
    f'R{{"step": {10**400}, "metrics": {{}}}}',
    f'R{{"step": 1, "metrics": {{"{"m" * 1_000_000}": 1.0}}}}',
    "R",
    "",
    "X",
    "O" + '"' * 1_000_000,
    "O" + "[" * 1_000_000,
    'O{"trial": 0}',
    'O{"trial": 1000, "status": "finished", "value": 1.0, "objective": "m", "metrics": {}, '
    '"error": null, "seconds": 1.0}',
]


FAKE_TORCH = """
class cuda:
    fraction = 0.0

    def is_available():
        return True

    def set_per_process_memory_fraction(fraction):
        cuda.fraction = fraction
"""


STOPPED_SLOT = """
import pathlib, signal, sys, threading
from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot.runners import ProcessRunner
from tests.spark_jobs.slot.running import program
from tests.spark_jobs.train_functions import stop_supervisor

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
files = RunPaths(pathlib.Path(sys.argv[1])).attempt(0)
files.folder.mkdir(parents=True)
with ProcessRunner(program(stop_supervisor, preload=("numpy",))) as runner:
    print(runner._zygote.process.pid, flush=True)
    runner.run(Attempt(Trial(0, {"tag": sys.argv[2]})), files, print)
"""


IMPATIENT_LATER = """
from pathlib import Path
from spark_jobs import time_limits
from spark_jobs.zygote import child

class Limits(type(time_limits)):
    @property
    def STOP_HEARD(self):
        return 0.0 if Path({!r}).exists() else 3600.0

child._GAPS = 0
time_limits.__class__ = Limits
"""


LATE_LIMIT = """
from spark_jobs.zygote.child import Child

deadline = Child.deadline
Child.deadline = lambda child, timeout: deadline(child, timeout if child.{} else None)
"""


class RunnerContract:
    many = 30

    @classmethod
    def make(cls, function, **settings):
        raise NotImplementedError

    def test_the_environment_of_the_slot_reaches_the_trial(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TO_BE_HIDDEN", "1")
        environment = {"CUDA_VISIBLE_DEVICES": "3", "TO_BE_HIDDEN": None}
        before = dict(os.environ)
        with self.make(functions.visible_devices, environment=environment) as runner:
            assert Runner(runner, tmp_path)(x=1).value == 3.0
        assert dict(os.environ) == before

    def test_a_framework_that_the_trial_imports_keeps_to_its_share_of_the_gpu(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "torch.py").write_text(FAKE_TORCH)
        monkeypatch.syspath_prepend(tmp_path)
        try:
            with self.make(functions.fraction_of_torch, gpu_share=GpuShare(0.225)) as runner:
                run = Runner(runner, tmp_path / "run")
                assert run(x=1).value == 0.225
        finally:
            sys.modules.pop("torch", None)

    @pytest.fixture
    def start(self, tmp_path):
        with contextlib.ExitStack() as stack:
            yield lambda function, **settings: Runner(
                stack.enter_context(self.make(function, **settings)), tmp_path / "run"
            )

    def test_a_result_is_a_finished_outcome(self, start):
        run = start(functions.double)
        outcomes = [run(x=1.5), run(x=2)]
        assert [(o.status, o.value, o.objective, o.error) for o in outcomes] == [
            ("finished", 3.0, "metric", None),
            ("finished", 4.0, "metric", None),
        ]
        assert all(o.seconds >= 0 for o in outcomes)

    @pytest.mark.fault(1)
    def test_an_exception_is_a_failed_outcome_with_its_traceback(self, start):
        run = start(functions.fail)
        outcome = run(x=3)
        assert (outcome.status, outcome.value) == ("failed", None)
        assert outcome.error.kind == "user error"
        assert outcome.error.message == "ValueError: user bug 3"
        assert "train_functions.py" in outcome.error.traceback
        assert "trial_process.py" not in outcome.error.traceback

    def test_the_notes_of_an_exception_do_not_hide_its_message(self, start):
        def noted(x):
            error = ValueError("the problem")
            error.add_note("a note")
            raise error

        outcome = start(noted)(x=1)
        assert outcome.error.message == "ValueError: the problem"
        assert "a note" in outcome.error.traceback

    def test_an_exception_that_python_cannot_format_is_a_failed_outcome(self, start):
        def train(x):
            raise SyntaxError("bad template", ("page.html", 1, 1, 5))  # a line that is no text

        outcome = start(train)(x=3)
        assert (outcome.status, outcome.error.kind) == ("failed", "user error")
        assert outcome.error.message == "SyntaxError, whose text cannot be shown"

    def test_an_exception_without_a_text_is_a_failed_outcome(self, start):
        outcome = start(functions.fail_badly)(x=3)
        assert outcome.error.kind == "user error"
        assert "HostileError" in outcome.error.message

    @pytest.mark.fault(2)
    @pytest.mark.parametrize(
        ("code", "text"), [(17, "exit 17"), (None, "exit 0"), ("sorry", "exit 'sorry'")]
    )
    def test_leaving_the_interpreter_is_a_failure(self, start, code, text):
        outcome = start(functions.leave)(code=code)
        assert outcome.error.kind == "exit"
        assert outcome.error.message == f"{text} before it returned"

    @pytest.mark.fault(10, 11, 13)
    @pytest.mark.parametrize(
        ("what", "kind", "text"),
        [
            ("hostile", "invalid value", "got Hostile"),
            ("generator", "invalid value", "got generator"),
            ("large", "invalid value", "got str"),
            ("nan", "invalid value", "nan"),
            ("none", "invalid value", "got NoneType"),
        ],
    )
    def test_an_invalid_score_fails_with_its_type(self, start, what, kind, text):
        outcome = start(functions.give_back)(what=what)
        assert (outcome.status, outcome.error.kind) == ("failed", kind)
        assert text in outcome.error.message
        assert len(outcome.error.message) < 500

    def test_output_goes_to_files_of_the_trial_native_output_too(self, start):
        run = start(functions.say)
        for x in (1, 2):
            assert run(x=x).status == "finished"
            assert sorted(run.files.stdout.read_text().split("\n")) == [
                "",
                "native",
                f"printed é {x}",
            ]
            assert run.files.stderr.read_text() == "complained\n"

    def test_a_trial_may_print_what_has_no_form_in_utf_8(self, start):
        def speak(x):
            print("out \ud800")
            print("err \udcff", file=sys.stderr)
            return x

        run = start(speak)
        assert run(x=1).status == "finished"
        assert run.files.stdout.read_text() == "out \\ud800\n"
        assert run.files.stderr.read_text() == "err \\udcff\n"

    def test_the_trial_knows_its_folder_and_parameters_and_reports_curves(self, start):
        run = start(functions.look_around, key="x")
        outcome = run(x=5)
        assert (outcome.value, outcome.error) == (5.0, None)
        assert [path.name for path in run.files.folder.glob("*tfevents*")]

    def test_parameters_keep_their_types(self, start):
        def check(shape, limit, name, options):
            assert shape == (64, 32)
            assert limit == math.inf
            assert name == "ü\n"
            assert options == {"a": [1, (2,)]}
            return 1

        outcome = start(check)(shape=(64, 32), limit=math.inf, name="ü\n", options={"a": [1, (2,)]})
        assert outcome.value == 1.0, outcome.error

    def test_reports_arrive_while_the_trial_runs(self, start, tmp_path):
        run = start(functions.report_and_wait)
        flag = tmp_path / "continue"
        run.hear = lambda report: flag.touch()
        outcome = run(x=1.5, flag=str(flag))
        assert (outcome.status, outcome.value, outcome.step) == ("finished", 4.5, 1)
        assert run.reports == [Report(0, {"loss": 1.5}), Report(1, {"loss": 3.0})]

    def test_a_stopped_trial_counts_with_its_last_report(self, start):
        """Its own `except Exception` does not catch it."""
        run = start(functions.report_for_ever)
        run.hear = functools.partial(run.stop, reason="step 0: ü is too little")
        outcome = run(x=1.0)
        last = run.reports[-1]
        assert (outcome.status, outcome.reason, outcome.error) == (
            "stopped",
            "step 0: ü is too little",
            None,
        )
        assert (outcome.value, outcome.objective) == (last.metrics["loss"], "loss")
        assert (outcome.step, outcome.metrics) == (last.step, last.metrics)
        assert run.files.stdout.read_text() == "TrialStopped: step 0: ü is too little\n"

    def test_the_first_reason_to_stop_counts(self, start):
        run = start(functions.report_for_ever)
        reasons = (f"reason {number}" for number in itertools.count())
        run.hear = lambda report: [run.stop(report, reason=next(reasons)) for _ in range(1_000)]
        outcome = run(x=1.0)
        assert (outcome.status, outcome.reason) == ("stopped", "reason 0")

    def test_the_returned_value_of_a_stopped_trial_counts(self, start):
        run = start(functions.report_for_ever_and_return)
        run.hear = run.stop
        outcome = run(x=1.0)
        assert (outcome.status, outcome.value, outcome.reason) == ("stopped", 42.0, "enough")
        assert outcome.step == 1_000_000

    def test_a_stopped_trial_without_an_objective_has_no_value(self, start):
        run = start(functions.report_several_for_ever)
        run.hear = run.stop
        outcome = run(x=1.0)
        assert (outcome.status, outcome.value, outcome.objective) == ("stopped", None, None)
        assert set(outcome.metrics) == {"loss", "accuracy"}

    def test_the_key_says_which_of_several_metrics_counts(self, start):
        run = start(functions.report_several_for_ever, key="loss")
        run.hear = run.stop
        outcome = run(x=1.5)
        assert (outcome.status, outcome.value, outcome.objective) == ("stopped", 1.5, "loss")

    def test_a_trial_may_stop_itself(self, start):
        outcome = start(functions.stop_itself)(x=1.5)
        assert (outcome.status, outcome.value, outcome.step) == ("stopped", 1.5, 5)
        assert outcome.reason == "had enough"

    def test_a_stop_for_another_trial_or_attempt_is_not_for_this_one(self, start, tmp_path):
        run = start(functions.report_and_wait)
        flag = tmp_path / "continue"

        def hear(report):
            params = run.attempt.trial.params
            for trial in (-1, 1, 2):
                run.runner.stop(Attempt(Trial(trial, params)), "not you")
            run.runner.stop(Attempt(run.attempt.trial, 2), "not you")
            flag.touch()

        run.hear = hear
        assert run(x=1.5, flag=str(flag)).status == "finished"

    def test_a_stop_after_the_end_harms_no_other_trial(self, start, tmp_path):
        run = start(functions.report_and_wait)
        flag = tmp_path / "continue"
        flag.touch()
        params = {**run.given, "x": 0, "flag": str(flag)}
        run.runner.stop(Attempt(Trial(0, params)), "before there was any")
        for number in range(5):
            assert run(x=number, flag=str(flag)).value == 3.0 * number
            run.runner.stop(run.attempt, "too late")

    def test_a_stop_in_the_moment_of_the_end_harms_no_other_trial(self, start):
        run = start(functions.report_once)
        run.hear = run.stop
        for number in range(self.many):
            outcome = run(x=number)
            if outcome.status == "finished":
                assert outcome.value == 2.0 * number
            else:
                assert (outcome.status, outcome.value) == ("stopped", 1.0 * number), outcome.error

    def test_a_trial_that_fails_after_a_stop_has_failed(self, start):
        def fail_late(x):
            try:
                return functions.report_for_ever(x)
            finally:
                raise ValueError("at its end")

        run = start(fail_late)
        run.hear = run.stop
        outcome = run(x=1.0)
        assert (outcome.status, outcome.error.message) == ("failed", "ValueError: at its end")

    def test_much_output_keeps_its_start_and_its_end(self, start):
        run = start(functions.print_much)
        assert run(x=1).status == "finished"
        for path, what in ((run.files.stdout, "line"), (run.files.stderr, "complaint")):
            text = path.read_text()
            (gap,) = re.findall(r"\n\.\.\. (\d+) bytes left out \.\.\.\n", text)
            assert text.startswith(f"the first {what}\nxxx")
            assert text.endswith(f"y\nthe last {what}\n")
            printed = len(f"the first {what}\nthe last {what}\n") + (5 << 10) * 1_000 + (5 << 20)
            assert int(gap) == printed - 2 * KEPT
            assert len(text) == 2 * KEPT + len(f"\n... {gap} bytes left out ...\n")

    def test_a_trial_may_close_its_output(self, start):
        run = start(functions.close_output)
        assert run(x=1).value == 1.0
        assert run.files.stdout.read_text() == "before\n"

    def test_trials_draw_different_random_numbers(self, start):
        run = start(functions.draw, key="random")
        first, second = run(x=1), run(x=1)
        assert set(first.metrics.values()).isdisjoint(second.metrics.values())

    def test_a_seed_makes_a_trial_repeatable(self, tmp_path):
        drawn = []
        for number in range(2):
            with self.make(functions.draw, key="random", seed=7) as runner:
                run = Runner(runner, tmp_path / str(number))
                drawn.append([run(x=1).metrics, run(x=1).metrics])
        assert drawn[0] == drawn[1]
        assert drawn[0][0] != drawn[0][1]


class TestInProcessRunner(RunnerContract):
    @classmethod
    def make(cls, function, environment=None, **settings):
        return InProcessRunner(program(function, **settings), environment)

    def test_the_process_gets_its_output_back(self, start, capfd):
        start(functions.say)(x=1)
        print("after", flush=True)
        os.system("echo native after")
        assert capfd.readouterr().out == "after\nnative after\n"


class ProcessContract(RunnerContract):
    """The further contract of every runner with a process per trial."""

    def test_temporary_files_of_a_trial_are_removed_after_it(self, tmp_path, monkeypatch):
        place = tmp_path / "temporary"
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        with self.make(functions.leave_temporary_files) as runner:
            run, folders = Runner(runner, tmp_path), set()
            for _ in range(2):
                assert run(x=1.0).value == 1.0
                printed = run.files.stdout.read_text().splitlines()[-2:]
                of_python, of_mktemp = map(pathlib.Path, printed)
                assert of_python.parent == of_mktemp.parent
                assert of_python.parent.parent == place
                folders.add(of_python.parent)
                assert not list(place.iterdir())
        assert len(folders) == 2

    def test_a_trial_runs_without_a_place_for_temporary_folders(self, tmp_path, monkeypatch):
        with self.make(functions.double) as runner:
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
            assert Runner(runner, tmp_path)(x=1.0).value == 2.0

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls):
        """A runner for all tests without settings of their own; no trial affects the next."""
        with cls.make(functions.call_pickled) as runner:
            yield runner

    @pytest.fixture
    def start(self, tmp_path, shared):
        with contextlib.ExitStack() as stack:

            def start(function, **settings):
                if not settings:
                    return Runner(shared, tmp_path / "run", function)
                made = stack.enter_context(self.make(function, **settings))
                return Runner(made, tmp_path / "run")

            yield start

    @pytest.mark.fault(2)
    def test_a_trial_that_ends_its_process_affects_no_other(self, start):
        run = start(functions.leave_at_once)
        for _ in range(2):
            outcome = run(x=1)
            assert (outcome.error.kind, outcome.error.message) == (
                "exit",
                "exit 17 before it returned",
            )
            assert run.files.stdout.read_text() == "last words\n"

    @pytest.mark.fault(3)
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
    def test_a_signal_is_named(self, start, number):
        outcome = start(functions.kill_itself)(number=int(number))
        assert outcome.error.message == f"signal {int(number)} ({number.name}) before it returned"

    @pytest.mark.fault(3)
    def test_a_crash_in_native_code_is_a_failure(self, start):
        assert "SIGSEGV" in start(functions.segfault)(x=1).error.message

    @pytest.mark.fault(5)
    @pytest.mark.parametrize(
        ("how", "message"),
        [
            ("one large object", "MemoryError"),
            ("everything", "MemoryError"),
            ("a mapping", "OSError: [Errno 12] Cannot allocate memory"),
            ("native code", "signal 6 (SIGABRT) before it returned, out of memory"),
            ("a native thread", "signal 6 (SIGABRT) before it returned, out of memory"),
            ("a thread", "RuntimeError: can't start new thread"),
        ],
    )
    def test_out_of_memory_is_a_failure_of_its_own_kind(self, start, how, message):
        run = start(functions.exhaust_memory)
        for _ in range(2):
            error = run(how=how).error
            assert (error.kind, error.message.partition(";")[0]) == ("memory", message)
            said = r"; the limit is \d[\d.]* GiB of address space \(RLIMIT_AS\)"
            assert re.search(said, error.message)

    @pytest.mark.fault(5)
    def test_a_limit_that_is_inherited_is_in_the_message(self, tmp_path):
        with self.make(lambda x: len(bytes(1 << 50))) as runner:
            limit = 1 << 44  # of a process that has imported something large, too
            resource.prlimit(zygote_of(runner), resource.RLIMIT_AS, (limit, limit))
            error = Runner(runner, tmp_path)(x=1).error
        assert error.message == (
            "MemoryError; the limit is 1.64e+04 GiB of address space (RLIMIT_AS)"
        )

    @pytest.mark.fault(5)
    def test_the_kernel_would_kill_a_trial_before_its_supervisor(self, start):
        def most_likely_killed(x):
            return int(pathlib.Path("/proc/self/oom_score_adj").read_text())

        assert start(most_likely_killed)(x=1).value == 1000

    @pytest.mark.parametrize("timeout", [3e6, sys.float_info.max])
    def test_a_time_limit_may_be_any_number(self, start, timeout):
        assert start(functions.double, timeout=timeout)(x=1).value == 2.0

    @pytest.mark.fault(4)
    @pytest.mark.parametrize("how", ["sleeping", "ignoring SIGTERM", "holding the GIL"])
    def test_a_trial_that_hangs_is_ended_at_the_time_limit(self, tmp_path, how):
        with self.make(functions.hang, timeout=1.0) as runner:
            run = Runner(runner, tmp_path)
            outcome = run(how=how)
            assert outcome.error.kind == "time"
            assert outcome.error.message == "ended at the time limit of 1 s"
            assert outcome.seconds >= 1.0

    @pytest.mark.parametrize(
        ("then", "status"), [("exit", "failed"), ("raise", "failed"), ("return", "finished")]
    )
    def test_a_trial_may_clean_up_at_the_time_limit(self, tmp_path, handler_first, then, status):
        """A value returned within the grace counts; a failure does not."""
        with self.make(functions.clean_up, timeout=1.0, grace=60.0, **handler_first) as runner:
            outcome = Runner(runner, tmp_path / "run")(folder=str(tmp_path), then=then)
        assert (tmp_path / "cleaned up").exists()
        assert outcome.status == status
        if status == "failed":
            assert outcome.error.kind == "time"

    @pytest.mark.parametrize("what", ["output", "reports", "garbage"])
    def test_a_flood_does_not_keep_a_trial_from_being_ended(self, tmp_path, what):
        with self.make(functions.flood, timeout=1.0) as runner:
            run = Runner(runner, tmp_path)
            outcome = run(what=what)
            assert outcome.error.kind == "time"
            assert run.files.stdout.stat().st_size < 2 * KEPT + 100
            assert run.files.stderr.stat().st_size < 2 * KEPT + 100

    def test_a_flood_of_reports_does_not_keep_a_trial_from_being_stopped(self, start):
        run = start(functions.flood, key="loss")
        run.hear = run.stop
        outcome = run(what="reports")
        assert (outcome.status, outcome.value) == ("stopped", 0.5)

    def test_forged_messages_harm_only_the_trial(self, start):
        run = start(functions.forge)
        for message in FORGED:
            outcome = run(messages=[message])
            assert outcome.status == "failed", message[:50]
            assert run.reports == [Report(5, {"loss": 0.5})], message[:50]
        assert run(messages=[]).error.kind == "exit"

    def test_output_shortly_before_a_kill_is_kept(self, start):
        run = start(functions.speak_and_die)
        assert "SIGKILL" in run(x=1).error.message
        assert run.files.stdout.read_text() == "printed shortly before\nnative shortly before\n"
        assert run.files.stderr.read_text() == "complained shortly before\n"

    def test_output_is_in_the_log_while_the_trial_runs(self, start, tmp_path):
        flag = tmp_path / "continue"

        def speak(x):
            print("epoch 1")
            while not flag.exists():
                time.sleep(0.005)
            return x

        def read():
            log = run.paths.attempt(0).stdout
            wait_until(lambda: log.exists() and log.read_text() == "epoch 1\n")
            flag.touch()

        run = start(speak)
        reader = threading.Thread(target=read)
        reader.start()
        assert run(x=1).status == "finished"
        reader.join()

    def test_a_stop_ends_no_trial_that_returns_before_it_reports_again(self, start, tmp_path):
        flag = tmp_path / "continue"

        def return_late(x):
            functions.report_and_say_so(x)
            while not flag.exists():
                time.sleep(0.005)
            return 2 * x

        def hear(report):
            run.stop_later(report)
            flag.touch()

        run = start(return_late)
        run.hear = hear
        outcome = run(x=1.5)
        assert (outcome.status, outcome.value) == ("finished", 3.0)

    @pytest.mark.fault(7)
    @pytest.mark.parametrize("then", ["return", "die", "hang"])
    def test_no_descendant_outlives_its_trial(self, tmp_path, then):
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        with self.make(functions.leave_children, timeout=3.0 if then == "hang" else None) as runner:
            outcome = Runner(runner, tmp_path)(tag=tag, then=then)
            assert (outcome.status == "finished") == (then == "return"), outcome.error
            assert sleeping(tag) == []

    def test_a_trial_that_is_abandoned_is_ended_with_all_that_it_started(self, tmp_path):
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        with self.make(functions.leave_children) as runner:
            run = Runner(runner, tmp_path)

            def abandon():
                wait_until(lambda: sleeping(tag))
                runner.abandon()

            other = threading.Thread(target=abandon)
            other.start()
            with pytest.raises(Abandoned, match="trial 0 was ended"):
                run(tag=tag, then="hang")
            other.join()
            assert sleeping(tag) == []
            with pytest.raises(Abandoned, match="trial 1 was not started"):
                run(tag=tag, then="hang")
            assert sleeping(tag) == []

    @pytest.mark.parametrize("how", ["sleeping", "ignoring SIGTERM"])
    def test_an_attempt_that_has_to_end_with_its_gang_is_cancelled(self, tmp_path, how):
        tag = f"3600.{uuid.uuid4().int % 10**9}"

        def hang(how, tag):
            subprocess.Popen(["sleep", tag])
            functions.hang(how)

        with self.make(hang, grace=0.2) as runner:
            run = Runner(runner, tmp_path)

            def end():
                wait_until(lambda: sleeping(tag))
                running = Trial(0, {"how": how, "tag": tag})
                runner.end(Attempt(running, 2), "not this attempt")
                runner.end(Attempt(Trial(1, {})), "not this trial")
                runner.end(Attempt(running), "worker 1 of 2 has failed")

            other = threading.Thread(target=end)
            other.start()
            outcome = run(how=how, tag=tag)
            other.join()
            assert (outcome.status, outcome.error) == ("cancelled", None)
            assert outcome.reason == "worker 1 of 2 has failed"
            assert sleeping(tag) == []

    def test_a_value_that_is_returned_before_the_end_counts(self, tmp_path):
        with self.make(functions.clean_up, grace=60.0) as runner:
            run = Runner(runner, tmp_path / "run")
            attempt = Attempt(Trial(0, {"folder": str(tmp_path), "then": "return"}))
            run.hear = lambda report: runner.end(attempt, "worker 1 of 2 has failed")
            assert run(**attempt.trial.params).status == "finished"

    def test_an_end_that_comes_too_late_harms_no_other_attempt(self, tmp_path):
        with self.make(functions.double) as runner:
            run = Runner(runner, tmp_path)
            for number in range(3):
                assert run(x=1).value == 2.0
                runner.end(Attempt(Trial(number, {"x": 1})), "too late")

    @pytest.mark.fault(9)
    def test_changes_of_a_trial_do_not_reach_the_next_one(self, start):
        run = start(functions.state)
        before = run(change=True)
        assert before.error is None
        assert run(change=False).value == before.value

    def test_a_trial_on_one_slot_has_no_variables_of_the_gang_before_it(self, start):
        def count_variables(names):
            return sum(name in os.environ for name in names)

        run, alone = start(count_variables), ("127.0.0.1:1",)
        run.gang = Gang(rank=0, members=alone, servers=alone, key="", certificate="")
        names = list(variables_of(run.gang))
        assert run(names=names).value == len(names)
        run.gang = None
        assert run(names=names).value == 0.0

    @pytest.mark.parametrize("path", ["/a/folder", None])
    def test_programs_that_a_trial_starts_have_the_search_path_of_the_slot(
        self, tmp_path, monkeypatch, path
    ):
        """Not the zygote's, whose standard library is of no use to another Python."""
        if path is None:
            monkeypatch.delenv("PYTHONPATH", raising=False)
        else:
            monkeypatch.setenv("PYTHONPATH", path)
        with self.make(functions.print_variable) as runner:
            run = Runner(runner, tmp_path)
            assert run(name="PYTHONPATH").status == "finished"
            assert run.files.stdout.read_text() == f"{path}\n"

    def test_garbage_in_its_pipes_harms_only_the_trial(self, start):
        run = start(functions.scribble)
        for _ in range(2):
            assert run(x=1).status == "failed"

    def test_a_forked_copy_that_comes_back_is_not_the_trial(self, start):
        def fork(x):
            return os.getpid() if os.fork() else -1

        run = start(fork)
        for _ in range(5):
            outcome = run(x=1)
            assert outcome.status == "finished", outcome.error
            assert outcome.value > 0

    def test_many_short_trials_in_a_row(self, start):
        """The messages of a short trial may arrive together."""
        run = start(functions.double)
        numbers = range(self.many)
        assert [run(x=number).value for number in numbers] == [2.0 * n for n in numbers]

    @pytest.mark.fault(7)
    def test_killing_the_zygote_ends_the_trial_and_the_next_one_runs(self, tmp_path):
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        with self.make(functions.leave_children) as runner:
            before = zygote_of(runner)

            def kill_once_started():
                wait_until(lambda: len(sleeping(tag)) == 3)
                os.kill(before, signal.SIGKILL)

            killer = threading.Thread(target=kill_once_started)
            killer.start()
            run = Runner(runner, tmp_path)
            begin = time.monotonic()
            outcome = run(tag=tag, then="hang")
            killer.join()
            assert outcome.error.kind == "machine"
            assert 0 < outcome.seconds < time.monotonic() - begin
            assert sleeping(tag) == []
            assert run(tag=tag, then="return").status == "finished"
            assert zygote_of(runner) != before

    @pytest.mark.fault(7)
    def test_a_zygote_killed_between_two_trials_is_replaced(self, tmp_path):
        """At most the trial that it was sent fails, as one whose host is lost."""
        with self.make(functions.double) as runner:
            run, first = Runner(runner, tmp_path), psutil.Process(zygote_of(runner))
            assert run(x=1).value == 2.0
            first.kill()
            wait_until(lambda: not alive(first))
            outcome = run(x=2)
            assert outcome.value == 4.0 or outcome.error.kind == "machine"
            assert run(x=3).value == 6.0
            assert zygote_of(runner) != first.pid

    @pytest.mark.fault(7)
    def test_killing_the_slot_ends_the_zygote_and_its_trial(self, tmp_path):
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        slot = os.fork()
        if slot == 0:
            try:
                with self.make(functions.leave_children) as runner:
                    Runner(runner, tmp_path)(tag=tag, then="hang")
            finally:
                os._exit(1)
        wait_until(lambda: len(sleeping(tag)) == 3)
        below = psutil.Process(slot).children(recursive=True)
        os.kill(slot, signal.SIGKILL)
        os.waitpid(slot, 0)
        wait_until(lambda: sleeping(tag) == [] and not any(alive(process) for process in below))

    @pytest.mark.fault(7)
    def test_nothing_is_left_after_the_runner(self, tmp_path):
        before = set(psutil.Process().children(recursive=True))
        with self.make(functions.double) as runner:
            Runner(runner, tmp_path)(x=1)
            assert len(set(psutil.Process().children(recursive=True)) - before) == 1
        assert set(psutil.Process().children(recursive=True)) <= before


def zygote_of(runner):
    return runner._zygote.process.pid


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (psutil.STATUS_STOPPED, "exit"),
        (psutil.STATUS_TRACING_STOP, "exit"),
        (psutil.STATUS_DISK_SLEEP, None),
        (psutil.STATUS_RUNNING, "machine"),
        (psutil.STATUS_SLEEPING, "machine"),
        (psutil.STATUS_DEAD, "machine"),
    ],
)
def test_a_silent_supervisor_is_ended_unless_it_waits_for_a_file_system(status, kind):
    failure = failure_of_silence(status)
    assert (failure.kind if failure else None) == kind


class TestForked(ProcessContract):
    @staticmethod
    def is_left(pid):
        """Return whether a zygote whose slot has ended it is still there."""
        return psutil.pid_exists(pid)

    @classmethod
    def make(cls, function, timeout=None, environment=None, grace=1.0, preload=LIGHT, **settings):
        made = program(function, preload=preload, **settings)
        return ProcessRunner(made, environment, timeout, grace)

    @pytest.fixture
    def handler_first(self, tmp_path, monkeypatch):
        """Settings with which no trial is overdue before its report, so before it has a handler."""
        return self.no_limit_before("reported", tmp_path, monkeypatch)

    def no_limit_before(self, event, tmp_path, monkeypatch):
        """Return settings with which no trial is overdue before an event, a field of `Child`."""
        (tmp_path / "late_limit.py").write_text(LATE_LIMIT.format(event))
        monkeypatch.syspath_prepend(str(tmp_path))
        return {"preload": (*LIGHT, "late_limit")}

    @pytest.mark.parametrize("how", ["sleeping", "ignoring SIGTERM"])
    def test_a_trial_that_does_not_come_to_its_next_report_is_ended(
        self, tmp_path, monkeypatch, how
    ):
        self.let_zygotes_be_impatient(tmp_path, monkeypatch)
        with self.make(functions.report_and_hang, preload=(*LIGHT, "impatient")) as runner:
            run = Runner(runner, tmp_path)
            run.hear = run.stop_later
            for _ in range(2):
                outcome = run(x=1.5, how=how)
                assert (outcome.status, outcome.value, outcome.step) == ("stopped", 1.5, 5)
                assert (outcome.reason, outcome.error) == ("enough", None)

    @pytest.mark.parametrize("then", ["exit", "raise"])
    def test_a_trial_that_is_ended_since_it_does_not_stop_has_not_failed(
        self, tmp_path, monkeypatch, then
    ):
        self.let_zygotes_be_impatient(tmp_path, monkeypatch)
        preload = (*LIGHT, "impatient")
        with self.make(functions.clean_up, grace=60.0, preload=preload) as runner:
            run = Runner(runner, tmp_path / "run")
            run.hear = run.stop_later
            outcome = run(folder=str(tmp_path), then=then)
        assert (tmp_path / "cleaned up").exists()
        assert (outcome.status, outcome.value, outcome.reason) == ("stopped", 0.5, "enough")

    def test_a_trial_that_received_a_stop_request_has_its_time_to_end(self, tmp_path, monkeypatch):
        """The zygote passes on reports of its end while others would have no time any more."""
        module = IMPATIENT_LATER.format(str(tmp_path / "impatient"))
        (tmp_path / "impatient_later.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
        with self.make(functions.hear_and_continue, preload=(*LIGHT, "impatient_later")) as runner:
            run = Runner(runner, tmp_path / "run")

            def hear(report):
                run.stop(report)
                if report.step >= functions.AFTER_THE_STOP:
                    (tmp_path / "impatient").touch()
                if report.step >= functions.AFTER_THE_STOP + 100:
                    (tmp_path / "continue").touch()

            run.hear = hear
            outcome = run(x=1.5, folder=str(tmp_path))
        assert (outcome.status, outcome.value) == ("stopped", 7.0)

    def test_a_trial_that_dies_of_something_else_after_a_stop_is_a_failed_one(self, tmp_path):
        with self.make(functions.crash_when_stopped) as runner:
            run = Runner(runner, tmp_path)
            run.hear = run.stop
            outcome = run(x=1.5)
        assert (outcome.status, outcome.error.kind) == ("failed", "exit")
        assert "SIGSEGV" in outcome.error.message

    def test_a_trial_that_stops_its_supervisor_is_ended_with_its_tree(self, tmp_path, monkeypatch):
        def status_when_stopped(pid):
            wait_until(lambda: status_of(pid) == psutil.STATUS_STOPPED)
            return status_of(pid)

        monkeypatch.setattr(time_limits, "ZYGOTE_SILENCE", 0.5)
        monkeypatch.setattr(zygote_link, "status_of", status_when_stopped)
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        with self.make(functions.stop_supervisor) as runner:
            run, first = Runner(runner, tmp_path / "run"), zygote_of(runner)
            outcome = run(tag=tag)
            monkeypatch.undo()
            assert (outcome.status, outcome.error.kind) == ("failed", "exit")
            assert outcome.error.message.endswith("was stopped (SIGSTOP)")
            assert sleeping(tag) == []
            assert not self.is_left(first)
            assert run(tag="").value == 1.0

    def test_a_supervisor_that_waits_for_a_file_system_is_waited_for(self, tmp_path, monkeypatch):
        looks = []

        def status_while_storage_hangs(pid):
            looks.append(pid)
            if len(looks) == 2:
                (tmp_path / "continue").touch()
            return psutil.STATUS_DISK_SLEEP

        def wait_for_file(path):
            while not os.path.exists(path):
                time.sleep(0.01)
            return 1.0

        monkeypatch.setattr(time_limits, "ZYGOTE_SILENCE", 0.1)
        monkeypatch.setattr(zygote_link, "status_of", status_while_storage_hangs)
        with self.make(wait_for_file) as runner:
            outcome = Runner(runner, tmp_path / "run")(path=str(tmp_path / "continue"))
            assert outcome.status == "finished", outcome.error
            assert set(looks) == {zygote_of(runner)}

    @pytest.mark.parametrize("end", ["by itself", "SIGKILL"])
    def test_a_stopped_supervisor_ends_with_its_slot(self, tmp_path, end):
        tag = f"3600.{uuid.uuid4().int % 10**9}"
        slot = subprocess.Popen(
            [sys.executable, "-B", "-c", STOPPED_SLOT, str(tmp_path), tag],
            stdout=subprocess.PIPE,
            text=True,
        )
        supervisor = psutil.Process(int(slot.stdout.readline()))
        wait_until(lambda: sleeping(tag) and supervisor.status() == psutil.STATUS_STOPPED)
        slot.send_signal(signal.SIGTERM if end == "by itself" else signal.SIGKILL)
        slot.communicate()
        wait_until(lambda: not (sleeping(tag) or alive(supervisor)))

    def let_zygotes_be_impatient(self, tmp_path, monkeypatch):
        """Let a preloaded module shorten the patience of the zygote that imports it."""
        (tmp_path / "impatient.py").write_text(
            "from spark_jobs import time_limits; time_limits.STOP_HEARD = 0.2"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

    def test_the_time_limit_counts_also_for_a_trial_that_is_to_stop(self, tmp_path, monkeypatch):
        late = self.no_limit_before("stopped", tmp_path, monkeypatch)
        with self.make(functions.report_and_hang, timeout=1.0, **late) as runner:
            run = Runner(runner, tmp_path / "run")
            run.hear = run.stop_later
            assert run(x=1.5, how="sleeping").status == "stopped"

    def test_a_trial_has_default_signal_handlers_whatever_modules_set(self, tmp_path, monkeypatch):
        (tmp_path / "handling.py").write_text(
            "import signal\n"
            "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):\n"
            "    signal.signal(number, signal.SIG_IGN)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

        def handled(x):
            numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)
            return sum(signal.getsignal(number) is not signal.SIG_DFL for number in numbers)

        with self.make(handled, preload=(*LIGHT, "handling")) as runner:
            assert Runner(runner, tmp_path / "run")(x=1).value == 0.0

    def test_missing_preloads_are_skipped(self, tmp_path):
        runner = ProcessRunner(program(functions.double, preload=("no_such_module", "no.such")))
        with runner:
            assert Runner(runner, tmp_path)(x=1).value == 2.0
            assert runner.warnings == ()

    def test_a_preload_that_fails_is_an_error(self, tmp_path, monkeypatch):
        (tmp_path / "breaks.py").write_text("import no_such_module_inside")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(RunnerBroken, match="no_such_module_inside"):
            ProcessRunner(program(functions.double, preload=("breaks",))).__enter__()

    def test_a_guessed_module_is_imported_and_its_errors_are_ignored(self, tmp_path, monkeypatch):
        (tmp_path / "guess.py").write_text("")
        (tmp_path / "breaks.py").write_text("import no_such_module_inside")
        monkeypatch.syspath_prepend(str(tmp_path))
        guessed = ("breaks", "no_such_module", "guess")
        with self.make(functions.count_imported, guessed=guessed) as runner:
            assert Runner(runner, tmp_path)(names=["guess", "breaks"]).value == 1.0

    def test_what_workers_of_a_trial_need_is_imported_once_for_all_trials(self, tmp_path):
        with self.make(functions.count_imported) as runner:
            run = Runner(runner, tmp_path)
            assert run(names=NEEDED).value == 0.0
            alone = ("127.0.0.1:1",)
            run.gang = Gang(rank=0, members=alone, servers=alone, key="", certificate="")
            assert run(names=NEEDED).status == "finished"
            run.gang = None
            assert run(names=NEEDED).value == len(NEEDED)

    def test_a_crash_of_the_zygote_is_an_error_with_the_end_of_its_log(self, tmp_path, monkeypatch):
        (tmp_path / "crashes.py").write_text("import os; print('ouch', flush=True); os._exit(3)")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(RunnerBroken, match="ended with 3: ouch"):
            ProcessRunner(program(functions.double, preload=("crashes",))).__enter__()

    def test_the_slots_compile_setting_and_sparks_secrets_stay_behind(self, tmp_path, monkeypatch):
        names = (
            "PYTHONDONTWRITEBYTECODE",
            "PYTHON_WORKER_FACTORY_SECRET",
            "_SPARK_AUTH_SECRET",
            "_SPARK_SSL_RPC_KEY_PASSWORD",
            "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
            "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
            "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
            "SPARK_CONNECT_AUTHENTICATE_TOKEN",
        )
        for name in names:
            monkeypatch.setenv(name, "1")

        def look(x):
            return sum(name in os.environ for name in names)

        with self.make(look) as runner:
            assert Runner(runner, tmp_path)(x=1).value == 0.0

    @pytest.mark.fault(5)
    @pytest.mark.parametrize(("kills", "kind"), [(3, "memory"), (2, "exit")])
    def test_a_kill_by_the_kernel_for_memory_is_distinguished(
        self, tmp_path, monkeypatch, kills, kind
    ):
        """The trial plays the kernel: it counts itself as killed in a copy of the files."""
        groups = tmp_path / "groups"
        (groups / "memory").mkdir(parents=True)
        for folder in (groups, groups / "memory"):
            (folder / "memory.events").write_text("oom 7\noom_kill 2\n")
            (folder / "memory.max").write_text(f"{1 << 20}\n")
        (tmp_path / "regrouped.py").write_text(
            "import pathlib, spark_jobs.trial.memory.control_groups as m\n"
            f"m._ROOT = pathlib.Path({str(groups)!r})"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

        def die(x):
            for path in groups.rglob("memory.events"):
                path.write_text(f"oom 8\noom_kill {kills}\n")
            os.kill(os.getpid(), signal.SIGKILL)

        with self.make(die, preload=(*LIGHT, "regrouped")) as runner:
            run = Runner(runner, tmp_path / "run")
            error = run(x=1).error
            assert error.kind == kind
            assert error.message.startswith("signal 9 (SIGKILL) before it returned")
            if kind == "memory":
                assert error.message.endswith(
                    ", out of memory; the limit is 0.000977 GiB of memory (control group)"
                )
            assert run(x=1).error.kind == "exit"  # nobody was killed for memory during this one


@pytest.mark.slow
@pytest.mark.contract
class TestSpawned(ProcessContract):
    many = 8  # a second each

    @classmethod
    def make(cls, function, timeout=None, environment=None, grace=1.0, **settings):
        made = program(function, preload=("experiment",), start_method="spawn", **settings)
        # a fresh interpreter needs a second or so before it calls the function
        return ProcessRunner(made, environment, timeout and timeout + 4, grace)

    @pytest.mark.fault(4)
    @pytest.mark.parametrize("how", ["ignoring SIGTERM"])
    def test_a_trial_that_hangs_is_ended_at_the_time_limit(self, tmp_path, how):
        with self.make(functions.hang, timeout=1.0) as runner:
            outcome = Runner(runner, tmp_path)(how=how)
            assert outcome.error.message == "ended at the time limit of 5 s"

    @pytest.fixture
    def handler_first(self):
        """A signal that comes before the interpreter has its handler waits for it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        yield {}
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def test_the_imports_of_a_trial_count_as_its_time(self, tmp_path, monkeypatch):
        (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(0.5)")
        monkeypatch.syspath_prepend(str(tmp_path))
        made = program(functions.double, preload=("slow_to_import",), start_method="spawn")
        with ProcessRunner(made) as runner:
            outcome = Runner(runner, tmp_path / "run")(x=1)
        assert outcome.value == 2
        assert outcome.seconds >= 0.5

    def test_a_named_module_that_cannot_be_imported_is_the_machines_failure(
        self, tmp_path, monkeypatch
    ):
        """As on a host that lacks a library of it."""
        (tmp_path / "lacks_a_library.py").write_text("raise ImportError('no libfoo.so')")
        monkeypatch.syspath_prepend(str(tmp_path))
        made = program(functions.double, preload=("lacks_a_library",), start_method="spawn")
        with ProcessRunner(made) as runner:
            error = Runner(runner, tmp_path / "run")(x=1).error
        assert (error.kind, error.message) == ("machine", "preload: ImportError: no libfoo.so")
        assert "in main" in error.traceback


@pytest.fixture(scope="module")
def runner():
    preload = ("tensorflow", "keras", "tests.spark_jobs.slot.patient", *LIGHT)
    with ProcessRunner(program(functions.call_pickled, "loss", preload=preload, seed=1)) as runner:
        yield runner


class TestTensorFlow:
    """With TensorFlow imported in the zygote."""

    def test_forked_trials_run_tensorflow(self, runner, tmp_path):
        run = Runner(runner, tmp_path, functions.train_with_tensorflow)
        assert [run(x=3.0).value, run(x=2.0).value] == [9.0, 4.0]
        assert runner.warnings == ()

    @pytest.mark.slow
    @pytest.mark.contract
    def test_the_callbacks_stop_keras_after_an_epoch(self, runner, tmp_path):
        run = Runner(runner, tmp_path, functions.fit_for_long)
        run.hear = run.stop
        outcome = run(x=3.0)
        assert (outcome.status, outcome.reason) == ("stopped", "enough")
        epochs = outcome.metrics["epochs"]
        assert epochs == len(run.reports) < 2_000
        assert outcome.step == epochs - 1
        assert [report.step for report in run.reports] == list(range(int(epochs)))
        assert outcome.value == run.reports[-1].metrics["loss"]

    @pytest.mark.slow
    @pytest.mark.contract
    def test_tf_summary_writes_to_the_trials_folder(self, runner, tmp_path):
        from tests.spark_jobs.trial.events.reading import scalars

        run = Runner(runner, tmp_path, functions.train_with_tensorflow)
        run(x=3.0)
        assert scalars(run.files.folder) == {"inside": [(1, 9.0)], "mine": [(2, 9.0)]}

    @pytest.mark.slow
    @pytest.mark.contract
    def test_a_preloaded_module_that_runs_an_op_leads_to_fresh_interpreters(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "runs_an_op.py").write_text("import tensorflow; tensorflow.constant(1.0)")
        monkeypatch.syspath_prepend(str(tmp_path))
        made = program(functions.train_with_tensorflow, preload=("tensorflow", "runs_an_op"))
        with ProcessRunner(made, timeout=120.0) as runner:
            assert "spawn" in runner.warnings[0]
            assert "op at import" in runner.warnings[0]
            assert Runner(runner, tmp_path)(x=3.0).value == 9.0


class TestAnswers:
    """What a runner makes of a zygote's answers, without processes."""

    class Answering:
        """A zygote that answers a task at once."""

        process = types.SimpleNamespace(is_guarded=True)

        def __init__(self, answer, reports=(), reason=""):
            self.answer, self.reports = answer, reports
            self.ready = Ready("spawn" if reason else "fork", reason)
            self.is_closed = False

        def run(self, task, note):
            for report in self.reports:
                note(report)
            return self.answer

        def close(self):
            self.is_closed = True

    def outcome(self, tmp_path, answering, **settings):
        made = program(functions.double, **settings)
        runner = ProcessRunner(made, timeout=5.0)
        runner._zygote = answering
        return runner.run(Attempt(Trial(3, {})), RunPaths(tmp_path).attempt(3), lambda report: None)

    def test_the_reason_for_fresh_interpreters_is_a_warning(self):
        runner = ProcessRunner(program(functions.double))
        assert runner.warnings == ()
        runner._zygote = self.Answering(None)
        assert runner.warnings == ()
        runner._zygote = self.Answering(None, reason="an op ran")
        assert runner.warnings == ("isolation='spawn' instead of 'process': an op ran",)

    @pytest.mark.parametrize(
        ("code", "memory", "kind", "message"),
        [
            (3, "", "exit", "exit 3 before it returned"),
            (0, "", "exit", "exit 0 before it returned"),
            (-9, "", "exit", "signal 9 (SIGKILL) before it returned"),
            (-200, "", "exit", "signal 200 (unknown) before it returned"),
            (
                -9,
                "limit 4 GiB",
                "memory",
                "signal 9 (SIGKILL) before it returned, out of memory; limit 4 GiB",
            ),
        ],
    )
    def test_the_end_of_a_process_without_an_outcome_is_a_failure(
        self, tmp_path, code, memory, kind, message
    ):
        ended = Ended(exit=code, overdue=False, seconds=2.5, memory=memory)
        outcome = self.outcome(tmp_path, self.Answering(ended))
        assert (outcome.trial, outcome.status, outcome.seconds) == (3, "failed", 2.5)
        assert (outcome.error.kind, outcome.error.message) == (kind, message)

    def test_a_process_that_was_ended_at_its_time_limit_has_failed(self, tmp_path):
        ended = Ended(exit=-15, overdue=True, seconds=5.5)
        outcome = self.outcome(tmp_path, self.Answering(ended))
        assert (outcome.status, outcome.seconds) == ("failed", 5.5)
        assert (outcome.error.kind, outcome.error.message) == (
            "time",
            "ended at the time limit of 5 s",
        )

    @pytest.mark.parametrize("repeats", [1, 2])
    def test_a_trial_that_was_ended_since_it_did_not_stop_has_its_last_report(
        self, tmp_path, repeats
    ):
        ended = Ended(exit=-15, overdue=True, seconds=2.5, stopped="too low")
        reports = [Report(1, {"loss": 0.5}), Report(2, {"loss": 0.25})]
        answering = self.Answering(ended, reports)
        outcome = self.outcome(tmp_path, answering, key="loss", repeats=repeats)
        assert (outcome.status, outcome.reason, outcome.seconds) == ("stopped", "too low", 2.5)
        # The last one of several repeats is not their mean.
        assert outcome.value == (0.25 if repeats == 1 else None)

    def test_a_trial_that_was_ended_on_request_is_cancelled(self, tmp_path):
        ended = Ended(exit=-15, overdue=True, seconds=2.5, end_request="its gang has failed")
        outcome = self.outcome(tmp_path, self.Answering(ended))
        assert (outcome.status, outcome.reason) == ("cancelled", "its gang has failed")

    def test_a_zygote_that_fails_is_closed_and_its_trial_fails(self, tmp_path):
        answering = self.Answering(Failure(kind="exit", message="the zygote has ended"))
        outcome = self.outcome(tmp_path, answering)
        assert outcome.error == Failure(kind="exit", message="the zygote has ended")
        assert 0 <= outcome.seconds < 60
        assert answering.is_closed

    def test_an_outcome_is_passed_on_unless_its_trial_was_ended_with_an_error(self, tmp_path):
        failed = Outcome.failed(3, "user error", "SystemExit", seconds=1.0)
        finished = Outcome(3, "finished", 0.5, "loss", {"loss": 0.5})
        for outcome, overdue, kind in [
            (failed, False, "user error"),
            (failed, True, "time"),
            (finished, True, None),
        ]:
            ended = Ended(exit=0, overdue=overdue, seconds=2.5, outcome=outcome)
            got = self.outcome(tmp_path, self.Answering(ended))
            assert (got.error.kind if got.error else None) == kind
            assert got is outcome or kind == "time"


class TestOrphans:
    """The processes of a killed zygote, which become children of the slot one after the other."""

    @pytest.fixture
    def ended(self, monkeypatch):
        """Lists of processes that were ended; each lets the next ones arrive."""
        ended = []
        arriving = [["old", "zygote"], ["old", "trial"], ["old", "child of the trial"], ["old"]]
        slot = types.SimpleNamespace(children=lambda: arriving[min(len(ended), 3)])
        monkeypatch.setattr(runners.psutil, "Process", lambda: slot)
        monkeypatch.setattr(runners.psutil, "wait_procs", lambda some, timeout: (some, []))
        monkeypatch.setattr(runners, "_children", lambda process: [f"child of {process}"])
        monkeypatch.setattr(runners, "kill_all", ended.append)
        return ended

    def end_orphans(self, before):
        runner = ProcessRunner(program(functions.double))
        runner._before = before
        runner._end_orphans()

    def test_they_are_ended_until_none_is_left_but_no_earlier_children(self, ended):
        self.end_orphans({"old"})
        orphans = ["zygote", "trial", "child of the trial"]
        assert ended == [[f"child of {orphan}", orphan] for orphan in orphans]

    def test_none_is_looked_for_before_the_slot_adopts_any(self, ended):
        self.end_orphans(None)
        assert ended == []

    def test_it_gives_up_at_its_time_limit(self, ended, monkeypatch):
        monkeypatch.setattr(time_limits, "SWEEP", -1.0)
        self.end_orphans({"old"})
        assert ended == [["child of zygote", "zygote"]]


class TestZygote:
    """Messages of a slot that arrive together."""

    @pytest.fixture
    def zygotes(self):
        with contextlib.ExitStack() as stack:

            def start(function):
                made = ZygoteLink(program(function, preload=LIGHT))
                stack.callback(made.close)
                return made

            yield start

    def task(self, number, root, **params):
        folder = RunPaths(root).attempt(number).folder
        folder.mkdir(parents=True)
        return Task(
            attempt=Attempt(Trial(number, params)),
            folder=str(folder),
            logdir=str(folder),
            environment={},
            timeout=None,
            grace=1.0,
        )

    def send(self, zygote, *messages):
        zygote._socket.sendall(b"".join(frame(encode(message)) for message in messages))

    def ended(self, zygote):
        while not isinstance(message := zygote._receive(), Ended):
            assert message is not None
        return message

    def test_signs_of_life_come_while_a_trial_says_nothing(self, tmp_path, monkeypatch):
        (tmp_path / "lively.py").write_text(
            "from spark_jobs import time_limits; time_limits.ZYGOTE_BEAT = 0.1"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        with contextlib.closing(
            ZygoteLink(program(functions.hang, preload=(*LIGHT, "lively")))
        ) as started:
            self.send(started, self.task(0, tmp_path / "run", how="sleeping"))
            assert isinstance(started._receive(), Started)
            assert [started._receive() for _ in range(3)] == [Alive()] * 3

    def test_stops_that_come_too_late_do_not_hide_the_next_trial(self, zygotes, tmp_path):
        started = zygotes(functions.double)
        for number in range(3):
            late = [StopTrial("too late")] * number
            self.send(started, *late, self.task(number, tmp_path, x=1))
            assert self.ended(started).outcome.value == 2.0

    def test_a_stop_request_sent_with_its_trial_is_received(self, zygotes, tmp_path):
        started = zygotes(functions.report_for_ever)
        self.send(started, self.task(0, tmp_path, x=1.0), StopTrial("at once"))
        assert "at once" in self.ended(started).stopped

    def test_a_stop_request_in_pieces_is_received(self, zygotes, tmp_path):
        started = zygotes(functions.report_for_ever)
        self.send(started, self.task(0, tmp_path, x=1.0))
        data = frame(encode(StopTrial("in pieces")))
        for start in range(0, len(data), 7):
            started._socket.sendall(data[start : start + 7])
        assert self.ended(started).stopped == "in pieces"


@pytest.mark.slow
def test_the_private_field_that_shows_whether_tensorflow_has_run():
    """Pins `context()._initialized`, on which the choice between fork and spawn depends."""
    import subprocess
    import sys

    code = (
        "import tensorflow; from spark_jobs.zygote.preparing import tensorflow_has_run as run; "
        "before = run(); tensorflow.constant(1); print(before, run())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == ["False", "True"]


def test_a_zygote_imports_no_grpc_and_no_tensorflow_by_itself():
    import subprocess
    import sys

    code = (
        f"import {zygote.__name__}, sys; "
        "print([m for m in ('grpc', 'tensorflow', 'pyspark') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"
