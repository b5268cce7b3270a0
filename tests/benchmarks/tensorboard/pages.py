"""Time until TensorBoard shows a search, and the cost of our tab: `make bench-tensorboard`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser
from pyspark.sql import SparkSession

import experiment
from tests.benchmarks.tensorboard import tab
from tests.browser.pages import browser, open_page, rows_loaded, wait_until

_TRIALS = 1_000
_BAR = 5.0  # seconds


def main() -> None:
    """Run a search and print the table of docs/benchmarks.md."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.authenticate", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as logdir, browser() as chromium:
        result = experiment.evolutionary_search(
            spark,
            lambda x: -x * x,
            {"x": [-1.0, 1.0]},
            popsize=40,
            generations=_TRIALS // 40 - 1,
            logdir=Path(logdir),
            isolation="none",
            verbose=0,
        )
        started = time.perf_counter()
        with experiment.tensorboard(result) as board:
            print(f"\n{_TRIALS} trials; TensorBoard listened after {_since(started)}\n")
            # When the table is full, it has read all files once.
            page = open_page(chromium, board, "trials")
            wait_until(page, lambda: rows_loaded(page) == 100)
            page.close()
            print("| page, opened by its link | shown after | bar |\n| --- | --- | --- |")
            for title, selector in _SHOWN.items():
                seconds = _until_shown(chromium, board, title, selector)
                print(f"| {title} | {seconds:.1f} s | {_BAR:.0f} s |")
        tab.print_table(chromium)
    spark.stop()


_SHOWN = {
    "trials": "tf-hparams-table-view vaadin-grid-cell-content:has-text('000010')",
    "search: curves": "card-view:has-text('generation/best') tb-data-table :text('search')",
    "search: overview": "tf-custom-scalar-multi-line-chart-card path.line",
    "call, space, errors": "tf-text-loader",
}


def _until_shown(
    chromium: Browser, board: experiment.TensorBoard, title: str, selector: str
) -> float:
    started = time.perf_counter()
    page = open_page(chromium, board, title)
    page.locator(selector).first.wait_for(state="attached")
    seconds = time.perf_counter() - started
    page.close()
    return seconds


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"


if __name__ == "__main__":
    main()
