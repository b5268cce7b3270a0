"""The process of a TensorBoard server: `python -m experiment.viewer_process`.

Serves the whole run at `/` and the search's own run at `/search/`. Beyond 500 runs TensorBoard
starts with none of them selected, so that its pages are empty; `/search/` has only one, whatever
the number of trials.

A run on HDFS is copied to this host, what TensorBoard reads of it, and the copy kept up to date:
that takes one request per trial that goes on, where TensorBoard's own reader takes three for every
trial, and has neither time-outs nor another try.

Reads a `Request` from a line of standard input, prints its address, and serves until standard input
is closed, so it never outlives who started it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.files import files_at
from spark_jobs.hadoop import HadoopSettings
from spark_jobs.locations import Location
from spark_jobs.mirror import Mirror

_SEARCH = "/search"
_WANTED = r"(search|trials)/(.*/)?([^/]*tfevents[^/]*)?"
_FAREWELL = 1.0  # seconds
_WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Request(msgspec.Struct, frozen=True):
    """What to serve.

    Attributes:
        run: The run's folder, where it is kept.
        hadoop: Where HDFS is.
        reload: Seconds between two looks at the files.
    """

    run: str
    hadoop: HadoopSettings
    reload: float


def main() -> None:
    """Serve a run until standard input ends."""
    # Before any import of tensorboard: with this module there it uses its own stand-in for
    # TensorFlow. Otherwise its first page with text or charts takes seconds and 600 MB more.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    request = msgspec.json.decode(sys.stdin.readline(), type=Request)
    with (
        tempfile.TemporaryDirectory(prefix="experiment-") as alone,
        _on_this_host(request) as folder,
    ):
        Path(alone, "search").symlink_to(folder / "search")  # the run is called so there too
        print(_serve(str(folder), alone, request.reload).rstrip("/"), flush=True)
        # What it says from now on is for nobody, and a full pipe would stop it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.stdin.read()


@contextlib.contextmanager
def _on_this_host(request: Request) -> Iterator[Path]:
    """Give the run's folder, or a copy that a thread keeps up to date."""
    location = Location.parse(request.run)
    if location.scheme == "file":
        yield Path(location.path)
        return
    closing = threading.Event()
    with (
        # The thread may be at it, and is not waited for where HDFS does not answer.
        tempfile.TemporaryDirectory(prefix="experiment-", ignore_cleanup_errors=True) as copy,
        contextlib.closing(files_at(location, request.hadoop)) as files,
    ):
        folder = Path(copy)
        mirror = Mirror(files, location, folder, re.compile(_WANTED))

        def update() -> None:
            while not closing.is_set():
                with contextlib.suppress(OSError):  # the next round may find it
                    mirror.update()
                closing.wait(request.reload)

        thread = threading.Thread(target=update, name="experiment-mirror", daemon=True)
        thread.start()
        try:
            yield folder
        finally:
            closing.set()
            thread.join(_FAREWELL)


def _serve(folder: str, alone: str, reload_interval: float) -> str:
    """Start to serve in threads; return the address."""
    from tensorboard import default, program

    plugins = default.get_plugins()
    without_table = [plugin for plugin in plugins if "hparams" not in plugin.__module__]

    class Inner:
        """Takes the place of a server, to get at the application."""

        def __init__(self, app: _WsgiApp, flags: object) -> None:
            self.app = app

        def serve_forever(self) -> None:
            pass

        def get_url(self) -> str:
            inner.append(self.app)
            return ""

    def server(app: _WsgiApp, flags: object) -> Any:
        def either(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            chosen = inner[0] if environ["PATH_INFO"].startswith(_SEARCH + "/") else app
            return chosen(environ, start_response)

        return program.WerkzeugServer(either, flags)

    inner: list[_WsgiApp] = []
    common = {"host": "127.0.0.1", "port": 0, "reload_interval": reload_interval}
    search = program.TensorBoard(without_table, server_class=Inner)
    search.configure(logdir=alone, path_prefix=_SEARCH, **common)
    search.launch()
    run = program.TensorBoard(plugins, server_class=server)
    run.configure(logdir=folder, **common)
    return str(run.launch())


if __name__ == "__main__":
    main()
