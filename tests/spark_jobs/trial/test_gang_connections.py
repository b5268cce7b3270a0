"""Workers of a trial, each in its process, connect before the train function is unpickled."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import re
import socket
import subprocess
import sys
import threading

import cloudpickle
import pytest

import experiment
from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.channel.credentials import make_certificate
from spark_jobs.messages import Attempt, Gang
from spark_jobs.strategies.in_step.ports import PortTaken
from spark_jobs.strategies.settings import Mirrored
from spark_jobs.trial import gang_connections, trial_process
from spark_jobs.trial.context import TrialContext, entered
from spark_jobs.trial.trial_process import Program, evaluate


def attempts(size=2):
    """Return the attempt of each member of a gang, whose ports are free."""
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(socket.socket()) for _ in range(size)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        members = tuple(f"127.0.0.1:{port.getsockname()[1]}" for port in ports)
    key, certificate = (pem.decode() for pem in make_certificate())
    gangs = [
        Gang(rank=rank, members=members, servers=members, key=key, certificate=certificate)
        for rank in range(size)
    ]
    return [Attempt(Trial(0, {"x": 1.0}), 1, gang) for gang in gangs]


def member(function, attempt, folder, start_method="fork"):
    """Evaluate an attempt in this process."""
    program = Program(function=function, key=None, direction="max", start_method=start_method)
    return evaluate(program, attempt, folder)


_MEMBER = f"""
import pickle, sys
from {__name__} import member

with open(sys.stdin.fileno(), "rb") as calls, open(sys.stdout.fileno(), "wb") as outcomes:
    while True:
        try:
            call = pickle.load(calls)
        except EOFError:
            break
        pickle.dump(member(*call), outcomes)
        outcomes.flush()
"""


@pytest.fixture(scope="module")
def processes():
    """Two processes that evaluate attempts until their input ends."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _MEMBER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(2)
        ]


@pytest.fixture
def outcomes(processes, tmp_path):
    """A function that evaluates a train function in two workers; returns outcomes by rank."""

    def evaluated(function):
        pickled = cloudpickle.dumps(function)
        for process, attempt in zip(processes, attempts(), strict=True):
            pickle.dump((pickled, attempt, tmp_path), process.stdin)
            process.stdin.flush()
        return [pickle.load(process.stdout) for process in processes]

    return evaluated


def test_workers_exchange_arrays(outcomes):
    def train(x):
        rank = experiment.rank()
        experiment.barrier()
        ((total,), (first,)) = (
            experiment.all_reduce([rank + x], op="sum", rings=1, compress="float16"),
            experiment.broadcast([float(rank)], root=1),
        )
        return float(total) + 10 * float(first)

    first, second = outcomes(train)
    assert (first.status, first.value, first.error) == ("finished", 13.0, None)
    assert second.status == "cancelled"


def test_a_worker_that_returns_does_not_wait_for_the_others(outcomes):
    """Rank 1 makes a call that rank 0 never makes, so it hears that rank 0 has left."""

    def train(x):
        if experiment.rank() == 0:
            return x
        return experiment.barrier()

    first, second = outcomes(train)
    assert (first.status, first.value) == ("finished", 1.0)
    assert second.error.kind == "user error"
    assert "GangBroken: barrier: worker 0 at 127.0.0.1" in second.error.message


@pytest.mark.parametrize(
    ("trial", "number", "start_method", "seconds"),
    [
        (Trial(0, {"x": 1.0}), 1, "fork", "0.1"),
        (Trial(0, {"x": 1.0}), 2, "fork", "0.2"),
        (Trial(1, {"x": 1.0}, parent=0), 1, "fork", "0.2"),
        (Trial(0, {"x": 1.0}), 1, "spawn", "0.2"),
    ],
)
def test_a_worker_has_longer_to_listen_if_it_may_copy_a_checkpoint_or_imports(
    tmp_path, monkeypatch, trial, number, start_method, seconds
):
    monkeypatch.setattr(time_limits, "CONNECT_FIRST", 0.1)
    monkeypatch.setattr(time_limits, "CONNECT", 0.2)
    attempt = Attempt(trial, number, attempts()[0].gang)
    outcome = member(b"", attempt, tmp_path, start_method)
    assert outcome.error.kind == "machine"
    assert f"within {seconds} s (Connection refused)" in outcome.error.message


def test_an_error_ends_the_connections_too(outcomes):
    def train(x):
        if experiment.rank() == 1:
            raise ValueError("no")
        experiment.barrier()

    first, second = outcomes(train)
    assert second.error.message == "ValueError: no"
    assert "GangBroken" in first.error.message


