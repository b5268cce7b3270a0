"""The process of a TensorBoard server: `python -m experiment.viewer_process FOLDER SECONDS`.

Serves the whole run at `/` and the search's own run at `/search/`. Beyond 500 runs TensorBoard
starts with none of them selected, so that its pages are empty; `/search/` has only one, whatever
the number of trials.

Prints its address and serves until standard input is closed, so it never outlives who started it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_SEARCH = "/search"
_WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


def main(folder: str, reload_interval: str) -> None:
    """Serve a folder until standard input ends."""
    # Before any import of tensorboard: with this module there it uses its own stand-in for
    # TensorFlow. Otherwise its first page with text or charts takes seconds and 600 MB more.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    with tempfile.TemporaryDirectory(prefix="experiment-") as alone:
        Path(alone, "search").symlink_to(Path(folder, "search"))  # the run is called so there too
        print(_serve(folder, alone, float(reload_interval)).rstrip("/"), flush=True)
        # What it says from now on is for nobody, and a full pipe would stop it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.stdin.read()


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
    main(*sys.argv[1:])
