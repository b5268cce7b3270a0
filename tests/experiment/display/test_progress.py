import contextlib
import fcntl
import io
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import pyte
import pytest
from hypothesis import given
from nbclient import NotebookClient

from experiment.display.progress import (
    Frame,
    LineView,
    NotebookView,
    Progress,
    TerminalView,
    choose_view,
    running_in_words,
)
from experiment.results.result import Result
from experiment.results.status import Output, Running, Status
from experiment.results.trial_result import TrialResult
from search.direction import Direction
from search.trial import Failure, Trial
from spark_jobs.messages import Attempt, Report
from tests.experiment.results.test_html import Reader, text

HOSTILE = "a\x1b[2Jb\x1b]0;t\x07c\rd\x9be\u202ef\ng<b>h</b>$x$[red]i[/red]:smile:"
HARMLESS = "a?[2Jb?]0;t?c?d?e?f?g<b>h</b>$x$[red]i[/red]:smile:"


def finished(number, value=0.5, params=None):
    return TrialResult(
        id=number,
        params=params or {},
        value=value,
        metrics={},
        status="finished",
        error=None,
        seconds=1.0,
        logdir="",
    )


def failed(number, message="ValueError: no"):
    error = Failure("user error", message, "Traceback")
    return TrialResult(
        id=number,
        params={},
        value=None,
        metrics={},
        status="failed",
        error=error,
        seconds=1.0,
        logdir="",
    )


def stopped(number, reason="step 7: too bad"):
    return TrialResult(
        id=number,
        params={},
        value=0.25,
        metrics={},
        status="stopped",
        error=None,
        seconds=1.0,
        logdir="",
        reason=reason,
    )


def running(number, since=0.0, generation=None, params=None, last=None):
    return Running(
        attempt=Attempt(Trial(number, params or {}, generation=generation)), since=since, last=last
    )


def status(total=5, results=(), out=(), slots=1, objective="accuracy", typical=None):
    """Return the status of a coordinator after these results."""
    results = list(results)
    best = Direction.MAX.best(results, lambda result: result.value)
    return Status(
        total=total,
        results=results,
        ended=len(results),
        failed=sum(result.status == "failed" for result in results),
        cancelled=sum(result.status == "cancelled" for result in results),
        running=tuple(out),
        slots=slots,
        best=best,
        objective=objective,
        typical=typical,
    )


def frame(state, seconds=10.0, waiting="", ended=False):
    return Frame(
        name="train", status=state, seconds=seconds, waiting=waiting, now=seconds, ended=ended
    )


def result_of(state):
    return Result(state.results, Direction.MAX, "/runs", total=state.total)


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Recording:
    """A view that records its frames and lines."""

    every = 2.0

    def __init__(self):
        self.frames, self.lines, self.closed = [], [], 0

    def show(self, frame):
        assert not self.closed
        self.frames.append(frame)

    def write(self, line):
        self.lines.append(line)

    def close(self):
        self.closed += 1


def begin(name, folder, asked, **arguments):
    """Create a `Progress` as the driver does."""
    progress = Progress(name, **arguments)
    progress.asked = asked
    progress.announce(folder)
    return progress


@pytest.fixture
def start():
    """Create a `Progress` with a view that records and a clock that stands still."""

    def start(**arguments):
        view, clock = Recording(), Clock()
        given = {"name": "train", "view": view, "clock": clock} | arguments
        folder, asked = given.pop("folder", "/runs/a b"), given.pop("asked", "4 slots")
        progress = begin(given.pop("name"), folder, asked, **given)
        return SimpleNamespace(progress=progress, view=view, clock=clock)

    return start


