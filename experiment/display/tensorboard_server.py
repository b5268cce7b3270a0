"""TensorBoard servers for runs: their process, and the addresses of a search's pages."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from typing import IO, Any, Self
from urllib.parse import quote

from experiment.display import tensorboard_process
from experiment.display.tags import BEST_OF_GENERATION, BEST_SO_FAR, FRONT
from experiment.results import html
from experiment.run_files.loading import (
    find_run,
    is_folder_of_runs,
    opened,
    read_manifest,
)
from experiment.run_files.manifest import Manifest
from search.errors import ExperimentError
from spark_jobs.messages import encode
from spark_jobs.run_folder.paths import MANIFEST
from spark_jobs.session import active_data_settings

_RELOAD = 5  # seconds between two reads of the files by TensorBoard
# Algorithms whose generations have a best individual; others with a population have none.
_WITH_GENERATIONS = ("differential evolution", "population based training")
_PATIENCE = 10.0  # seconds until a process that does not end is killed


class TensorBoard:
    """A TensorBoard server in a process of its own, on the loopback address; a context manager.

    It ends when it is closed, or with this process, however that ends. A notebook shows it inline.

    Attributes:
        url: The server's address, such as "http://127.0.0.1:6006".
    """

    def __init__(self, process: subprocess.Popen[str], url: str, pages: dict[str, str]) -> None:
        self._process = process
        self._owner = os.getpid()
        self.url = url
        self._pages = pages
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pages(self) -> dict[str, str]:
        """Titles and addresses of the pages that show a search."""
        return {title: self.url + path for title, path in self._pages.items()}

    def close(self) -> None:
        """End the server; do nothing in a process that was forked since it started."""
        atexit.unregister(self.close)
        if os.getpid() == self._owner:
            _end(self._process)

    def wait(self) -> int:
        """Wait until the server has ended; return its exit status."""
        return self._process.wait()

    def __str__(self) -> str:
        lines = [f"TensorBoard: {self.url}"]
        lines += [f"  {title}: {address}" for title, address in self.pages.items()]
        if _no_display():
            port = self.url.rpartition(":")[2]
            lines.append(
                f"From your own computer: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the first page, and links to all pages."""
        base = _behind_proxy(self.url)
        links = " | ".join(
            f'<a href="{html.cell(base + path)}" target="_blank">{html.cell(title)}</a>'
            for title, path in self._pages.items()
        )
        frame = (
            f'<iframe src="{html.cell(base + next(iter(self._pages.values())))}" '
            'width="100%" height="800" frameborder="0" allow="clipboard-write"></iframe>'
        )
        return html.block(f"<div>{links}</div>", frame)


def tensorboard(run: Any) -> TensorBoard:
    """Start TensorBoard for a run, finished or not, or for several, and print its address.

    The server listens on a free port of 127.0.0.1, and ends with this process.

    Args:
        run: A `Result`; a run's folder, on this host or on HDFS; or a folder of runs, for one table
            with the trials of all.

    Raises:
        InvalidArgument: `run` is neither a run's folder nor a folder of runs.
        ExperimentError: TensorBoard did not start; the message has its output.
    """
    several, pinned = is_folder_of_runs(run), BEST_SO_FAR
    if not several:
        with opened(run, re.escape(MANIFEST)) as reader:
            pinned = _tag_of_progress(read_manifest(reader.paths))
    request = tensorboard_process.Request(
        folder=str(find_run(run)),
        several=several,
        hadoop=active_data_settings().hadoop,
        parent=os.getpid(),
        reload=_RELOAD,
    )
    # A file, since nobody reads a pipe of it while the server starts.
    errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed below; the server has its own
    process = subprocess.Popen(
        # Our own module, which does not load TensorFlow.
        [sys.executable, "-P", "-m", tensorboard_process.__name__],
        # The import path of this process, without the current folder. Each request has a thread:
        # with an arena of malloc for each, the memory of large answers would not be used again.
        env={
            "MALLOC_ARENA_MAX": "2",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        stdin=subprocess.PIPE,  # the server ends when this is closed, for whatever reason
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        start_new_session=True,  # so that Ctrl-C in a terminal or notebook does not reach it
    )
    try:
        url = _address(process, request, errors)
    except BaseException:
        _end(process)
        raise
    finally:
        errors.close()
    board = TensorBoard(process, url, pages(pinned))
    print(board)
    return board


def _tag_of_progress(manifest: Manifest) -> str:
    """Return the tag of the curve that shows best how a search advances."""
    if not isinstance(manifest.direction, str):
        return FRONT
    has_generations = manifest.algorithm.get("type") in _WITH_GENERATIONS
    return BEST_OF_GENERATION if has_generations else BEST_SO_FAR


def pages(tag: str) -> dict[str, str]:
    """Return titles and paths of the pages of TensorBoard that show a search.

    Args:
        tag: The tag of the curve that is pinned.
    """
    pinned = json.dumps([{"plugin": "scalars", "tag": tag}], separators=(",", ":"))
    # Smoothing, 0.6 by default, would hide the points; filters come before the "#".
    query = {
        "tagFilter": "generation|search|population",
        "smoothing": "0",
        "pinnedCards": pinned,
    }
    filters = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return {
        "experiment": "/#experiment",
        "trials": "/#hparams",
        "curves of the trials": "/?smoothing=0#timeseries",
        "search: curves": f"/search/?{filters}#timeseries",
        "search: overview": "/search/#custom_scalars&_smoothingWeight=0",
        "call, space, errors": "/search/#text",
    }


def _address(
    process: subprocess.Popen[str], request: tensorboard_process.Request, errors: IO[bytes]
) -> str:
    """Send the request to the server; return the address that it prints once it listens."""
    assert process.stdin and process.stdout  # noqa: PT018  # pipes, both
    with contextlib.suppress(BrokenPipeError):  # the server has ended; its output says why
        # Not as an argument, which all users of the host can read: it may contain a token.
        process.stdin.write(encode(request).decode() + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        process.wait()  # it has closed its output by its end
        errors.seek(0)
        text = errors.read().decode("utf-8", "replace")
        raise ExperimentError(f"TensorBoard did not start: {text[-2_000:]}")
    return line.strip()


def _end(process: subprocess.Popen[str]) -> None:
    # A line ends it, too: a process that was forked from this one keeps the pipe open.
    with contextlib.suppress(OSError, ValueError):  # it has ended, or is closed for the second time
        print(file=process.stdin, flush=True)
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            stream.close()  # type: ignore[union-attr]  # pipes, both
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _no_display() -> bool:
    return not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _behind_proxy(url: str) -> str:
    """Return the address for a browser that reaches the server through a notebook's proxy.

    `TENSORBOARD_PROXY_URL` is TensorBoard's own variable, such as "/proxy/%PORT%/".
    """
    proxy = os.environ.get("TENSORBOARD_PROXY_URL")
    return proxy.replace("%PORT%", url.rpartition(":")[2]).rstrip("/") if proxy else url
