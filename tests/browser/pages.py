"""A real browser on TensorBoard, and what a person reads on its pages."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator

from playwright.sync_api import Browser, Locator, Page, sync_playwright

import experiment


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium, which Playwright drives instead of one of its own."""
    chromium = shutil.which("chromium")
    assert chromium, "chromium is not installed: use `make test-browser`"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium,
            # It runs as root in a container; QUIC has no use on the loopback address.
            args=["--no-sandbox", "--disable-quic", "--disable-dev-shm-usage"],
        )
        yield running
        running.close()


def open_page(
    chromium: Browser, board: experiment.TensorBoard, title: str, fragment: str = ""
) -> Page:
    """Open the page that TensorBoard's printed link of that title leads to; add to its address."""
    page = chromium.new_page(viewport={"width": 1500, "height": 1000})
    page.set_default_timeout(60_000)
    page.goto(board.pages[title] + fragment)
    return page


def table(page: Page) -> list[dict[str, str]]:
    """Return the rows of the HParams table that are on the screen, column title to text."""
    grid = page.locator("tf-hparams-table-view vaadin-grid")
    grid.locator("vaadin-grid-cell-content").first.wait_for(state="attached")
    texts = grid.locator("vaadin-grid-cell-content").evaluate_all(
        "cells => cells.filter(cell => cell.offsetParent).map(cell => cell.innerText.trim())"
    )
    columns = grid.locator("vaadin-grid-column").count()
    head, cells = texts[:columns], texts[columns:]
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [dict(zip(head, row, strict=True)) for row in rows if len(row) == columns]


def rows_loaded(page: Page) -> int:
    """Return how many rows the HParams table has, those below the screen too."""
    return int(page.locator("tf-hparams-table-view vaadin-grid").evaluate("grid => grid.size"))


def points(chart: Locator) -> int:
    """Return how many points the line of a chart of the Custom Scalars page goes through."""
    path = chart.locator("path.line").first
    path.wait_for(state="attached")
    return 1 + (path.get_attribute("d") or "").count("L")


def axes(page: Page) -> list[str]:
    """Return the titles of the axes of the parallel coordinates."""
    titles = page.locator("tf-hparams-parallel-coords-plot text.axis-title")
    titles.first.wait_for(state="attached")
    return [title or "" for title in titles.evaluate_all("all => all.map(one => one.textContent)")]


def wait_until(page: Page, condition: Callable[[], bool]) -> None:
    """Wait for what a page comes to show; the limit only keeps a failing test from hanging."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, page.locator("body").inner_text()
        page.wait_for_timeout(100)
