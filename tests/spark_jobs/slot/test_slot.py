import contextlib
import errno
import functools
import json
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import msgspec
import pytest
from pyspark import TaskContext
from tensorboard.plugins.hparams import metadata

import experiment
from search.trial import Outcome, Trial
from spark_jobs import time_limits
from spark_jobs.addresses import OwnAddress
from spark_jobs.channel.credentials import make_certificate
from spark_jobs.channel.exchange import ChannelLost, SlotChannel
from spark_jobs.channel.grpc_channel import Address, ChannelServer
from spark_jobs.channel.reporter import Reporter
from spark_jobs.messages import Attempt, Gang, Heard, Hello, Next, Stop, decode, encode
from spark_jobs.run_folder import writing
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot import slot
from spark_jobs.slot.attempts import Attempts
from spark_jobs.slot.config import SlotConfig
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, HeldPorts
from spark_jobs.slot.host import host_name
from spark_jobs.slot.run_attempt import run_attempt
from spark_jobs.slot.runners import InProcessRunner, ProcessRunner
from spark_jobs.slot.slot import make_runner, pull_trials, run_trials
from spark_jobs.storage.files import LocalFiles, StoreUnavailable
from spark_jobs.trial.gang_connections import connected
from spark_jobs.trial.precision import why_slow
from spark_jobs.trial.trial_process import Program
from spark_jobs.zygote.link import RunnerBroken
from tests import ROOT
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.channel.channel_contract import Script
from tests.spark_jobs.trial.events.reading import hparams_data, scalars