def test_different_calls_are_the_train_functions_error(outcomes):
    def train(x):
        experiment.all_reduce([[1.0, 2.0]] if experiment.rank() else [[1.0]])

    assert any(
        outcome.error.kind == "user error" and "MembersDisagree" in outcome.error.message
        for outcome in outcomes(train)
    )


def test_a_worker_that_never_comes_is_the_machines_failure_before_anything_is_unpickled(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(time_limits, "CONNECT_FIRST", 0.1)
    attempt, _ = attempts()
    outcome = member(b"no pickle", attempt, tmp_path)
    host, other = "127.0.0.1", re.escape(attempt.gang.members[1])
    assert outcome.error.kind == "machine"
    assert outcome.error.unreached
    assert re.fullmatch(
        rf"worker 0 on host {host} does not reach worker 1 at {other} within 0.1 s \(.+\); open "
        "the workers' ports between the executors, or set spark.experiment.workerPorts to ports "
        "that are open",
        outcome.error.message,
    )


def test_a_port_that_another_program_has_is_the_machines_failure(tmp_path):
    attempt, _ = attempts()
    host, port = attempt.gang.members[0].split(":")
    with socket.create_server((host, int(port))):
        outcome = member(b"no pickle", attempt, tmp_path)
    assert outcome.error.kind == "machine"
    assert not outcome.error.unreached
    assert outcome.error.message == (
        f"worker 0 cannot listen at {host}:{port} (Address already in use); another program may "
        "have taken the port: set spark.experiment.workerPorts to ports that no other program uses"
    )


def check_cannot_connect(folder, why):
    attempt, _ = attempts()
    outcome = member(b"no pickle", attempt, folder)
    assert outcome.error.kind == "machine"
    assert not outcome.error.unreached
    expected = f"worker 0 at {attempt.gang.members[0]} cannot connect ({why})"
    assert outcome.error.message == expected


def test_a_host_that_can_start_no_further_thread_is_the_machines_failure(tmp_path, monkeypatch):
    def start(thread):
        if thread.name == "gang-listener":
            raise RuntimeError("can't start new thread")
        starts(thread)

    starts = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    check_cannot_connect(tmp_path, "can't start new thread")


def test_a_host_without_file_descriptors_is_no_taken_port(tmp_path, monkeypatch):
    def bound(address):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(gang_connections, "bound", bound)
    check_cannot_connect(tmp_path, "Too many open files")


def test_a_port_of_the_framework_that_another_program_has_is_the_machines_failure(
    tmp_path, monkeypatch
):
    def taken(*arguments):
        raise PortTaken("TensorFlow cannot listen")

    monkeypatch.setattr(trial_process, "training_with", taken)
    program = Program(function=b"no pickle", key=None, direction="max", strategy=Mirrored())
    outcome = evaluate(program, Attempt(Trial(0, {})), tmp_path)
    assert (outcome.error.kind, outcome.error.message) == ("machine", "TensorFlow cannot listen")


def test_the_train_function_sees_no_key(outcomes):
    def train(x):
        from spark_jobs.trial.context import current

        seen = [repr(current()), repr(vars(current().communicator)), repr(dict(os.environ))]
        assert "PRIVATE KEY" not in json.dumps([*seen, experiment.params()])
        return x

    assert outcomes(train)[0].value == 1.0


@pytest.mark.parametrize("inside", [True, False])
def test_one_worker_gets_copies(tmp_path, inside):
    trial = TrialContext(params={}, folder=tmp_path)
    with entered(trial) if inside else contextlib.nullcontext():
        experiment.barrier()
        for call in (experiment.all_reduce, experiment.broadcast):
            given = [1.0, 2.0]
            [array] = call([given])
            assert array.tolist() == given
        [array] = experiment.all_reduce([[0.1, 1e9]], rings=3, compress="float16")
        assert array.tolist() == [0.1, 1e9]  # nothing is sent
        for name, options in (
            ("op: expected one of 'mean'", {"op": "product"}),
            ("rings: expected an integer from 1", {"rings": 0}),
            ("compress: expected 'float16' or None", {"compress": "int8"}),
        ):
            with pytest.raises(experiment.InvalidArgument, match=name):
                experiment.all_reduce([1.0], **options)


def test_a_trial_on_one_slot_imports_no_communicator(tmp_path):
    code = f"""
import pathlib, sys
import experiment
from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt
from spark_jobs.trial.trial_process import Program, evaluate
import pickle
program = Program(function=pickle.dumps(float), key=None, direction="max")
outcome = evaluate(program, Attempt(Trial(0, {{}})), pathlib.Path({str(tmp_path)!r}))
assert outcome.value == 0.0, outcome
assert not [name for name in sys.modules if "communicator" in name]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
