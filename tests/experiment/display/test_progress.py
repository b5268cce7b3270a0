import contextlib
import io
import re
from collections import deque
from dataclasses import replace

import pytest

from experiment.display.progress import Progress
from experiment.display.views import LineView
from experiment.results.status import Output
from experiment.results.trial_result import TrialResult
from tests.experiment.display.searches import (
    HARMLESS,
    HOSTILE,
    begin,
    failed,
    finished,
    result_of,
    status,
    stopped,
)


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


def test_all_output_is_shown_at_the_end(start):
    search = start(verbose=2)
    search.progress.close(printing(*((n, "a\n") for n in range(100))), result_of(status(5)))
    assert search.view.lines[2:] == [f"[trial {n}] a" for n in range(100)]


def test_the_output_of_other_workers_of_a_trial_has_their_rank(start):
    search = start(verbose=2)
    search.progress.refresh(printing((7, "a\nb", 1), (7, "c\nd", 0), (7, "e\nf", 2)))
    assert search.view.lines[2:] == [
        "[trial 7, worker 1] a",
        "[trial 7] c",
        "[trial 7, worker 2] e",
    ]
    search.progress.refresh(printing((7, "g\n", 1)))
    assert search.view.lines[5:] == ["[trial 7, worker 1] bg"]
    search.progress.close(status(5), result_of(status(5)))
    assert sorted(search.view.lines[6:]) == ["[trial 7, worker 2] f", "[trial 7] d"]


@pytest.mark.parametrize(
    ("worker", "name", "option"),
    [(0, "[trial 7]", ""), (1, "[trial 7, worker 1]", " --worker 1")],
)
def test_the_end_of_long_output_is_the_command_that_shows_all(start, worker, name, option):
    search = start(verbose=2)
    search.progress.refresh(printing((7, "a\n" * 1_000, worker)))
    *shown, last = search.view.lines[2:]
    assert set(shown) == {f"{name} a"}
    assert last.startswith(f"{name} ... {1_000 - len(shown)} more lines: ")
    assert last.endswith(f"-m experiment logs '/runs/a b' 7{option}")


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


def test_a_view_that_cannot_be_chosen_is_a_warning_and_the_search_goes_on(monkeypatch):
    def fail():
        raise RuntimeError("no terminal")

    monkeypatch.setattr("experiment.display.progress.choose_view", fail)
    warned = []
    with Progress("train", warn=warned.append) as shown:
        shown.refresh(status(1))
    assert warned == [
        "the progress of the search cannot be shown: RuntimeError('no terminal')",
    ]