def test_a_worker_imports_neither_pandas_nor_pyarrow_for_a_slot():
    heavy = ["keras", "pandas", "pyarrow", "pyspark", "scipy", "tensorflow"]
    program = (
        "import sys, spark_jobs.slot.slot; "
        f"sys.exit(', '.join(name for name in {heavy} if name in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.stderr == "\n"


def config_of(root, function=functions.double, **changes):
    settings = {
        "address": Address(target="host:1", token="token", certificate="certificate"),
        "root": str(root),
        "program": Program(function=cloudpickle.dumps(function), key=None, direction="max"),
        "isolation": "none",
        "timeout": None,
        "grace": 1.0,
        "spark_assigns_gpus": False,
        "as_text": (),
        "echo": False,
    }
    return SlotConfig(**settings | changes)


def test_the_configuration_travels_as_json(tmp_path):
    config = config_of(tmp_path, timeout=2.5, as_text=("a",))
    assert decode(encode(config), SlotConfig) == config


@pytest.mark.parametrize(
    ("isolation", "kind"),
    [("none", InProcessRunner), ("process", ProcessRunner), ("spawn", ProcessRunner)],
)
def test_each_isolation_has_its_runner(tmp_path, isolation, kind):
    assert type(make_runner(config_of(tmp_path, isolation=isolation), {})) is kind


def run(config, attempt):
    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        return run_attempt(config, attempt, make_runner(config, {}), pytest.fail, reporter)


def test_an_attempt_leaves_its_files_and_its_row_in_tensorboard(tmp_path):
    attempt = Attempt(Trial(7, {"x": 1.5}, generation=2), 3)
    outcome = run(config_of(tmp_path), attempt)
    assert (outcome.trial, outcome.value) == (7, 3.0)
    paths = RunPaths(tmp_path).attempt(7, 3)
    assert paths.folder.name == "000007-3"
    assert json.loads(paths.trial.read_text())["trial"]["params"] == {"x": 1.5}
    assert json.loads(paths.outcome.read_text())["value"] == 3.0
    assert scalars(paths.folder) == {"objective/metric": [(0, 3.0)]}
    row = hparams_data(paths.folder, metadata.SESSION_START_INFO_TAG)
    assert {name: value.number_value for name, value in row.hparams.items()} == {
        "x": 1.5,
        "generation": 2,
    }


def test_a_failed_attempt_has_its_traceback_in_tensorboard(tmp_path):
    outcome = run(config_of(tmp_path, functions.fail), Attempt(Trial(0, {"x": 1})))
    assert outcome.error.kind == "user error"
    (events,) = RunPaths(tmp_path).attempt(0).folder.glob("*tfevents*")
    assert b"user bug 1" in events.read_bytes()


def test_a_folder_that_cannot_be_made_fails_the_trial_not_the_slot(tmp_path):
    root = tmp_path / "run"
    root.write_text("in the way")
    outcome = run(config_of(root), Attempt(Trial(0, {"x": 1})))
    assert (outcome.status, outcome.error.kind) == ("failed", "machine")
    assert str(root / "trials") in outcome.error.message


def test_an_attempt_with_an_odd_integer_runs(tmp_path):
    outcome = run(config_of(tmp_path, lambda x: 1), Attempt(Trial(0, {"x": 10**400})))
    assert outcome == Outcome(
        0, "finished", 1.0, "metric", {"metric": 1.0}, seconds=outcome.seconds
    )
    assert Path(tmp_path, "trials", "000000").is_dir()


def test_the_attempts_before_disappear_from_tensorboard(tmp_path):
    config = config_of(tmp_path)
    for number in (1, 2, 3):
        run(config, Attempt(Trial(4, {"x": 1}), number))
        run(config, Attempt(Trial(5, {"x": 1})))
    names = {
        path.relative_to(tmp_path / "trials").as_posix() for path in tmp_path.rglob("*events*")
    }
    assert names == {
        "000004/events.out.lost-events.trial",
        "000004-2/events.out.lost-events.trial",
        "000004-3/events.out.tfevents.trial",
        "000005/events.out.tfevents.trial",
    }


class Driver:
    """The channel to a driver that hands out attempts and keeps the messages, in order."""

    GANG_BEAT = time_limits.GANG_BEAT

    def __init__(self, *attempts, stop_at=None):
        self.attempts, self.stop_at = list(attempts), stop_at
        self.heard, self.answer = [], Heard()

    def report(self, attempt, reports, output):
        self.heard.append((attempt.trial.id, [report.step for report in reports], output))
        steps = [report.step for report in reports]
        stops = self.stop_at is not None and self.stop_at in steps
        return Heard(stop="step 3: enough") if stops else self.answer

    def next(self, number, outcome):
        self.heard.append(outcome)
        return self.attempts.pop(0) if self.attempts else None


def pull(config, driver, *attempts):
    first, *driver.attempts = attempts
    with make_runner(config, {}) as runner:
        pull_trials(config, Attempts(driver), runner, first, pytest.fail)


def test_the_first_answer_of_a_driver_that_wants_few_messages_counts(tmp_path):
    def train(x):
        for step in range(250):
            experiment.report(step=step, loss=x)
        return x

    driver = Driver()
    driver.answer = Heard(pause=60.0, last_only=True)
    pull(config_of(tmp_path, train), driver, Attempt(Trial(0, {"x": 1})))
    began, outcome = driver.heard
    assert (began, outcome.status) == ((0, [], ""), "finished")


def test_the_driver_gets_all_reports_and_output_before_the_outcome(tmp_path):
    def train(x):
        print("hello from", x)
        for step in range(250):
            experiment.report(step=step, loss=x)
        return x

    driver = Driver()
    config = config_of(tmp_path, train, echo=True)
    pull(config, driver, *(Attempt(Trial(n, {"x": n})) for n in range(3)))
    for number in range(3):
        end = next(i for i, heard in enumerate(driver.heard) if isinstance(heard, Outcome))
        sent, outcome = driver.heard[:end], driver.heard[end]
        assert (outcome.trial, outcome.status) == (number, "finished")
        assert {trial for trial, _, _ in sent} == {number}
        assert [step for _, steps, _ in sent for step in steps] == list(range(250))
        assert "".join(output for _, _, output in sent) == f"hello from {number}\n"
        del driver.heard[: end + 1]
    assert driver.heard == []


def test_the_driver_learns_that_a_slot_is_prepared_before_its_first_trial_runs(tmp_path):
    driver = Driver()
    pull(config_of(tmp_path), driver, *(Attempt(Trial(n, {"x": n})) for n in range(2)))
    assert driver.heard[0] == (0, [], "")
    assert [type(heard) for heard in driver.heard[1:]] == [Outcome, Outcome]


def test_output_is_not_sent_without_echo(tmp_path):
    driver = Driver()
    pull(config_of(tmp_path, functions.look_around), driver, Attempt(Trial(0, {"x": 1})))
    assert {output for _, _, output in driver.heard[:-1]} == {""}


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_stopped_trial_says_so_in_tensorboard_and_the_next_one_runs(tmp_path, isolation):
    driver = Driver(stop_at=3)
    config = config_of(tmp_path, functions.report_for_ever, isolation=isolation)
    pull(config, driver, *(Attempt(Trial(n, {"x": 1.5})) for n in range(2)))
    outcomes = [heard for heard in driver.heard if isinstance(heard, Outcome)]
    assert [outcome.status for outcome in outcomes] == ["stopped"] * 2
    for number, outcome in enumerate(outcomes):
        assert outcome.reason == "step 3: enough"
        paths = RunPaths(tmp_path).attempt(number)
        written = json.loads(paths.outcome.read_text())
        assert (written["status"], written["step"]) == ("stopped", outcome.step)
        assert written["reason"] == "step 3: enough"
        curves = scalars(paths.folder)
        assert curves["trial/last_step"] == [(0, outcome.step)]
        assert curves["objective/loss"] == [(0, pytest.approx(outcome.value))]
        (events,) = paths.folder.glob("*tfevents*")
        assert b"stopped at step 3: enough" in events.read_bytes()


def test_a_later_attempt_finds_the_checkpoints_of_the_one_before(tmp_path):
    def train(x):
        file = Path(experiment.checkpoint_dir(), "count")
        count = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(count))
        return count

    config = config_of(tmp_path, train)
    values = [run(config, Attempt(Trial(4, {"x": 1}), number)).value for number in (1, 2, 3)]
    assert values == [1.0, 2.0, 3.0]
    assert run(config, Attempt(Trial(5, {"x": 1}, parent=4))).value == 4.0
    assert run(config, Attempt(Trial(6, {"x": 1}))).value == 1.0


