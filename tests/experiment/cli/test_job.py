"""The exit status of a job; jobs as processes are in `tests/spark_jobs/test_submit.py`."""

from __future__ import annotations

import errno
import shlex
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from experiment.cli.job import (
    BAD_INPUT,
    CANCELLED,
    DONE,
    FAILED,
    NO_RESULT,
    _status,
    _status_of_failure,
    main,
)
from experiment.driver.control import deadline_passed
from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from experiment.setup.settings import check_folder
from search.direction import Direction
from search.trial import Failure
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location

FINISHED = TrialResult(
    id=0,
    params={"x": 1},
    value=0.5,
    metrics={"metric": 0.5},
    status="finished",
    error=None,
    seconds=1.0,
    logdir="",
)
BROKEN = TrialResult(
    id=0,
    params={},
    value=None,
    metrics={},
    status="failed",
    error=Failure(kind="user error", message="no"),
    seconds=1.0,
    logdir="",
)
AMBIGUOUS = replace(BROKEN, error=Failure(kind="ambiguous objective", message="which one?"))
STOPPED = TrialResult(
    id=0,
    params={"x": 1},
    value=0.5,
    metrics={"metric": 0.5},
    status="stopped",
    error=None,
    seconds=1.0,
    logdir="",
    reason="step 1",
)


@pytest.mark.parametrize(
    ("trial", "problem", "status"),
    [
        (FINISHED, None, DONE),
        (STOPPED, None, DONE),
        (BROKEN, None, NO_RESULT),
        (FINISHED, deadline_passed(60), DONE),
        (BROKEN, deadline_passed(60), NO_RESULT),
        (FINISHED, deadline_passed(61), CANCELLED),
        (FINISHED, "interrupted", CANCELLED),
        (BROKEN, "stopped by python -m experiment stop", CANCELLED),
    ],
)
def test_the_exit_status_of_an_ended_search(trial, problem, status):
    result = Result([trial], Direction("max"), "", problem=problem)
    assert _status(result, 60) == status


def test_a_problem_without_a_deadline_is_an_early_end():
    result = Result([FINISHED], Direction("max"), "", problem="interrupted")
    assert _status(result, None) == CANCELLED


@pytest.mark.parametrize(
    ("trials", "problem", "status"),
    [
        ([BROKEN], None, NO_RESULT),
        ([BROKEN] * 3, "3 trials failed, more than max_failures=2", NO_RESULT),
        ([BROKEN] * 4, "3 trials failed, more than max_failures=2", NO_RESULT),
        ([BROKEN] * 3 + [FINISHED], "3 trials failed, more than max_failures=2", FAILED),
        ([AMBIGUOUS], "which one?", NO_RESULT),
        ([BROKEN], "no", FAILED),
        ([BROKEN], "the SparkSession was stopped during the search", FAILED),
        ([BROKEN], "the driver cannot continue: OSError: No space left on device", FAILED),
        ([FINISHED], "the SparkSession was stopped during the search", FAILED),
        ([], "the SparkSession was stopped during the search", FAILED),
    ],
)
def test_only_failed_trials_end_with_status_3(trials, problem, status):
    result = Result(trials, Direction("max"), "", problem=problem)
    assert _status_of_failure(result, 2) == status


@pytest.fixture
def _handlers():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConnectionError("hdfs://host/runs: HDFS failed for 120 s"), FAILED),
        (PermissionError(errno.EACCES, "no permission", "hdfs://host/runs"), BAD_INPUT),
    ],
)
def test_storage_that_may_work_again_is_no_bad_input(monkeypatch, capsys, error, status):
    def fail(*_):
        raise error

    def read_job(words):
        check_folder("logdir", Location.parse("hdfs://host/runs"), HadoopSettings())

    monkeypatch.setattr("experiment.setup.settings.writable_files_at", fail)
    monkeypatch.setattr("experiment.cli.job.read_job", read_job)
    assert main([]) == status
    said = f"logdir: expected a folder that can be written to, got {error}\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("_handlers")
def test_bad_input_is_one_line_on_stderr_and_starts_no_spark(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--train", "no_such_module:train", "--grid", "grid.yaml"]) == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("--train: expected a module that can be imported")
    assert len(printed.err.splitlines()) == 1


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--popsize", "abc"], "popsize: expected an integer of at least 4, got 'abc'"),
        (["--deadline", "1h"], "deadline: expected "),
        (["--direction", "maximum"], "direction: expected "),
        (["--searcher", "random", "--samples", "0"], "samples: expected "),
    ],
)
def test_wrong_arguments_start_no_spark(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spark_jobs.session.classic.make_session", pytest.fail)
    (tmp_path / "bounds.yaml").write_text("x: [0.0, 1.0]\n")
    given = ["--train", "math:sqrt", "--bounds", "bounds.yaml", *words]
    assert main(given) == BAD_INPUT
    assert capsys.readouterr().err.startswith(message)


def test_a_result_that_cannot_be_printed_is_no_failure_of_the_search(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with it, nothing is left to the exit
    program = """
from experiment.cli.job import _print
from experiment.results.result import Result
from search.direction import Direction
_print(Result([], Direction.MAX, "/runs"))
"""
    command = [sys.executable, "-c", program]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "the result cannot be printed: [Errno 28] No space left on device\n"
    assert (ended.returncode, ended.stderr) == (0, told)
    closed = f"{shlex.join(command)} | true; exit ${{PIPESTATUS[0]}}"
    for line in (closed, *(f"{shlex.join(command)} {to}" for to in (">&-", ">/dev/full 2>&1"))):
        ended = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