@pytest.mark.parametrize(
    ("state", "seconds", "wanted"),
    [
        (status(5), 3.0, "0/5 trials"),
        (status(1), 3.0, "0/1 trial"),
        (status(5, out=[running(0), running(1)]), 3.0, "0/5 trials, 2 running"),
        (status(6, [failed(0)], typical=5.0), 10.0, "1/6 trials, 1 failed, about 25 s left"),
        (
            status(9, [finished(0)], slots=4, typical=600.0),
            9.0,
            "1/9 trials, about 20 min 0 s left",
        ),
        (status(9, [finished(0)], [running(1)]), 600.0, "1/9 trials, 1 running"),
        (status(1, [finished(0)]), 80.0, "1/1 trial, took 1 min 20 s"),
        (status(1, [failed(0)]), 0.5, "1/1 trial, 1 failed, took 0.5 s"),
        (status(9, out=[running(0, generation=3)]), 1.0, "0/9 trials, 1 running, generation 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_counts_done_running_and_failed_trials(state, seconds, wanted):
    assert frame(state, seconds).counts == wanted


def test_a_search_that_ended_early_has_no_time_left():
    state = status(9, [failed(0), failed(1)])
    assert frame(state, 10.0, ended=True).counts == "2/9 trials, 2 failed, took 10 s"


def test_a_frame_names_the_best_with_its_hyperparameters():
    state = status(5, [finished(0, 0.25), finished(1, 2 / 3, {"lr": 0.01, "layers": (8,)})])
    assert frame(state).best == "best accuracy 0.666667 in trial 1: lr=0.01, layers=(8,)"


@pytest.mark.parametrize("results", [[], [failed(0)]], ids=len)
def test_before_the_first_value_there_is_no_best(results):
    assert frame(status(5, results)).best == ""


def test_a_frame_is_a_line_too():
    state = status(4, [finished(0, 0.5, {"lr": 0.1})], typical=10.0)
    assert frame(state).line == (
        "train: 1/4 trials, about 30 s left, best accuracy 0.5 in trial 0: lr=0.1"
    )
    assert frame(status(4), waiting="no executor").line == "train: 0/4 trials, no executor"


@given(text, text, text)
def test_a_frame_is_one_line_whatever_the_user_calls_things(name, value, objective):
    state = status(2, [finished(0, 1.0, {name: value})], objective=objective)
    assert frame(state).line.isprintable()


def test_the_first_lines_are_the_folder_and_the_command_to_watch_the_run(start):
    writes, watch = start().view.lines
    assert writes == "train: writes to /runs/a b"
    assert watch.startswith("watch it: ")
    assert watch.endswith("-m experiment tensorboard '/runs/a b'")


def test_frames_are_shown_no_faster_than_the_view_s_interval(start):
    search = start()
    for _ in range(100):
        search.clock.now += 0.25
        search.progress.refresh(status(5))
    # But for the first slot, which is shown at once.
    assert [frame.seconds for frame in search.view.frames] == [0.25 + 2.0 * n for n in range(13)]


def test_the_last_frame_is_shown_at_once_with_the_end_of_the_search(start):
    search = start()
    state = status(5, [finished(0)])
    search.clock.now += 0.1
    search.progress.close(state, result_of(state))
    [last] = search.view.frames
    assert last.counts == "1/5 trials, took 0.1 s"
    assert search.view.closed == 1


def test_without_a_slot_a_frame_has_the_time_and_the_requested_slots(start):
    search = start(asked="4 slots of 1 core and 1 GPU")
    search.clock.now += 30.0
    search.progress.refresh(status(5, slots=0))
    assert search.view.frames[-1].waiting == (
        "no executor yet, 30 s: asked for 4 slots of 1 core and 1 GPU"
    )
    search.clock.now += 45.0
    search.progress.refresh(status(5, slots=0))
    assert search.view.frames[-1].waiting.startswith("no executor yet, 1 min 15 s: ")


def test_without_a_slot_a_frame_has_the_resources_of_spark(start):
    search = start(asked="2 slots of 1 core")
    search.progress.there = "2 executors run 2 tasks of the search, whose Python is starting"
    search.clock.now += 30.0
    search.progress.refresh(status(5, slots=0))
    assert search.view.frames[-1].waiting == (
        "no slot yet, 30 s: 2 executors run 2 tasks of the search, whose Python is starting; "
        "asked for 2 slots of 1 core"
    )


def test_slots_of_another_driver_are_updated_in_each_frame(start):
    search = start(asked="2 slots of 1 core")
    said = ["", "slots leave within 88 s", "slots leave within 118 s"]
    search.progress.leaving = said.pop
    for end in ("1 core; slots leave within 118 s", "1 core; slots leave within 88 s", "1 core"):
        search.clock.now += 30.0
        search.progress.refresh(status(5, slots=0))
        assert search.view.frames[-1].waiting.endswith(end)


def test_each_note_about_slots_is_shown_once(start):
    search = start()
    state = replace(status(5), notes=deque(["executor on host a\x1b lost, trial 7 runs again"]))
    before = len(search.view.lines)
    search.progress.refresh(state)
    search.progress.refresh(state)
    state.notes.append("executor lost, trial 8 runs again")
    search.progress.close(state, result_of(state))
    assert search.view.lines[before:] == [
        "train: executor on host a? lost, trial 7 runs again",
        "train: executor lost, trial 8 runs again",
    ]


def test_a_frame_waits_for_slots_again_when_the_last_slot_is_lost(start):
    search = start()
    waiting = []
    for slots in (0, 1, 2, 0, 0, 1):
        search.clock.now += 10.0
        search.progress.refresh(status(5, slots=slots))
        waiting.append(search.view.frames[-1].waiting.partition(":")[0])
    alone = "no executor yet, "
    again = "no slot, "
    assert waiting == [alone + "10 s", "", "", "", again + "10 s", ""]


def test_a_finished_search_does_not_wait_for_slots_that_have_ended(start):
    search = start()
    for results in ([], [finished(0)]):
        search.clock.now += 10.0
        search.progress.refresh(status(1, results, slots=1 - len(results)))
    search.clock.now += 10.0
    search.progress.refresh(status(1, [finished(0)], slots=0))
    assert [frame.waiting for frame in search.view.frames] == ["", "", ""]


def test_an_ended_search_waits_for_nothing(start):
    search = start()
    search.progress.refresh(status(5, slots=0))
    search.progress.close(status(5, slots=0), result_of(status(5)))
    assert search.view.frames[-1].waiting == ""


def test_a_silent_search_shows_nothing_and_touches_no_view(start, capfd):
    search = start(verbose=0)
    plain = begin("train", "/runs", "1 slot", verbose=0, clock=search.clock)
    state = status(1, [failed(0)])
    for progress in (search.progress, plain):
        search.clock.now += 60
        progress.refresh(state)
        progress.close(state, result_of(state))
    assert (search.view.frames, search.view.lines, search.view.closed) == ([], [], 0)
    assert capfd.readouterr() == ("", "")


def test_usually_only_failed_trials_get_a_line_and_only_at_the_end(start):
    search = start()
    state = status(5, [finished(0), failed(1, "ValueError: too large"), finished(2)])
    search.clock.now += 60
    search.progress.refresh(state)
    assert len(search.view.lines) == 2
    search.progress.close(state, result_of(state))
    assert search.view.lines[2:] == ["trial 1 failed after 1.0 s: ValueError: too large"]


def test_many_failures_are_counted_and_the_command_that_shows_them_is_named(start):
    search = start()
    state = status(20, [failed(n) for n in range(10)])
    search.progress.close(state, result_of(state))
    *some, more = search.view.lines[2:]
    assert [line.split()[1] for line in some] == ["0", "1", "2"]
    assert more.startswith("and 7 more failed trials: ")
    assert more.endswith("-m experiment show '/runs/a b'")


def test_a_verbose_search_has_a_line_per_trial_as_soon_as_it_ends(start):
    search = start(verbose=2)
    state = status(5, [finished(0, 1 / 3, {"lr": 0.1})])
    search.progress.refresh(state)
    assert search.view.lines[2:] == ["trial 0 (lr=0.1) finished after 1.0 s with 0.333333"]
    assert len(search.view.frames) == 1  # the first slot has come
    state.results.append(finished(1, 2.0))
    state.results.append(
        TrialResult(
            id=2,
            params={},
            value=None,
            metrics={},
            status="cancelled",
            error=None,
            seconds=0.0,
            logdir="",
        )
    )
    search.progress.refresh(state)
    search.progress.refresh(state)
    assert search.view.lines[3:] == [
        "trial 1 finished after 1.0 s with 2",
        "trial 2 cancelled after 0 s",
    ]
    state.results.append(failed(3))
    search.progress.close(state, result_of(state))
    assert search.view.lines[5] == "trial 3 failed after 1.0 s: ValueError: no"


def test_a_view_gets_only_printable_text_of_the_user(start):
    search = start(name=HOSTILE, folder=HOSTILE, verbose=2)
    params = {HOSTILE: HOSTILE}
    state = status(2, [failed(0, HOSTILE), finished(1, 1.0, params)], objective=HOSTILE)
    search.clock.now += 60
    search.progress.refresh(state)
    search.progress.close(state, result_of(state))
    assert all(line.isprintable() for line in search.view.lines)
    assert all(frame.line.isprintable() for frame in search.view.frames)
    assert search.view.frames[0].line.startswith(HARMLESS)


def test_a_verbose_search_shows_the_step_at_which_a_trial_was_stopped(start):
    search = start(verbose=2)
    search.progress.refresh(status(5, [stopped(0), stopped(1, HOSTILE)]))
    assert search.view.lines[2:] == [
        "trial 0 stopped after 1.0 s at step 7: too bad with 0.25",
        f"trial 1 stopped after 1.0 s at {HARMLESS} with 0.25",
    ]


def printing(*pieces):
    return replace(status(5), output=deque(Output(*piece) for piece in pieces))


def test_a_verbose_search_shows_the_output_of_trials_line_by_line(start):
    search = start(verbose=2)
    state = printing((0, "a\nb"), (1, "c\n"), (0, "b\n\n"), (0, "d"))
    search.progress.refresh(state)
    assert search.view.lines[2:] == ["[trial 0] a", "[trial 1] c", "[trial 0] bb", "[trial 0] "]
    assert not state.output  # removed from the queue
    search.progress.refresh(printing((0, "e\nf")))
    assert search.view.lines[6:] == ["[trial 0] de"]
    search.progress.close(printing((1, "g")), result_of(status(5)))
    assert sorted(search.view.lines[7:]) == ["[trial 0] f", "[trial 1] g"]


def test_a_long_line_without_end_is_shown(start):
    search = start(verbose=2)
    for _ in range(3):
        search.progress.refresh(printing((0, "x" * 6_000)))
    assert search.view.lines[2:] == ["[trial 0] " + "x" * 12_000]


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_output_of_trials_is_shown_only_on_request(start, verbose):
    search = start(verbose=verbose)
    before = list(search.view.lines)
    search.progress.refresh(printing((0, "a\n")))
    search.progress.close(printing((0, "b\n")), result_of(status(5)))
    assert search.view.lines == before


def test_the_output_of_trials_moves_no_cursor(start):
    search = start(verbose=2)
    search.progress.refresh(printing((0, HOSTILE + "\n")))
    first, second, third = (line for line in re.split("(?<=c)\\?|(?<=f)\\?", HARMLESS))
    assert search.view.lines[2:] == [f"[trial 0] {line}" for line in (first, second, third)]


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        (None, "running"),
        (Report(3, {"loss": 0.25}), "running, step 3: loss=0.25"),
        (Report(0, {"loss": math.nan, "big": math.inf}), "running, step 0: loss=nan, big=inf"),
        (Report(9, dict.fromkeys("abcde", 1.0)), "running, step 9: a=1, b=1, c=1"),
    ],
)
def test_a_running_trial_shows_its_last_report(last, wanted):
    assert running_in_words(running(0, last=last)) == wanted


def test_a_trial_whose_slot_imports_modules_is_starting():
    assert running_in_words(running(0, since=None)) == "starting"
    assert running(0, since=None).seconds(7.0) == 0.0


def lines_of(stream):
    return stream.getvalue().splitlines()


def test_a_log_gets_at_most_one_line_in_ten_seconds(start):
    stream = io.StringIO()
    search = start(view=LineView(stream))
    for _ in range(1_000):
        search.clock.now += 0.1
        search.progress.refresh(status(5))
    state = status(5, [finished(n) for n in range(5)])
    search.progress.close(state, result_of(state))
    progress = [line for line in lines_of(stream) if "/5 trials" in line]
    assert 9 <= len(progress) <= 11
    assert progress[-1] == "train: 5/5 trials, took 1 min 40 s, best accuracy 0.5 in trial 0"
    assert stream.getvalue().endswith("\n")


def test_a_log_has_no_control_characters(start):
    stream = io.StringIO()
    search = start(view=LineView(stream), name=HOSTILE, folder=HOSTILE, verbose=2)
    state = status(2, [failed(0, HOSTILE), finished(1, 1.0, {HOSTILE: HOSTILE})])
    search.progress.close(state, result_of(state))
    assert stream.getvalue().replace("\n", "").isprintable()
    assert f"trial 0 failed after 1.0 s: {HARMLESS}" in lines_of(stream)


@pytest.mark.parametrize("moment", ["write", "show", "close"])
def test_a_view_that_fails_is_closed_with_one_warning(moment, start):
    warnings = []
    search = start(warn=warnings.append)

    def fail(*_):
        raise RuntimeError("no screen")

    setattr(search.view, moment, fail)
    state = status(1, [failed(0)])
    for _ in range(3):
        search.clock.now += 60
        search.progress.refresh(state)
    search.progress.close(state, result_of(state))
    (warning,) = warnings
    assert "no screen" in warning


def test_a_closed_or_full_stream_does_not_end_the_search(start, tmp_path):
    closed = io.StringIO()
    closed.close()
    state = status(1, [finished(0)])
    with open("/dev/full", "w", buffering=1) as full:
        for stream in (None, closed, full):
            warnings = []
            search = start(view=LineView(stream), warn=warnings.append)
            search.progress.close(state, result_of(state))
            assert len(warnings) == (stream is not None)
        with contextlib.suppress(OSError):
            full.close()


def test_without_a_terminal_or_a_notebook_progress_is_lines(monkeypatch):
    for stream in (None, io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        view = choose_view()
        assert isinstance(view, LineView)
        assert view.stream is stream


def test_progress_goes_to_standard_error(capfd):
    state = status(1, [finished(0)])
    begin("train", "/runs", "1 slot").close(state, result_of(state))
    output, errors = capfd.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 3


@contextlib.contextmanager
def terminal(columns=80, lines=40):
    """Yield both ends of a pseudo terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    try:
        yield master, slave
    finally:
        os.close(slave)
        with contextlib.suppress(OSError):
            os.close(master)


TERMINAL_PROGRAM = """
import sys
import threading
from experiment.display.progress import Progress, TerminalView, choose_view
from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from experiment.results.status import Status
from search.direction import Direction
from search.trial import Failure

HOSTILE, HARMLESS = {HOSTILE!r}, {HARMLESS!r}
now = 0.0

def clock():
    global now
    now += 1.0
    return now

def finished(number, value=0.5, params=None):
    return TrialResult(
        id=number, params=params or {{}}, value=value, metrics={{}}, status="finished",
        error=None, seconds=1.0, logdir="",
    )

def failed(number, message):
    return TrialResult(
        id=number, params={{}}, value=None, metrics={{}}, status="failed",
        error=Failure("exit", message), seconds=1.0, logdir="",
    )

def start(name="train", verbose=1):
    progress = Progress(name, verbose=verbose, clock=clock)
    progress.asked = "1 slot"
    progress.announce("/runs")
    return progress

def state(results, total=5, objective="accuracy"):
    best = Direction.MAX.best(results, lambda result: result.value)
    return Status(
        total=total, results=results, ended=len(results), slots=1, best=best, objective=objective
    )

def close(progress, status):
    progress.close(status, Result(status.results, Direction.MAX, "/runs"))
"""
RICH_SETTINGS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM")


def in_terminal(program, *, columns=80, stdout=None, term="xterm-256color"):
    """Run a program in a pseudo terminal; return the screen's text and the raw output."""
    program = TERMINAL_PROGRAM.format(**globals()) + textwrap.dedent(program)
    names = [name for name in os.environ if name not in RICH_SETTINGS]
    environment = {name: os.environ[name] for name in names} | {"TERM": term}
    with terminal(columns) as (master, slave):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=slave,
            stdout=stdout or slave,
            stderr=slave,
            env=environment,
        )
        raw = b""
        while process.poll() is None or readable(master):
            if readable(master):
                raw += os.read(master, 1 << 16)
        assert process.returncode == 0, raw.decode(errors="replace")
    screen = pyte.Screen(columns, 40)
    pyte.ByteStream(screen).feed(raw)
    return [line.rstrip() for line in screen.display if line.strip()], raw


def readable(descriptor):
    import select

    return bool(select.select([descriptor], [], [], 0.1)[0])


def test_a_terminal_has_one_bar_that_is_drawn_over():
    seen, raw = in_terminal(
        """
        progress = start()
        assert isinstance(progress._view, TerminalView)
        results = []
        for number in range(5):
            progress.refresh(state(results))
            results.append(finished(number, number / 4, {"lr": 0.1}))
        assert threading.active_count() == 1
        close(progress, state(results))
        """
    )
    writes, watch, bar, best = seen
    assert writes == "train: writes to /runs"
    assert watch.startswith("watch it: ")
    assert re.fullmatch(r"train \S+ 5/5 trials, took [\d.]+ s", bar)
    assert best == "best accuracy 1 in trial 4: lr=0.1"
    assert all(b"%d/5 trials" % n in raw for n in range(6))
    assert raw.endswith(b"\x1b[?25h")  # the cursor is visible again


def test_a_terminal_shows_the_last_reports_of_some_trials_below_the_bar():
    seen, _ = in_terminal(
        """
        from spark_jobs.messages import Attempt, Report
        from experiment.results.status import Running
        from search.trial import Trial
        def out(number, name):
            last = None if number == 1 else Report(number, {name: 0.5})
            return Running(attempt=Attempt(Trial(number, {})), since=0.0, last=last)
        progress = start()
        names = ["loss", "", HOSTILE, "a", "b", "c"]
        running = tuple(out(number, name) for number, name in enumerate(names))
        progress.refresh(Status(total=9, running=running, slots=1))
        """,
        columns=120,
    )
    assert seen[3:] == [
        "trial 0 running, step 0: loss=0.5",
        f"trial 2 running, step 2: {HARMLESS}=0.5",
        "trial 3 running, step 3: a=0.5",
        "trial 4 running, step 4: b=0.5",
    ]


def test_the_reason_to_wait_disappears_once_it_is_gone():
    program = """
        progress = start()
        alone = Status(total=5)
        progress.refresh(alone)
        progress.refresh(alone)
    """
    assert "no executor yet" in in_terminal(program)[0][-1]
    seen, raw = in_terminal(program + "    close(progress, state([]))")
    assert b"no executor yet" in raw
    assert [line for line in seen if "executor" in line] == []
    assert seen[-1].endswith("0/5 trials, took 3.0 s")


HOSTILE_PROGRAM = """
    progress = start({0}, verbose=2)
    results = [finished(0, 1.0, {{ {0}: {0} }}), failed(1, {0})]
    progress.refresh(state(results, objective={0}))
    close(progress, state(results, objective={0}))
"""


def test_hostile_text_moves_no_cursor_and_is_shown_without_control_characters():
    seen, raw = in_terminal(HOSTILE_PROGRAM.format("HOSTILE"), columns=300)
    _, harmless = in_terminal(HOSTILE_PROGRAM.format("HARMLESS"), columns=300)
    assert raw == harmless
    assert f"{HARMLESS}: writes to /runs" in seen
    assert f"trial 1 failed after 1.0 s: {HARMLESS}" in seen
    assert f"trial 0 ({HARMLESS}={HARMLESS}) finished after 1.0 s with 1" in seen
    assert f"best {HARMLESS} 1 in trial 0: {HARMLESS}={HARMLESS}" in seen


def test_text_printed_during_a_search_is_above_the_bar():
    seen, _ = in_terminal(
        """
        progress = start()
        progress.refresh(state([]))
        print("[red]hello[/red] of", "the program")
        print("an error", file=sys.stderr)
        progress.refresh(state([finished(0)]))
        print("\\x1b[31mred\\x1b[0m")
        close(progress, state([finished(0)]))
        print("afterwards")
        """
    )
    assert seen[2:5] == ["[red]hello[/red] of the program", "an error", "red"]
    assert "1/5 trials" in seen[5]
    assert seen[-1] == "afterwards"
    assert len(seen) == 8


def test_a_line_without_an_end_is_not_lost():
    seen, _ = in_terminal(
        """
        progress = start()
        progress.refresh(state([]))
        print("no end", end="")
        close(progress, state([]))
        print("afterwards")
        """
    )
    assert sum("no end" in line for line in seen) == 1
    assert sum("afterwards" in line for line in seen) == 1


def test_text_printed_to_a_file_is_written_to_the_file(tmp_path):
    path = tmp_path / "output"
    with path.open("w") as stdout:
        seen, raw = in_terminal(
            """
            progress = start()
            progress.refresh(state([]))
            print("\\x1b[31mfor the file\\x1b[0m" + "x" * 200)
            close(progress, state([]))
            """,
            stdout=stdout,
        )
    assert path.read_text() == "\x1b[31mfor the file\x1b[0m" + "x" * 200 + "\n"
    assert b"for the file" not in raw
    assert "0/5 trials" in seen[-1]


def test_a_narrow_terminal_shows_the_bar_once_too():
    seen, _ = in_terminal(
        """
        progress = start("a search with a rather long name")
        results = []
        for number in range(5):
            progress.refresh(state(results))
            results.append(finished(number, 1.0, {"learning_rate": 0.001, "optimizer": "adam"}))
        close(progress, state(results))
        """,
        columns=30,
    )
    everything = " ".join(seen)
    assert everything.count("trials") == 1
    assert everything.count("best") == 1


def test_a_terminal_that_cannot_overwrite_gets_the_end_as_text():
    seen, raw = in_terminal(
        """
        progress = start()
        for number in range(5):
            progress.refresh(state([]))
        close(progress, state([finished(0)]))
        """,
        term="dumb",
    )
    assert b"\x1b" not in raw
    assert sum("trials" in line for line in seen) == 2  # the first slot has come, and the end
    assert any("1/5 trials" in line for line in seen)


def test_a_closed_terminal_does_not_end_the_search(monkeypatch):
    with terminal() as (master, slave), open(slave, "wb", buffering=0, closefd=False) as file:
        stream = io.TextIOWrapper(file, write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        warnings = []
        progress = begin("train", "/runs", "1 slot", warn=warnings.append)
        assert isinstance(progress._view, TerminalView)
        os.close(master)
        state = status(1, [finished(0)])
        progress.close(state, result_of(state))
        assert len(warnings) == 1
        assert sys.stderr is stream


def test_a_second_search_on_a_terminal_writes_lines_above_the_bar(monkeypatch):
    with terminal() as (_, slave), open(slave, "wb", buffering=0, closefd=False) as file:
        stream = io.TextIOWrapper(file, write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("first"):
            assert isinstance(choose_view(), LineView)
        assert sys.stderr is stream


def test_an_ipython_in_a_terminal_is_no_notebook():
    program = (
        "import sys; from experiment.display.progress import choose_view;"
        "assert 'IPython' in sys.modules; print(type(choose_view()).__name__)"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--quick", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["LineView"], ended.stderr


CELLS = {
    "choose": """
        from experiment.display.progress import choose_view
        print(type(choose_view()).__name__)
    """,
    "many": """
        progress = begin("train", "/runs", "1 slot", view=NotebookView(every=0.0))
        for number in range(30):
            progress.refresh(status(30, results(number), [running(number)]))
        close(progress, results(30))
    """,
    "twice": """
        for name in ("first", "second"):
            progress = begin(name, "/runs", "1 slot")
            close(progress, results(1))
    """,
    "hostile": """
        progress = begin(HOSTILE, HOSTILE, HOSTILE, view=NotebookView(every=0.0))
        ended = [finished(0, 1.0, {HOSTILE: HOSTILE}), failed(1, HOSTILE)]
        last = Report(1, {HOSTILE: 0.5})
        out = [running(2, params={HOSTILE: [HOSTILE]}, last=last)]
        progress.refresh(status(9, ended, out, slots=0, objective=HOSTILE))
    """,
    "waiting": """
        progress = begin("train", "/runs", "4 slots", view=NotebookView(every=0.0))
        progress.refresh(status(9, slots=0))
    """,
    "verbose": """
        progress = begin("train", "/runs", "1 slot", verbose=2)
        close(progress, results(2))
    """,
    "reporting": """
        progress = begin("train", "/runs", "1 slot", view=NotebookView(every=0.0))
        out = [running(2, last=Report(3, {"loss": 0.25, "accuracy": 0.5}))]
        progress.refresh(status(9, [stopped(1)], out))
    """,
    "long": """
        progress = begin("train", "/runs", "1 slot", view=NotebookView(every=0.0))
        params = {"lr": 0.1, "opt": "adam"}
        out = [running(100 + n, params=params) for n in range(3)]
        progress.refresh(status(1000, results(100), out))
    """,
}
SETUP = """
    from experiment.display.progress import NotebookView, Progress
    from tests.experiment.display.test_progress import *

    def results(count):
        return [finished(number, number / 10, {"lr": 0.1}) for number in range(count)]

    def close(progress, ended):
        state = status(len(ended), ended)
        progress.close(state, result_of(state))
"""


@pytest.fixture(scope="module")
def notebook():
    """Run the cells in a kernel; return the outputs of each."""
    notebook = nbformat.v4.new_notebook()
    for source in (SETUP, *CELLS.values()):
        notebook.cells.append(nbformat.v4.new_code_cell(textwrap.dedent(source)))
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells[1:], strict=True)}


def pages(outputs):
    """Return the HTML of a cell's displays, as a notebook shows them at the end."""
    assert {output.output_type for output in outputs} <= {"display_data", "stream"}
    return [output.data["text/html"] for output in outputs if output.output_type == "display_data"]


def printed(outputs):
    return "".join(output.text for output in outputs if output.output_type == "stream").splitlines()


def test_a_notebook_is_recognised(notebook):
    assert printed(notebook["choose"]) == ["NotebookView"]


def test_a_notebook_has_one_table_that_is_updated_in_place(notebook):
    [html] = pages(notebook["many"])
    said = Reader(html).said
    assert "train: 30/30 trials, took" in said
    assert "best accuracy 2.9 in trial 29: lr=0.1" in said
    assert {("value", "30"), ("max", "30")} <= set(Reader(html).attributes)
    assert printed(notebook["many"])[0] == "train: writes to /runs"
    assert len(printed(notebook["many"])) == 2


def test_two_searches_in_a_cell_have_a_table_each(notebook):
    first, second = map(Reader, pages(notebook["twice"]))
    assert "first: 1/1 trial" in first.said
    assert "second: 1/1 trial" in second.said


def test_the_table_of_a_notebook_has_running_trials_and_those_that_ended_last(notebook):
    [html] = pages(notebook["long"])
    assert Reader(html, "th").inside == ["trial", "status", "accuracy", "time", "lr", "opt"]
    cells = Reader(html, "td").inside
    rows = [cells[start : start + 6] for start in range(0, len(cells), 6)]
    assert [row[0] for row in rows] == ["100", "101", "102"] + [str(n) for n in range(99, 92, -1)]
    assert [row[1] for row in rows] == ["running"] * 3 + ["finished"] * 7
    assert rows[0][4:] == ["0.1", "adam"]
    assert rows[3][2:] == ["9.9", "1.0 s", "0.1", ""]


def test_the_table_of_a_notebook_has_reports_and_stop_reasons(notebook):
    [html] = pages(notebook["reporting"])
    cells = Reader(html, "td").inside
    assert cells[1] == "running, step 3: loss=0.25, accuracy=0.5"
    assert cells[4:7] == ["1", "stopped at step 7: too bad", "0.25"]


def test_hostile_text_does_not_become_html_in_a_notebook(notebook):
    [html] = pages(notebook["hostile"])
    reader = Reader(html)
    assert set(reader.tags) <= {"div", "progress", "table", "thead", "tbody", "tr", "th", "td"}
    assert Reader(html, "th").inside[-1] == HARMLESS.replace("f?g", "f\ng")
    assert Reader(html, "td").inside[-1] == HARMLESS
    assert f"best {HARMLESS} 1 in trial 0" in reader.said
    assert "tex2jax_ignore" in html
    assert all(line.isprintable() for line in printed(notebook["hostile"]))


def test_a_notebook_shows_the_reason_to_wait(notebook):
    [html] = pages(notebook["waiting"])
    assert "no executor yet, 0" in Reader(html).said
    assert "asked for 4 slots" in Reader(html).said
    assert "table" not in Reader(html).tags


def test_a_verbose_search_prints_its_lines_in_a_notebook(notebook):
    assert printed(notebook["verbose"])[2:] == [
        "trial 0 (lr=0.1) finished after 1.0 s with 0",
        "trial 1 (lr=0.1) finished after 1.0 s with 0.1",
    ]


def test_a_notebook_view_can_be_created_without_a_kernel():
    assert NotebookView().every == 1.0
