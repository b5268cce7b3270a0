"""The report of `make bench-peers`, and short runs of ours and of the process pool."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from tests.benchmarks.peers import picture, report, roster, stopwatch, tasks, trials
from tests.benchmarks.peers.__main__ import main
from tests.benchmarks.peers.environments import EnvironmentFailed, last_line, versions_of
from tests.benchmarks.peers.measured import HUNG
from tests.benchmarks.peers.runner import Run, one_round, pythons
from tests.experiment.waiting import wait_until

OURS = roster.Entry("ours", "ours", None, note="the best")
OTHER = roster.Entry("other", "pool", "spark")
BROKEN = roster.Entry("broken", "pool", "dask")
NULL, SLEEPS = (task for task in tasks.TASKS if task.name in {"null", "sleeps"})
FAULTS = tasks.FAULTS[:2]
MS = tasks.Column("ms", "ms a trial", 2)


def null_run(entry, ms):
    measured = {"ms": ms, "processor_ms": 2.0, "trials": 100, "processor": 0.2, "others": 0.5}
    return Run(entry.name, "null", measured)


RUNS = [
    null_run(OURS, 3.0),
    null_run(OURS, 1.0),
    null_run(OURS, 1.5),
    null_run(OTHER, 1.0),
    Run("other", "null", None, "hung"),
    Run("broken", "null", None, "ERROR: no | matching `distribution`"),
    Run("ours", "sleeps", {"use": 0.9, "processor": 1.0, "others": 0.1}),
    Run("other", "sleeps", {"use": 0.95, "processor": 1.0, "others": 0.1}),
    Run("ours", "raises", {"call": "returned 7 of 8"}, done=7),
    Run("ours", "exits", {"call": "returned 7 of 8"}, "hung", done=7),
    Run("other", "exits", None, "hung", done=5),
]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([2.0], "2.00"),
        ([3.0, 1.0, 1.5], "1.50 (1.00 to 3.00)"),
        ([1234.5, 1234.5], "1,234.50"),
    ],
)
def test_a_cell_has_the_median_the_least_and_the_most(values, text):
    assert report.cell(values, MS) == text


def test_a_table_has_the_best_first_and_errors_last():
    rows = report.table(NULL, [BROKEN, OURS, OTHER], RUNS).splitlines()[2:]
    assert rows == [
        "| other | 1.00; 1 of 2 runs: hung | 2.00 | 100 | 0.50 |",
        "| **ours** | 1.50 (1.00 to 3.00) | 2.00 | 100 | 0.50 |",
        "| broken | `ERROR: no / matching 'distribution'` |  |  |  |",
    ]


def test_a_table_of_uses_has_the_largest_first():
    rows = report.table(SLEEPS, [OURS, OTHER], RUNS).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| other", "| **ours**"]


def test_the_table_of_faults_names_what_became_of_the_call_and_of_the_other_trials():
    assert report.fault_table(FAULTS, [OURS, OTHER, BROKEN], RUNS).splitlines() == [
        "| the trial | raises | ends its process |",
        "| --- | --- | --- |",
        "| **ours** | returned 7 of 8; 7 of 7 ran "
        "| returned 7 of 8, but the session's end: hung; 7 of 7 ran |",
        "| other |  | hung; 5 of 7 ran |",
    ]


def test_rounds_that_came_to_different_ends_are_counted():
    ends = [Run("other", "exits", None, "hung", ran) for ran in (5, 7, 5)]
    about = report.Circumstances("2026-01-02", 3, False, True, 2, "3.11.7", [])
    page = report.page([OTHER], FAULTS, ends, about, "peers.svg")
    assert "not ended. 3 rounds; those that came to different ends are counted.\n" in page
    row = report.fault_table(FAULTS, [OTHER], ends).splitlines()[-1]
    assert row == (
        "| other |  | 2 of 3 rounds: hung; 5 of 7 ran. 1 of 3 rounds: hung; 7 of 7 ran |"
    )


def test_a_page_has_all_tables_the_load_and_a_warning_if_it_was_quick():
    about = report.Circumstances("2026-01-02", 3, True, False, 2, "3.11.7", ["ray 1.0"])
    text = report.page([OURS, OTHER, BROKEN], [NULL, SLEEPS, *FAULTS], RUNS, about, "peers.svg")
    assert "on 2026-01-02: 3 rounds, the last one interrupted, 2 cores, Python 3.11.7." in text
    assert "kept 0.50 of 2 cores busy (median of the runs; at most 0.50)" in text
    assert "This was a quick run" in text
    assert "![" in text
    assert "(peers.svg)" in text
    assert text.count("\n| ---") == 4
    assert "or the session not ended. One round.\n" in text
    assert "Versions: ray 1.0." in text


def test_a_long_error_is_clipped():
    assert len(report.clipped("x" * 1000)) < 200


@pytest.mark.slow
@pytest.mark.contract
def test_the_picture_is_the_same_for_the_same_values(tmp_path):
    for name in ("one", "two"):
        picture.draw(tmp_path / name, [OURS, OTHER], RUNS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert "ms a trial" in (tmp_path / "one").read_text(encoding="utf-8")


def test_the_last_line_of_an_error_is_its_last_text():
    assert last_line("Traceback\nValueError: bad \n\n") == "ValueError: bad"
    assert last_line("") == ""


def test_entries_have_programs_and_pinned_requirements():
    peers = ROOT / "tests/benchmarks/peers"
    names = {task.name for task in tasks.TASKS}
    for entry in roster.ENTRIES:
        assert (peers / "programs" / f"{entry.program}.py").exists()
        assert entry.without <= names
        if entry.environment is not None:
            assert "psutil" in versions_of(entry.environment)
    assert len({entry.name for entry in roster.ENTRIES}) == len(roster.ENTRIES)


def test_requirements_are_pinned_and_name_no_address():
    for path in (ROOT / "tests/benchmarks/peers/requirements").iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert [line for line in pins if "==" not in line or ":" in line] == []


def test_turns_count_from_zero(tmp_path):
    turns = str(tmp_path / "turns")
    assert trials.turns_taken(turns) == 0
    assert [trials.take_turn(turns) for _ in range(3)] == [0, 1, 2]
    assert trials.turns_taken(turns) == 3


def test_the_time_of_a_tree_includes_processes_that_have_ended():
    before = stopwatch.tree_seconds(os.getpid())
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert stopwatch.tree_seconds(os.getpid()) - before >= 0.25


def measured(limit, code):
    """Run a program with a limit; return its exit status and what it printed."""
    module = "tests.benchmarks.peers.measured"
    command = [sys.executable, "-m", module, str(limit), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    return done.returncode, done.stdout


def test_what_a_program_leaves_is_ended():
    code = (
        "import subprocess\n"
        "left = subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=-3)\n"
        "print(left.pid, flush=True)\n"
        "import os; os._exit(3)"
    )
    status, printed = measured(100, code)
    assert status == 3
    assert not Path("/proc", printed.strip()).exists()


def test_an_interrupted_run_ends_its_processes(tmp_path):
    program = "\n".join(
        [
            "import dataclasses, pathlib, signal, sys",
            "signal.signal(signal.SIGINT, signal.default_int_handler)",  # a job may ignore it
            "from tests.benchmarks.peers import roster, runner, tasks",
            "entry = roster.Entry('pool', 'pool', None)",
            "pythons = {None: pathlib.Path(sys.executable)}",
            "list(runner.one_round([entry], [tasks.FAULTS[2]], 0, pythons, quick=True))",
        ]
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: len(list(tmp_path.glob("peers-*/done/*"))) == 7)
            started = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
    assert len(started) > 3
    assert [one for one in started if one.is_running()] == []
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_hangs_is_ended():
    assert measured(0.1, "import time; time.sleep(1000)") == (HUNG, "")


def test_runs_that_were_printed_before_are_added(tmp_path, monkeypatch):
    for name, ms in (("first", 3.0), ("second", 5.0)):
        line = json.dumps(vars(null_run(OURS, ms)))
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("first", "second")]
    page = tmp_path / "build" / "page.md"
    options = ["--rounds", "0", "--tasks", "null", "--add", *files, "--page", str(page)]
    monkeypatch.setattr(sys, "argv", ["peers", *options])
    main()
    written = page.read_text(encoding="utf-8")
    assert "2 rounds, " in written
    assert "| **ours** | 4.00 (3.00 to 5.00) |" in written


@pytest.mark.slow
def test_ours_and_the_process_pool_run_one_after_the_other():
    ours = dataclasses.replace(OURS, options={"isolation": "none"})
    short = dataclasses.replace(NULL, quick={"seconds": 0.01, "most": 10})

    def python(environment):
        if environment == BROKEN.environment:
            raise EnvironmentFailed("no such package")
        return Path(sys.executable)

    found = pythons([ours, OTHER, BROKEN], python)
    runs = [
        *one_round([ours, OTHER, BROKEN], [short], 0, found, quick=True),
        *one_round([OTHER], FAULTS[1:], 0, found, quick=True),
    ]
    assert [run.peer for run in runs] == ["ours", "other", "broken", "other"]
    assert [run.error for run in runs] == ["", "", "no such package", ""]
    assert all(run.measured["ms"] > 0 and run.measured["trials"] == 10 for run in runs[:2])
    assert runs[0].measured["processor"] > 0
    assert runs[3].measured["call"].startswith("returned ")
    assert runs[3].done < 7
