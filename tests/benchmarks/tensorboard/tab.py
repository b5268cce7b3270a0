"""The Experiment tab: time until it shows trials, memory and processor time of its server."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Browser, FrameLocator, Page

import experiment
from tests.benchmarks.tensorboard.recorded import RecordedRun

_TIMES = 3
_LIVE = 30.0  # seconds for which a running search is watched
_ENDS = 10  # of trials, whose rows are waited for


def print_table(chromium: Browser) -> None:
    """Print the table of docs/benchmarks.md, and how busy the machine was."""
    print(f"\nload {os.getloadavg()[0]:.0f}, {os.cpu_count()} processors, nice {os.nice(0)}")
    print("\n| Experiment tab | measured | bar |\n| --- | --- | --- |")
    for trials, bar in ((1_000, "0.8 s"), (50_000, "2 s")):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "run")
            run = RecordedRun(root, trials)
            run.add(trials)
            run.end()
            seconds, memory = _filled(chromium, root, trials)
        print(f"| {trials:,} trials, from its frame to its rows | {seconds:.1f} s | {bar} |")
    print(f"| memory of the server with {trials:,} trials | {memory / 1e6:.0f} MB | 250 MB |")
    share, seconds = _live(chromium)
    what = "processor time of the server while 1,000 trials are watched"
    print(f"| {what} | {share:.2%} | 1% |")
    print(f"| from the end of a trial to its row, at most | {seconds:.1f} s | 5 s |")


def _filled(chromium: Browser, root: Path, trials: int) -> tuple[float, int]:
    """Return the median time until the rows are there, and the server's memory after that."""
    with experiment.tensorboard(root) as board:
        seconds = []
        for _ in range(_TIMES):
            page = chromium.new_page(viewport={"width": 1500, "height": 1000})
            page.set_default_timeout(120_000)
            page.goto(board.pages["experiment"] + "&p.experiment.view=trials")
            page.locator("iframe").wait_for(state="attached")
            started = time.perf_counter()
            _wait_for(page, trials)
            seconds.append(time.perf_counter() - started)
            page.close()
        return median(seconds), _server(board).memory_info().rss


def _wait_for(page: Page, trials: int) -> FrameLocator:
    frame = page.frame_locator("iframe")
    frame.locator(f"body[data-filled='{trials}']").wait_for(state="attached")
    frame.locator("[role=row]:not(.head)").first.wait_for()
    return frame


def _live(chromium: Browser) -> tuple[float, float]:
    """Follow a search on a page.

    Returns:
        The server's share of a processor, and the longest time until the page shows a trial.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = RecordedRun(Path(folder, "run"), 2_000)
        run.add(1_000)
        with experiment.tensorboard(run.paths.root) as board:
            page = chromium.new_page()
            page.set_default_timeout(120_000)
            page.goto(board.pages["experiment"] + "&p.experiment.view=trials")
            _wait_for(page, 1_000)
            server, started = _server(board), time.perf_counter()
            used = _processor_time(server)
            trials = 1_000
            while time.perf_counter() - started < _LIVE:
                run.add(1)
                trials += 1
                page.wait_for_timeout(1_000)
            share = (_processor_time(server) - used) / (time.perf_counter() - started)
            _wait_for(page, trials)
            waits = []
            for number in range(trials + 1, trials + 1 + _ENDS):
                added = time.perf_counter()
                run.add(1)
                _wait_for(page, number)
                waits.append(time.perf_counter() - added)
            page.close()
        run.end()
    return share, max(waits)


def _server(board: experiment.TensorBoard) -> psutil.Process:
    """Return the process of a server, which the board does not show."""
    port = int(board.url.rpartition(":")[2])
    for process in psutil.Process().children(recursive=True):
        if any(connection.laddr.port == port for connection in process.net_connections("tcp4")):
            return process
    raise AssertionError(f"no process listens on port {port}")


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
