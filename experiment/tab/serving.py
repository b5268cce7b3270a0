"""The server's side of the tab: answers the page's requests with JSON, from the runs' folders."""

from __future__ import annotations

import contextlib
import importlib.resources
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from experiment.tab.finding import folders_of_runs
from experiment.tab.run_pages import RunPages
from experiment.tab.trial_files import TrialFiles
from search.errors import ExperimentError
from search.values import as_unicode
from spark_jobs.run_folder.paths import RunPaths

_BUILT = importlib.resources.files("experiment.tab") / "built-page"  # perhaps in a zip archive
_LOOK_AGAIN = 2.0  # seconds for which a list of runs is good


class ExperimentTab(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard ships no types
    """The plugin. TensorBoard calls it from many threads.

    It reads the files of the runs itself: neither TensorBoard's multiplexer, which is missing with
    its fast data server, nor its data provider.

    Args:
        logdir: TensorBoard's `--logdir`.
        kept_at: The folder's location as users know it, if this is a copy of it; else ''.
        files_of: Returns the files of the trials of a run.
    """

    plugin_name = "experiment"

    def __init__(
        self,
        logdir: str,
        kept_at: str,
        files_of: Callable[[RunPaths], TrialFiles],
    ) -> None:
        self._logdir = logdir
        self._kept_at = kept_at
        self._files_of = files_of
        self._lock = threading.Lock()
        self._runs: dict[str, RunPages] = {}
        self._looked = -_LOOK_AGAIN
        # A long journal takes seconds, which the page need not wait for.
        threading.Thread(target=self._read_ahead, name="experiment-tab", daemon=True).start()

    def is_active(self) -> bool:
        """Return whether the folder has a run; TensorBoard's page waits for the answer."""
        return bool(self._find())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the place of the page's module."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Experiment")

    def data_plugin_names(self) -> tuple[str, ...]:
        """Return (): no data in event files makes the tab active, only a run's own files do."""
        return ()

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the answers by path."""
        answers = {
            "/index.js": self._module,
            "/runs": self._summaries,
            "/run": self._run,
            "/trial": self._trial,
            "/importance": self._importance,
        }
        return {path: wrappers.Request.application(answer) for path, answer in answers.items()}

    def _module(self, request: wrappers.Request) -> wrappers.Response:
        content = (_BUILT / "index.js").read_bytes()
        return _respond(request, content, "text/javascript")

    def _summaries(self, request: wrappers.Request) -> wrappers.Response:
        found = []
        for run in self._find().values():
            try:
                found.append(run.summary())
            except (ExperimentError, OSError) as error:
                found.append({"name": run.name, "error": as_unicode(str(error))})
        return _json(request, msgspec.json.encode(found))

    def _run(self, request: wrappers.Request) -> wrappers.Response:
        return self._about(request, lambda run: run.since(request.args.get("since", "")))

    def _trial(self, request: wrappers.Request) -> wrappers.Response:
        number = request.args.get("trial", -1, int)
        return self._about(request, lambda run: run.trial(number))

    def _importance(self, request: wrappers.Request) -> wrappers.Response:
        return self._about(request, RunPages.importance)

    def _about(
        self, request: wrappers.Request, answer: Callable[[RunPages], bytes | None]
    ) -> wrappers.Response:
        """Answer a request about a run, which is looked up by its name, never by a path."""
        run = self._find().get(request.args.get("run", ""))
        if run is None:
            return _refused(request, "there is no such run", 404)
        try:
            data = answer(run)
        except (ExperimentError, OSError) as error:
            return _refused(request, str(error), 500)
        return _refused(request, "no such trial", 404) if data is None else _json(request, data)

    def _read_ahead(self) -> None:
        """Read the run if there is only one."""
        runs = list(self._find().values())
        if len(runs) == 1:
            with contextlib.suppress(ExperimentError, OSError):  # the page's request says it
                runs[0].since("")

    def _find(self) -> dict[str, RunPages]:
        """Return the runs by name; the same objects as before for the same folders."""
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_AGAIN:
                found = folders_of_runs(self._logdir, self._kept_at)
                self._runs = {
                    name: self._runs.get(name) or RunPages(name, paths, self._files_of(paths))
                    for name, paths in found.items()
                }
                self._looked = time.monotonic()
            return dict(self._runs)


def _refused(request: wrappers.Request, reason: str, code: int) -> wrappers.Response:
    return _json(request, msgspec.json.encode({"error": as_unicode(reason)}), code)


def _json(request: wrappers.Request, data: bytes, code: int = 200) -> wrappers.Response:
    return _respond(request, data, "application/json", code)


def _respond(
    request: wrappers.Request, data: bytes, kind: str, code: int = 200
) -> wrappers.Response:
    # Bytes: TensorBoard would copy any other value, element by element, to replace NaN. It forbids
    # browsers to guess another kind.
    response: wrappers.Response = http_util.Respond(request, data, kind, code=code)
    return response
