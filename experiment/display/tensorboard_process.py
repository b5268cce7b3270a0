"""The process of a TensorBoard server: `python -m experiment.display.tensorboard_process`.

Serves the events of all trials at `/` and those of the search itself at `/search/`. With more than
500 event folders TensorBoard selects none at first, so that its pages are empty; `/search/` has
only one, for any number of trials. For a folder of runs, it serves the trials of all runs at `/`
and all searches at `/search/`.

For a run on HDFS the files that TensorBoard reads are copied to this host, and the copy is kept up
to date. That takes one request per running trial; TensorBoard's own reader takes three for every
trial, without time-outs or retries. The output of a trial, and the list of its files, are read when
the page of that trial asks for them, so that the copy stays small.

Reads a `Request` from a line of standard input, prints its address, and serves until standard input
is closed, so it never outlives its parent process.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from experiment.run_files.loading import SUMMARY
from search.direction import Direction
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import SEARCH
from spark_jobs.storage.files import Files
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at

_SEARCH_PAGE = "/search"
_WANTED = rf"(search|trials)/(.*/)?([^/]*tfevents[^/]*)?|{SUMMARY}"
_PATIENCE = 5.0  # seconds for which a page waits for HDFS
_OUTPUT = (1, 2)  # the descriptors of standard output and standard error
_JOIN = 1.0  # seconds to wait for the thread that updates the files
_WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to serve runs.

    Attributes:
        folder: The folder of a run, or of several, on any storage.
        several: Whether it is a folder of several runs.
        hadoop: The settings for HDFS.
        parent: The id of the process with whose end the server ends.
        reload: Seconds between two reads of the files, at least 1: TensorBoard's data server never
            pauses with less.
    """

    folder: str
    several: bool
    hadoop: HadoopSettings
    parent: int
    reload: Annotated[int, msgspec.Meta(ge=1)]


def main() -> None:
    """Serve a run until a second line comes, standard input ends, or the parent process does."""
    # Before any import of tensorboard: with this module it uses its own substitute for TensorFlow.
    # Otherwise its first page with text or charts takes seconds and 600 MB more.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    # TensorBoard's data server keeps the events of each trial open, and never shows a trial whose
    # file it could not open. A shell's usual limit is 1,024 files.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    with (
        tempfile.TemporaryDirectory(prefix="experiment-") as searches,
        _on_this_host(request, Path(searches)) as folder,
    ):
        location = Location.parse(request.folder)
        if request.several:
            _show_columns_of_all_runs()
        kept_at, store = "", None
        if location.scheme != "file":
            kept_at = request.folder
            # Its own connections: it is used by other threads than the copy.
            store = files_at(location, request.hadoop, patience=_PATIENCE)
        url = _serve(
            str(folder), searches, location.name, request.reload, kept_at=kept_at, store=store
        )
        print(url.rstrip("/"), flush=True)
        _discard_output()  # nobody reads more of it, and a full pipe would block the server
        _wait_for_end(request.parent)


def _wait_for_end(parent: int) -> None:
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    # Standard input does not end with the parent if that has forked a child meanwhile.
    with contextlib.suppress(OSError, AttributeError):  # an old kernel, or Python built on one
        poll.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() == parent:  # else it has ended before
        poll.poll()


def wanted(*, several: bool) -> str:
    """Return the pattern of the files to copy of a run, or of a folder of runs."""
    return rf"[^/]+/({_WANTED})?" if several else _WANTED


@contextlib.contextmanager
def _on_this_host(request: Request, searches: Path) -> Iterator[Path]:
    """Yield the folder, or a local copy that is kept up to date; link its searches in `searches`.

    Args:
        request: The runs to serve.
        searches: An empty folder.
    """
    location = Location.parse(request.folder)
    with contextlib.ExitStack() as opened:
        folder, mirror = Path(location.path), None
        if location.scheme != "file":
            # The thread may still write to it: it is not waited for if HDFS does not answer.
            temporary = tempfile.TemporaryDirectory(
                prefix="experiment-", ignore_cleanup_errors=True
            )
            folder = Path(opened.enter_context(temporary))
            files = opened.enter_context(contextlib.closing(files_at(location, request.hadoop)))
            pattern = re.compile(wanted(several=request.several))
            mirror = Mirror(files, location, folder, pattern)

        def update() -> None:
            try:
                if mirror is not None:
                    mirror.update()
            finally:  # where the copy lacks a run that only another user may read, too
                if request.several:
                    _link_searches(folder, searches)

        if not request.several:
            (searches / SEARCH).symlink_to(folder / SEARCH)  # under the same name as at `/`
        elif mirror is None:
            _link_searches(folder, searches)  # so that the first page shows them
        if request.several or mirror is not None:
            opened.enter_context(_repeated(update, request.reload))
        yield folder


