"""The example notebook, and an interrupted cell, in a real kernel."""

from __future__ import annotations

import os
import signal
import threading
import time

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import experiment
from tests import ROOT
from tests.conftest import marked_commands
from tests.experiment.waiting import alive, processes_in, wait_until

QUICKSTART = ROOT / "examples" / "quickstart.ipynb"


def client_of(notebook, folder):
    return NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )


def output(cell, kind="text/plain"):
    """Return a cell's output of type `kind`; for text, with its streams."""
    texts = [o["data"][kind] for o in cell.outputs if "data" in o and kind in o["data"]]
    if kind == "text/plain":
        texts += [o["text"] for o in cell.outputs if o["output_type"] == "stream"]
    return "\n".join(texts)


def test_the_quickstart_is_stored_without_outputs():
    notebook = nbformat.read(QUICKSTART, 4)
    assert all(not cell.get("outputs") for cell in notebook.cells)


@pytest.mark.slow
def test_the_quickstart_runs_with_the_expected_outputs(tmp_path):
    notebook = nbformat.read(QUICKSTART, 4)
    client_of(notebook, tmp_path).execute()
    cells = {
        cell.source.split("\n")[0]: cell for cell in notebook.cells if cell.cell_type == "code"
    }

    grid = cells["grid = experiment.launch("]
    shown = [o for o in grid.outputs if o["output_type"] == "display_data"]
    assert len(shown) == 1  # one table, updated in place
    assert "6/6 trials, 2 failed" in shown[0]["data"]["text/html"]

    table = output(cells["grid"], "text/html")
    assert table.count("<details>") == 2
    assert "expected a positive integer" in table

    assert "(learning_rate=" in output(cells["evolution = experiment.evolutionary_search("])
    for plot in ("evolution.plot();", 'evolution.plot("parallel");'):
        assert "image/png" in str(cells[plot].outputs)
    board = cells["board = experiment.tensorboard(evolution)"]
    assert "http://127.0.0.1:" in output(board)
    assert "<iframe" in output(board, "text/html")
    assert len(list((tmp_path / "experiments").iterdir())) == 2
    assert not [cell for cell in notebook.cells if "board.close" in cell.source]  # still running


TRAIN = """
import pathlib, time
from pyspark.sql import SparkSession
import experiment
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    pathlib.Path({folder!r}, f"started-{{x}}").touch()
    time.sleep(0 if x < 2 else 600)
    return x
"""
SEARCH = """result = experiment.launch(
    spark, train, {"x": [0, 1, 2, 3, 4]}, logdir="runs", preload=()
)"""
LOOK = "print(len(result), [t.status for t in result.trials], result.problem, result.best.value)"


@pytest.mark.slow
@pytest.mark.fault(38)
def test_interrupting_a_cell_ends_the_trials_and_keeps_the_result(tmp_path):
    sources = [TRAIN.format(folder=str(tmp_path)), SEARCH, LOOK, "result", "spark.stop()"]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    client = client_of(notebook, tmp_path)
    client.create_kernel_manager()

    def interrupt():
        while len(list(tmp_path.glob("started-*"))) < 4:  # two have ended, two sleep
            time.sleep(0.05)
        os.killpg(client.km.provisioner.pgid, signal.SIGINT)  # like Jupyter's stop button

    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    before = set(marked_commands())
    client.execute()
    interrupter.join()

    _, searched, looked, shown, _ = notebook.cells
    assert "interrupted: 2 of 5 trials, 2 cancelled, best metric 1 in trial 1" in output(searched)
    statuses = ["finished", "finished", "cancelled", "cancelled"]
    assert output(looked).strip() == f"4 {statuses} interrupted 1.0"
    assert "Ended early: interrupted" in output(shown, "text/html")
    wait_until(lambda: not set(marked_commands()) - before)


@pytest.mark.slow
def test_a_silent_search_shows_nothing(tmp_path):
    sources = [
        TRAIN.format(folder=str(tmp_path)),
        "experiment.launch(spark, train, {'x': [0, 1]}, isolation='none', verbose=0);",
        "spark.stop()",
    ]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    client_of(notebook, tmp_path).execute()
    assert [o for o in notebook.cells[1].outputs if o["output_type"] != "stream"] == []


HANGS = """
import os, pathlib, time
from pyspark.sql import SparkSession
import experiment
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

def train(x):
    pathlib.Path({folder!r}, f"pid-{{os.getpid()}}").touch()
    time.sleep(600)
    return x

experiment.launch(spark, train, {{"x": [0, 1]}}, logdir="runs", preload=())
"""


@pytest.mark.slow
@pytest.mark.fault(39)
def test_a_restarted_kernel_leaves_no_trial_running(tmp_path):
    before = set(marked_commands())
    kernel, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        client.execute(HANGS.format(folder=str(tmp_path)))
        wait_until(lambda: len(processes_in(tmp_path)) == 2)
        trials = processes_in(tmp_path)
        kernel.restart_kernel(now=True)
        wait_until(lambda: not alive(trials))
        (run,) = (tmp_path / "runs").iterdir()
        assert experiment.load(run).done == 0  # the run is readable
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
        wait_until(lambda: set(marked_commands()) <= before)
