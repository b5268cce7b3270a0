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
from playwright.sync_api import Browser, Page

import experiment
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
        run = _run_example(Path(folder))
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
            for view in ("overview", "parameters", "population"):
                _take_tab(chromium, board, view)
        _take_notebook(chromium, Path(folder))


def _run_example(folder: Path) -> Path:
    """Run the evolutionary search of the examples; return the run's folder."""
    command = [sys.executable, str(EXAMPLES / "evolutionary_search.py")]
    subprocess.run([*command, "--seed", "1", "--logdir", str(folder / "runs")], check=True)
    (run,) = (folder / "runs").iterdir()
    return run


def _take_tab(chromium: Browser, board: experiment.TensorBoard, view: str) -> None:
    page = open_page(chromium, board, "experiment", f"&p.experiment.view={view}")
    frame = page.frame_locator("iframe")
    frame.locator("body[data-filled='40']").wait_for(state="attached")
    frame.locator("canvas:visible, [role=row]:not(.head)").first.wait_for()
    _take(page, f"tab-{view}")
    page.close()


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