@contextlib.contextmanager
def _repeated(update: Callable[[], None], pause: float) -> Iterator[None]:
    """Call `update` repeatedly in a thread."""
    closing = threading.Event()

    def run() -> None:
        while not closing.is_set():
            with contextlib.suppress(OSError):  # the next call may succeed
                update()
            closing.wait(pause)

    thread = threading.Thread(target=run, name="experiment-update", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join(_JOIN)


def _link_searches(folder: Path, searches: Path) -> None:
    """Link the search folder of each run, under the name of the run."""
    for run in folder.iterdir():
        link = searches / run.name
        # `Path.is_dir` raises for a run that only another user may read.
        if os.path.isdir(run / SEARCH) and not link.is_symlink():
            link.symlink_to(run / SEARCH)


def _show_columns_of_all_runs() -> None:
    """Make the table show the columns of all runs; TensorBoard shows those of one of them."""
    from tensorboard.plugins.hparams import backend_context, metadata

    of_one = backend_context.Context.experiment_from_metadata

    def of_all(self: Any, ctx: Any, identity: str, metrics: bool, content: Any, *rest: Any) -> Any:
        runs = [{run: tags} for run, tags in content.items() if metadata.EXPERIMENT_TAG in tags]
        first, *others = [
            of_one(self, ctx, identity, metrics, part, *rest) for part in runs or [content]
        ]
        for other in others:
            _add_columns(first, other)
        return first

    backend_context.Context.experiment_from_metadata = of_all


def _add_columns(experiment: Any, other: Any) -> None:
    """Add the columns of another run.

    A column of both loses its domain, and a metric the arrow of its direction, if they differ.
    """
    columns = {info.name: info for info in experiment.hparam_infos}
    for info in other.hparam_infos:
        known = columns.get(info.name)
        if known is None:
            experiment.hparam_infos.append(info)
        elif known != info:
            for domain in ("domain_discrete", "domain_interval"):
                known.ClearField(domain)
    metrics = {info.name.tag: info for info in experiment.metric_infos}
    for info in other.metric_infos:
        known = metrics.get(info.name.tag)
        if known is None:
            experiment.metric_infos.append(info)
        elif known.display_name != info.display_name:
            known.display_name = known.display_name.rstrip(
                f" {''.join(d.arrow for d in Direction)}"
            )


def _serve(
    folder: str,
    searches: str,
    title: str,
    reload_interval: int,
    *,
    kept_at: str,
    store: Files | None,
) -> str:
    """Start the server in threads; return its address.

    Args:
        folder: The folder to serve at `/`.
        searches: The folder to serve at `/search/`.
        title: The title of the browser's window.
        reload_interval: Seconds between two reads of the files.
        kept_at: The folder's location as users know it, if this is a copy of it; else ''.
        store: The store of that location; None if `folder` is no copy.
    """
    from tensorboard import default, program

    from experiment.tab.plugin import ENTRY_POINT, Loader

    # Ours in place of the one of the entry point, which is missing without an installation. Without
    # the projector: before TensorBoard 2.21 it gives everybody any file whose path a run names.
    left_out = (ENTRY_POINT, "tensorboard.plugins.projector.projector_plugin")
    others = [plugin for plugin in default.get_plugins() if plugin.__module__ not in left_out]
    plugins = [*others, Loader(kept_at, store)]
    without_table = [plugin for plugin in others if "hparams" not in plugin.__module__]

    class Inner:
        """Replaces a server, to get its application."""

        def __init__(self, app: _WsgiApp, flags: object) -> None:
            self.app = app

        def serve_forever(self) -> None:
            pass

        def get_url(self) -> str:
            inner.append(self.app)
            return ""

    def server(app: _WsgiApp, flags: object) -> Any:
        def either(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            chosen = inner[0] if environ["PATH_INFO"].startswith(_SEARCH_PAGE + "/") else app
            return chosen(environ, start_response)

        return program.WerkzeugServer(either, flags)

    inner: list[_WsgiApp] = []
    common = {
        "host": "127.0.0.1",
        "port": 0,
        "reload_interval": reload_interval,
        "window_title": title,
    }
    search = program.TensorBoard(without_table, server_class=Inner)
    search.configure(logdir=searches, path_prefix=_SEARCH_PAGE, **common)
    run = program.TensorBoard(plugins, server_class=server)
    run.configure(logdir=folder, **common)
    with _processes_without_output():
        search.launch()
        return str(run.launch())


@contextlib.contextmanager
def _processes_without_output() -> Iterator[None]:
    """Discard the output of the processes that the block starts, until they end.

    TensorBoard's data servers warn of each folder that they cannot read, at every reload.
    """
    kept = {number: os.dup(number) for number in _OUTPUT}
    _discard_output()
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _discard_output() -> None:
    """Discard what this process, and those that it starts, print from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in _OUTPUT:
        os.dup2(nowhere, number)
    os.close(nowhere)


if __name__ == "__main__":
    main()
