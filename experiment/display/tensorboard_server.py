"""TensorBoard on a run: started, addressed so that it opens on what matters, ended in time."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any, Self
from urllib.parse import quote

from experiment.display import tensorboard_process
from experiment.results import html
from experiment.run_files.loading import (
    MANIFEST,
    find_run,
    is_folder_of_runs,
    opened,
    read_manifest,
)
from search.errors import ExperimentError
from spark_jobs.messages import encode
from spark_jobs.session import active_data_settings

_RELOAD = 5  # seconds between two looks of TensorBoard at the files
_PATIENCE = 10.0  # seconds that it has to end


class TensorBoard:
    """A TensorBoard server in a process of its own, on the loopback address.

    It ends with this process, however that ends, or when it is closed. A context manager. In a
    notebook it is shown inline.

    Attributes:
        url: Its address, such as "http://127.0.0.1:6006".
    """

    def __init__(self, process: subprocess.Popen[str], url: str, pages: dict[str, str]) -> None:
        self._process = process
        self.url = url
        self._pages = pages
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pages(self) -> dict[str, str]:
        """Title and address of the pages that show a search."""
        return {title: self.url + path for title, path in self._pages.items()}

    def close(self) -> None:
        """End the server."""
        atexit.unregister(self.close)
        _end(self._process)

    def wait(self) -> None:
        """Wait until the server has ended."""
        self._process.wait()

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
        """Return what a notebook shows: the table of the trials, and links to all pages."""
        base = _behind_proxy(self.url)
        links = " | ".join(
            f'<a href="{html.cell(base + path)}" target="_blank">{html.cell(title)}</a>'
            for title, path in self._pages.items()
        )
        frame = (
            f'<iframe src="{html.cell(base + next(iter(self._pages.values())))}" '
            'width="100%" height="800" frameborder="0"></iframe>'
        )
        return html.block(f"<div>{links}</div>", frame)


def tensorboard(run: Any) -> TensorBoard:
    """Start TensorBoard on a run, finished or not, or on several, and print its address.

    It listens on 127.0.0.1, on a free port, and ends with this session.

    Args:
        run: A `Result`, the run's folder, on this host or on HDFS, or a folder of runs, whose
            trials are in one table then.

    Raises:
        InvalidArgument: It is no run's folder, and none of runs.
        ExperimentError: TensorBoard did not start; the message has what it said.
    """
    several, generations = is_folder_of_runs(run), False
    if not several:
        with opened(run, MANIFEST) as reader:
            generations = "popsize" in read_manifest(reader.paths).algorithm
    request = tensorboard_process.Request(
        folder=str(find_run(run)),
        several=several,
        hadoop=active_data_settings().hadoop,
        reload=_RELOAD,
    )
    process = subprocess.Popen(
        # A module of ours, with TensorFlow left out.
        [sys.executable, "-P", "-m", tensorboard_process.__name__],
        # What this process may import, and nothing that lies in the folder it was started in.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.PIPE,  # it ends when this is closed, however that comes about
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in this terminal, or in a notebook's cell, is not for it
    )
    try:
        url = _address(process, request)
    except BaseException:
        _end(process)
        raise
    board = TensorBoard(process, url, pages(generations=generations))
    print(board)
    return board


def pages(*, generations: bool) -> dict[str, str]:
    """Return title and path of the pages of TensorBoard that show a search.

    Args:
        generations: Has the search generations?
    """
    first = "generation/best" if generations else "search/best_so_far"
    pinned = json.dumps([{"plugin": "scalars", "tag": first}], separators=(",", ":"))
    # Smoothing, 0.6 by default, would hide the points; filters come before the "#".
    query = {
        "tagFilter": "generation|search|population",
        "smoothing": "0",
        "pinnedCards": pinned,
    }
    filters = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return {
        "trials": "/#hparams",
        "curves of the trials": "/?smoothing=0#timeseries",
        "search: curves": f"/search/?{filters}#timeseries",
        "search: overview": "/search/#custom_scalars&_smoothingWeight=0",
        "call, space, errors": "/search/#text",
    }


def _address(process: subprocess.Popen[str], request: tensorboard_process.Request) -> str:
    """Tell the server what to serve; return the address that it prints when it listens."""
    assert process.stdin and process.stdout and process.stderr  # noqa: PT018  # pipes, all three
    with contextlib.suppress(BrokenPipeError):  # it has ended, and its last words say why
        # Not as an argument, which all users of a host may read: it may hold a token.
        process.stdin.write(encode(request).decode() + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise ExperimentError(f"TensorBoard did not start: {process.stderr.read()[-2_000:]}")
    return line.strip()


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            stream.close()  # type: ignore[union-attr]  # pipes, all three
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