@pytest.mark.parametrize("breaks_at", ["start", "end"])
def test_an_unwritable_trial_folder_is_a_failure_of_the_train_function(
    tmp_path, monkeypatch, breaks_at
):
    """As if it had made the folder immutable, which a container may not do."""
    from spark_jobs.slot import run_attempt as module

    tries, sent = [], []

    def write(top, folder, function):
        tries.append(folder)
        if len(tries) > (1 if breaks_at == "start" else 2):
            raise PermissionError(1, "Operation not permitted", str(folder))
        slots_write(top, folder, function)

    slots_write = module.write_below
    monkeypatch.setattr(module, "write_below", write)
    config = config_of(tmp_path)
    attempt = Attempt(Trial(0, {"x": 1}))
    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        runner = make_runner(config, {})
        outcome = run_attempt(config, attempt, runner, sent.append, reporter)
    folder = RunPaths(tmp_path).attempt(0).folder
    host, why = (
        f"host {host_name()}: ",
        (
            f"[Errno 1] Operation not permitted: '{folder}'; this host can write to the run's "
            "folder, so a train function has changed this trial's"
        ),
    )
    if breaks_at == "start":
        assert (outcome.error.kind, outcome.error.message) == ("user error", host + why)
    else:
        assert outcome.value == 2.0
        counts = "its outcome counts, but could not be written to its folder"
        assert sent == [f"{host}trial 0: {counts}: {why}"]


@pytest.mark.parametrize(("failures", "status"), [(1, "finished"), (99, "failed")])
def test_an_error_of_the_storage_is_no_failure_of_the_train_function(
    tmp_path, monkeypatch, failures, status
):
    """Also if the storage works again as soon as it is looked at."""
    from spark_jobs.slot import run_attempt as module

    tries = []

    def write(top, folder, function):
        tries.append(folder)
        if len(tries) <= failures:
            raise OSError(116, "Stale file handle", str(folder))
        slots_write(top, folder, function)

    slots_write = module.write_below
    monkeypatch.setattr(module, "write_below", write)
    outcome = run(config_of(tmp_path), Attempt(Trial(0, {"x": 1})))
    assert outcome.status == status
    if status == "failed":
        folder = RunPaths(tmp_path).attempt(0).folder
        message = f"host {host_name()}: [Errno 116] Stale file handle: '{folder}'"
        assert (outcome.error.kind, outcome.error.message) == ("machine", message)


