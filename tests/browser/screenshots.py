"""The documentation's pictures, of real searches: `make screenshots`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbconvert
import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Browser, FrameLocator, Page

import experiment
from experiment.run_files.loading import find_runs, load
from spark_jobs.storage.locations import Location
from tests import ROOT
from tests.browser.pages import axes, browser, open_page, points, rows_loaded, wait_until

EXAMPLES = ROOT / "examples"
PICTURES = EXAMPLES / "pictures"


def main() -> None:
    """Run the examples and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    # As in an activated environment: the commands in the notebook are short then.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        runs = Path(folder, "runs")
        run = _run_example("evolutionary_search.py", runs, "--seed", "1")
        with experiment.tensorboard(run) as board:
            trials = open_page(chromium, board, "trials")
            wait_until(trials, lambda: rows_loaded(trials) == 40)
            _take(trials, "table")
            trials.get_by_text("Parallel Coordinates View").click()
            wait_until(trials, lambda: len(axes(trials)) == 5)
            _take(trials, "parallel-coordinates")
            search = open_page(chromium, board, "search: overview")
            best = search.locator("tf-custom-scalar-multi-line-chart-card").first
            wait_until(search, lambda: points(best) == 4)
            search.get_by_text("Ignore outliers in chart scaling").click()
            _take(search, "generations")
        _run_example("grid_search.py", runs)
        take_tab(chromium, runs)
        _take_notebook(chromium, Path(folder))


def _run_example(name: str, logdir: Path, *options: str) -> Path:
    """Run a program of the examples; return the folder of its run."""
    command = [sys.executable, str(EXAMPLES / name), *options, "--logdir", str(logdir)]
    subprocess.run(command, check=True)
    return Path(find_runs(Location.parse(logdir))[-1].path)


def take_tab(chromium: Browser, runs: Path) -> None:
    """Take the pictures of the Experiment tab.

    Args:
        chromium: The browser.
        runs: A folder with the runs of examples/evolutionary_search.py and grid_search.py.
    """
    grid, evolution = sorted(runs.iterdir(), key=lambda run: load(run).total)
    with experiment.tensorboard(runs) as board:
        for view in ("overview", "trials", "parameters", "population", "slots"):
            page, _ = _open_tab(chromium, board, evolution.name, view)
            _take(page, f"tab-{view}", height=420 if view == "slots" else 800)
            page.close()
        page, frame = _open_tab(chromium, board, evolution.name, "runs")
        for run in (grid, evolution):
            frame.get_by_label(f"compare {run.name}").check()
        frame.get_by_role("table", name="Best configurations and settings side by side").wait_for()
        _take(page, "tab-runs", height=1000)
        page.close()
        page, frame = _open_tab(chromium, board, evolution.name, "trials")
        frame.locator("[role=row]:not(.head)").first.click()
        frame.get_by_role("dialog").get_by_label("Curves").locator("canvas").first.wait_for()
        _take(page, "tab-trial", height=1000)
        page.close()
        page, _ = _open_tab(chromium, board, evolution.name, "population")
        page.evaluate("document.body.classList.add('dark-mode')")  # as TensorBoard's button does
        _take(page, "tab-dark")
        page.close()


def _open_tab(
    chromium: Browser, board: experiment.TensorBoard, run: str, view: str
) -> tuple[Page, FrameLocator]:
    parts = f"&p.experiment.run={run}&p.experiment.view={view}"
    page = open_page(chromium, board, "experiment", parts)
    frame = page.frame_locator("iframe")
    frame.locator("body[data-filled='40']").wait_for(state="attached")
    frame.locator("canvas:visible, [role=row]:not(.head), [role=tabpanel] table").first.wait_for()
    return page, frame


def _take_notebook(chromium: Browser, folder: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", 4)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    notebook.cells[1].outputs = []  # what Spark says when it starts
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    (folder / "notebook.html").write_text(html)
    page = chromium.new_page(viewport={"width": 1100, "height": 1000})
    page.goto((folder / "notebook.html").as_uri())
    cells = page.locator(".jp-Cell")
    for number, cell in enumerate(notebook.cells):  # from the grid to the picture of its results
        if cell.source.startswith(("# A search", "from pyspark", "## The train", "def train")):
            cells.nth(number).evaluate("cell => cell.style.display = 'none'")
    cells.nth(len(notebook.cells) - 1).evaluate("cell => cell.style.display = 'none'")
    _take(page, "notebook", width=1100, height=1100)


def _take(page: Page, name: str, width: int = 1400, height: int = 800) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(1_500)  # animations, which say nothing of their end
    page.screenshot(path=PICTURES / f"{name}.png")
    print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
