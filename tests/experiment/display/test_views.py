import io
import os
import re
import subprocess
import sys
import textwrap

import nbformat
import pytest
from nbclient import NotebookClient

from experiment.display.progress import Progress
from experiment.display.views import LineView, NotebookView, TerminalView, choose_view
from tests.experiment.display.searches import (
    HARMLESS,
    HOSTILE,
    begin,
    failed,
    finished,
    result_of,
    status,
)
from tests.experiment.display.terminals import in_terminal, terminal
from tests.experiment.results.html_reader import Reader


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
        "import sys; from experiment.display.views import choose_view;"
        "assert 'IPython' in sys.modules; print(type(choose_view()).__name__)"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--quick", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["LineView"], ended.stderr


CELLS = {
    "choose": """
        from experiment.display.views import choose_view
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
    from experiment.display.progress import Progress
    from experiment.display.views import NotebookView
    from spark_jobs.messages import Report
    from tests.experiment.display.searches import *

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


def pages(outputs, form="text/html"):
    """Return the HTML, or another form, of a cell's displays, as a notebook has them at the end."""
    assert {output.output_type for output in outputs} <= {"display_data", "stream"}
    return [output.data[form] for output in outputs if output.output_type == "display_data"]


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


def test_a_front_end_that_shows_only_text_has_a_line(notebook):
    [line] = pages(notebook["many"], "text/plain")
    assert line.startswith("train: 30/30 trials, took ")
    assert line.endswith(", best accuracy 2.9 in trial 29: lr=0.1")
    [waiting] = pages(notebook["waiting"], "text/plain")
    assert waiting.startswith("train: 0/9 trials, no executor yet, 0")
    [hostile] = pages(notebook["hostile"], "text/plain")
    assert f"best {HARMLESS} 1 in trial 0" in hostile
    assert hostile.isprintable()


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