def test_an_outage_of_the_runs_store_counts_against_no_host(tmp_path, monkeypatch):
    from spark_jobs.slot import run_attempt as module

    class Away(LocalFiles):
        def names(self, location):
            raise StoreUnavailable(f"{location}: HDFS does not answer")

    monkeypatch.setattr(module, "writable_files_at", lambda location, hadoop: Away())
    monkeypatch.setattr(time_limits, "OUTAGE", 0.0)
    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        config = config_of(tmp_path)
        runner, attempt = make_runner(config, {}), Attempt(Trial(0, {"x": 1}), 2)
        failure = run_attempt(config, attempt, runner, lambda text: None, reporter).error
    assert (failure.kind, failure.of_store) == ("machine", True)
    assert failure.message.endswith("/trials: HDFS does not answer")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder of temporary files, empty at first."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return folder


@pytest.mark.parametrize("refused", [False, True])
def test_the_files_of_an_attempt_on_a_full_disk_are_stored_or_named(
    tmp_path, monkeypatch, scratch, refused
):
    from spark_jobs.slot import run_attempt as module

    class Store(LocalFiles):
        def write(self, location, source, length=None):
            if refused:
                raise PermissionError(errno.EACCES, "Permission denied", location.path)
            super().write(location, source, length)

    class FullDisk:
        def run(self, attempt, paths, tell):
            paths.stdout.write_text("its output")
            raise OSError(errno.ENOSPC, "No space left on device")

    sent = []
    for opens in (module, writing):
        monkeypatch.setattr(opens, "writable_files_at", lambda location, hadoop: Store())
    config = config_of(f"hdfs://nn:8020{tmp_path}/run")
    attempt = Attempt(Trial(0, {"x": 1}))
    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        outcome = run_attempt(config, attempt, FullDisk(), sent.append, reporter)
    assert outcome.error.kind == "machine"
    left = list(scratch.iterdir())
    if refused:
        (folder,) = left
        assert [f"the rest is in {folder}" in message for message in sent] == [True]
    else:
        assert (left, sent) == ([], [])
        folder = RunPaths(tmp_path / "run").attempt(0).folder
    assert (folder / "stdout.log").read_text() == "its output"


def test_the_files_of_an_attempt_whose_runner_broke_are_stored(tmp_path, monkeypatch, scratch):
    from spark_jobs.slot import run_attempt as module

    class Broken:
        def run(self, attempt, paths, tell):
            raise RunnerBroken("the zygote does not start")

    for opens in (module, writing):
        monkeypatch.setattr(opens, "writable_files_at", lambda location, hadoop: LocalFiles())
    config = config_of(f"hdfs://nn:8020{tmp_path}/run")
    with (
        Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter,
        pytest.raises(RunnerBroken),
    ):
        run_attempt(config, Attempt(Trial(0, {"x": 1})), Broken(), pytest.fail, reporter)
    assert list(scratch.iterdir()) == []
    assert RunPaths(tmp_path / "run").attempt(0).trial.exists()


def test_a_host_that_can_start_no_uploader_fails_the_trial_not_the_slot(tmp_path, monkeypatch):
    from spark_jobs.slot import run_attempt as module

    for opens in (module, writing):
        monkeypatch.setattr(opens, "writable_files_at", lambda location, hadoop: LocalFiles())
    error = without_further_threads(monkeypatch, "experiment-uploader")
    outcome = run(config_of(f"hdfs://nn:8020{tmp_path}/run"), Attempt(Trial(0, {"x": 1})))
    assert outcome.error.kind == "machine"
    assert outcome.error.message == f"host {host_name()}: {error}"


