"""Names are labels, never paths: with any names a run writes only to its own folder."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from pathlib import Path

import pytest

import experiment
from experiment.run_files.loading import load
from search.errors import InvalidArgument
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.spark_jobs.storage.disturbed_hdfs import Impostor

_OURS = re.compile(
    r"manifest\.json|result\.json|journal(/\d{6}\.jsonl)?|search(/events\.out\.tfevents\.[^/]+)?"
    r"|owners(/(lock|\d{6}\.json))?"
    r"|trials(/\d{6}(/(trial\.json|outcome\.json|std(out|err)\.log|events\.out\.tfevents\.[^/]+))?)?"
)


@pytest.fixture
def sandbox(tmp_path):
    """A folder that every path out of a run's folder, or from the root, leads to."""
    folder = tmp_path / "sandbox"
    folder.mkdir()
    return folder


def hostile(sandbox: Path) -> dict[str, str]:
    up = "../" * 24  # to the root, from any current folder
    return {
        "parent": "../x",
        "parent of the run": "../../x",
        "absolute": str(sandbox / "absolute"),
        "from the root": f"{up}{str(sandbox).lstrip('/')}/climbed",
        "dots": "..",
        "dot": ".",
        "home": "~/x",
        "url": f"file://{sandbox}/url",
        "long": "x/" * 1500,
        "backslashes": "..\\..\\x",
        "right to left": "\u202ex/..",
        "percent": "%2e%2e%2fx",
        "pattern": "*?[x]{y}$(z)`z`;z",
    }


def assert_only_in(result, logdir: Path, sandbox: Path) -> None:
    """Check that there is one run's folder, with only a run's files."""
    root = Path(result.logdir)
    assert list(logdir.iterdir()) == [root]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}-\d{8}T\d{6}Z-[0-9a-f]{8}", root.name)
    for path in sandbox.rglob("*"):
        if path.is_relative_to(root) and path != root:
            assert _OURS.fullmatch(path.relative_to(root).as_posix()), path
        else:
            assert root.is_relative_to(path), path


def train(**params):
    import experiment

    # Names of metrics have at most 200 characters.
    names = {name: float(number) for number, name in enumerate(params) if len(name) <= 200}
    print(*params)
    experiment.report(step=0, **names)
    return {**names, "../x": 1.0}


@pytest.mark.fault(42)
def test_hostile_names_and_values_stay_in_the_runs_folder(spark, sandbox):
    names, logdir = hostile(sandbox), sandbox / "deep" / "er" / "runs"
    point = {name: name for name in names.values()}
    result = experiment.launch(
        spark, train, [point], logdir=logdir, optimization_key="../x", preload=(), verbose=2
    )
    assert_only_in(result, logdir, sandbox)
    assert result.best.params == load(result.logdir).best.params == point


@pytest.mark.fault(42)
@pytest.mark.parametrize("kind", ["parent", "absolute", "from the root", "dots", "long", "control"])
def test_a_hostile_name_of_a_run_is_a_label(spark, sandbox, kind):
    names, logdir = hostile(sandbox), sandbox / "deep" / "er" / "runs"
    name = "a\0b\n../c" if kind == "control" else names[kind]
    result = experiment.launch(
        spark,
        lambda x: x,
        {"x": [1]},
        logdir=logdir,
        name=name,
        description=name,
        isolation="none",
        preload=(),
    )
    assert_only_in(result, logdir, sandbox)
    assert json.loads(Path(result.logdir, "manifest.json").read_text())["name"] == name


@pytest.mark.fault(42)
@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x1b[2J", "\ud800"])
def test_names_that_no_file_can_have_are_refused_as_parameters(spark, sandbox, name):
    with pytest.raises(InvalidArgument):
        experiment.launch(spark, train, [{name: 1}], logdir=sandbox, preload=())
    assert list(sandbox.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..", ".", "a\0b"])
def test_a_listing_with_paths_for_names_is_refused(tmp_path, name):
    """As sent by an attacker between this host and a NameNode without TLS."""
    entry = {"pathSuffix": name, "type": "FILE", "length": 0, "modificationTime": 0}
    other = entry | {"pathSuffix": "other"}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        listing = {"FileStatuses": {"FileStatus": [other, entry]}}
        server.answers = (200, json.dumps(listing).encode())
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            location = Location.parse(f"webhdfs://127.0.0.1:{server.server_port}/a")
            with contextlib.closing(WebHdfs(location, HadoopSettings(user="me"))) as files:
                copy = tmp_path / "deep" / "copy"
                copy.mkdir(parents=True)
                with pytest.raises(OSError, match="no name of a file") as caught:
                    Mirror(files, location, copy, re.compile(".*", re.DOTALL)).update()
                assert str(caught.value).startswith(str(location))
        finally:
            server.shutdown()
            thread.join()
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