def test_a_trial_runs_though_the_attempts_before_cannot_be_hidden(tmp_path, monkeypatch):
    from spark_jobs.slot import run_attempt as module

    def refused(*arguments):
        raise PermissionError("refused")

    monkeypatch.setattr(module, "hide_events", refused)
    sent = []
    config = config_of(tmp_path)
    attempt = Attempt(Trial(0, {"x": 1}), 2)
    with Reporter(lambda *arguments: Heard(), pytest.fail, pytest.fail) as reporter:
        outcome = run_attempt(config, attempt, make_runner(config, {}), sent.append, reporter)
    assert outcome.status == "finished"
    assert sent == ["trial 0 shows twice in TensorBoard: refused"]


class OneTrial(Script):
    """A driver that has one trial, unless it is to give other answers."""

    def __init__(self, answers=None):
        super().__init__(*answers or (Attempt(Trial(0, {"x": 1})), Stop()))

    def report(self, message):
        return Heard()

    def of_kind(self, kind):
        return [message for message in self.heard if isinstance(message, kind)]


@pytest.fixture
def heard_of_slot(tmp_path, monkeypatch):
    """Return a function that lets a slot run a trial, and returns the driver."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # this process is in no task afterwards

    def heard(function, cpus=1, isolation="none", answers=None, **settings):
        driver, task = OneTrial(answers), TaskContext()
        task._cpus = cpus
        task._resources = {}
        with ChannelServer("127.0.0.1", driver) as server:
            config = config_of(tmp_path, address=server.address, isolation=isolation)
            program = msgspec.structs.replace(config.program, **settings)
            config = msgspec.structs.replace(config, program=program)
            run_trials(config, cloudpickle.dumps(function), "1.0.0", task)
        return driver

    return heard


def test_a_warning_that_does_not_reach_the_driver_loses_no_outcome(heard_of_slot, monkeypatch):
    hello = SlotChannel.hello

    def refused(channel, message):
        if message.warnings:
            raise ChannelLost("the driver does not answer")
        return hello(channel, message)

    monkeypatch.setattr(SlotChannel, "hello", refused)
    answers = (Attempt(Trial(0, {"how": "all removed"})), Stop())
    driver = heard_of_slot(functions.change_folder, answers=answers)
    assert [message.outcome.value for message in driver.of_kind(Next) if message.outcome] == [1.0]


def test_hogwild_uses_the_cores_of_the_task(heard_of_slot):
    def train(x):
        names, together = set(), threading.Barrier(3)

        def step(batch):
            names.add(threading.current_thread().name)
            together.wait(60)  # for ever, if there are fewer threads

        experiment.hogwild(step, range(3))
        return len(names)

    driver = heard_of_slot(train, cpus=3)
    outcomes = [message.outcome for message in driver.of_kind(Next) if message.outcome]
    assert [(outcome.error, outcome.value) for outcome in outcomes] == [(None, 3.0)]


@pytest.mark.parametrize(("flags", "warned"), [("avx512f", True), ("avx512f amx_bf16", False)])
def test_a_processor_that_is_slow_in_the_precision_is_warned_of(
    heard_of_slot, tmp_path, monkeypatch, flags, warned
):
    processor = tmp_path / "cpuinfo"
    processor.write_text(f"flags\t\t: fpu {flags}\n")
    monkeypatch.setattr(slot, "why_slow", functools.partial(why_slow, cpuinfo=processor))
    driver = heard_of_slot(functions.double, precision="mixed_bfloat16")
    warnings = [text for message in driver.of_kind(Hello) for text in message.warnings]
    assert ["has neither AMX nor AVX512-BF16" in text for text in warnings] == [True] * warned


def without_room_for_temporary_files(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/missing")
    return "[Errno 2] No such file or directory: "


def without_further_processes(monkeypatch):
    def refused(*arguments, **settings):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    return "[Errno 11] Resource temporarily unavailable"


def without_further_threads(monkeypatch, name="experiment-reports"):
    """Let this host be at its limit of processes, which counts threads, for one of this name."""

    def start(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        starts(thread)

    starts = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    return "[Errno 11] can't start new thread"


@pytest.mark.parametrize(
    "host",
    [without_room_for_temporary_files, without_further_processes, without_further_threads],
)
def test_a_host_that_can_start_no_trials_is_named_and_its_task_does_not_fail(
    heard_of_slot, monkeypatch, host
):
    error = host(monkeypatch)
    driver = heard_of_slot(functions.double, isolation="process")
    begun, ended = driver.of_kind(Hello)
    assert begun.problem == ""
    assert ended.problem.startswith(f"host {host_name()}, Python {sys.executable}: {error}")


@pytest.mark.fault(21)
def test_a_slot_that_cannot_run_trials_ends_when_the_driver_lets_it(heard_of_slot, monkeypatch):
    """Spark would kill another slot of its task, which may have a trial."""
    problem = "host a: no space left"
    monkeypatch.setattr(slot, "folder_problem", lambda *arguments: problem)
    hello, asked = heard_of_slot(functions.double, answers=[Stop()]).heard
    assert (hello.problem, asked) == (problem, Next("1.0.0"))


@pytest.mark.fault(21)
def test_a_slot_whose_zygote_does_not_start_ends_when_the_driver_lets_it(
    heard_of_slot, monkeypatch
):
    without_further_processes(monkeypatch)
    *_, hello, asked = heard_of_slot(functions.double, isolation="process").heard
    assert "[Errno 11] Resource temporarily unavailable" in hello.problem
    assert asked == Next("1.0.0")


@pytest.fixture
def member():
    """Return attempts as worker 1 of a gang of two gets them; worker 0 is a thread of this test."""
    here = OwnAddress(socket.AF_INET, "127.0.0.1")
    key, certificate = (pem.decode() for pem in make_certificate())
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(contextlib.closing(HeldPorts(here, DEFAULT_PORTS)))
            for _ in range(2)
        ]
        for ports in held:
            ports.lend()

        def attempt(number=1, rank=1):
            gang = Gang(
                rank=rank,
                members=tuple(ports.address.links for ports in held),
                servers=tuple(ports.address.server for ports in held),
                key=key,
                certificate=certificate,
            )
            return Attempt(Trial(0, {"x": 1}), number, gang)

        def worker_0():
            with connected(attempt(rank=0).gang, time_limits.CONNECT):
                ended.wait()

        first = stack.enter_context(ThreadPoolExecutor(1)).submit(worker_0)
        stack.callback(ended.set)
        yield attempt
        ended.set()
        first.result()


def test_a_worker_of_a_higher_rank_leaves_its_output_only(tmp_path, member):
    def train(x):
        print("rank", experiment.rank(), "of", experiment.world_size())
        experiment.report(step=0, loss=x)
        Path(experiment.logdir(), "model").write_text("m")
        Path(experiment.checkpoint_dir(), "step").write_text("1")

    outcome = run(config_of(tmp_path, train), member())
    assert (outcome.status, outcome.value) == ("cancelled", None)
    assert outcome.reason == "it has returned; the value of worker 0 counts"
    paths = RunPaths(tmp_path).attempt(0, rank=1)
    assert paths.folder == tmp_path / "trials" / "000000" / "workers" / "1"
    assert {path.name for path in paths.folder.iterdir()} == {
        "outcome.json",
        "stderr.log",
        "stdout.log",
        "trial.json",
    }
    assert paths.stdout.read_text() == "rank 1 of 2\n"
    assert "PRIVATE KEY" not in paths.trial.read_text()
    assert decode(paths.trial.read_bytes(), Attempt) == member().without_gang()


def test_all_workers_begin_with_the_last_checkpoint_of_rank_0(tmp_path, member):
    saved = RunPaths(tmp_path).attempt(0).checkpoint
    saved.mkdir(parents=True)
    (saved / "step").write_text("5")

    def train(x):
        print(Path(experiment.checkpoint_dir(), "step").read_text())

    run(config_of(tmp_path, train), member(number=2))
    assert RunPaths(tmp_path).attempt(0, 2, rank=1).stdout.read_text() == "5\n"


def test_only_errors_of_a_higher_rank_are_shown(tmp_path, member):
    def train(x):
        print("as rank 0 says")
        print("a warning", file=sys.stderr)

    driver = Driver()
    pull(config_of(tmp_path, train, echo=True), driver, member())
    assert "".join(said[2] for said in driver.heard[:-1]) == "a warning\n"
