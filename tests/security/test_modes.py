"""Only the user can read a run: folders have mode 0700 and files 0600, on HDFS too.

Copies of data have mode 0400.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import stat
import tempfile
from pathlib import Path

import hdfs as hdfs_package
import pyarrow
import pyarrow.parquet
import pytest

import experiment
from experiment.cli.commands import main
from experiment.run_files.loading import opened
from spark_jobs.run_folder.paths import STOP, RunPaths

_FOLDERS = itertools.count()
FROM_TRAIN = "of-train"
"""The prefix of the names of files that the train function writes itself."""


def open_to_others(folder: Path, *, copies: bool = False) -> dict[str, str]:
    """Return paths in a folder without mode 0700 or 0600, except the train function's.

    With `copies` it is a cache, whose files have mode 0400, but for the locks.
    """
    found = {}
    # A running search may remove some: unlike `rglob`, `os.walk` goes on then.
    walk = os.walk(folder)
    below = (Path(parent, name) for parent, *both in walk for names in both for name in names)
    for path in [folder, *below]:
        with contextlib.suppress(FileNotFoundError):
            kind = path.lstat().st_mode
            wanted = 0o400 if copies and path.suffix != ".lock" else 0o600
            wanted = 0o700 if stat.S_ISDIR(kind) else wanted
            if stat.S_IMODE(kind) != wanted and not path.name.startswith(FROM_TRAIN):
                found[str(path)] = oct(kind)
    return found


def train(x, data, scratch):
    import os
    import stat
    from pathlib import Path

    import experiment

    folder = Path(experiment.logdir())
    print("trial", x)
    experiment.report(step=0, x=x)
    Path(experiment.checkpoint_dir(), "of-train-checkpoint").write_text("kept")
    (folder / "of-train-folder").mkdir()
    (folder / "of-train-folder" / "of-train").write_text("kept")
    if data:
        experiment.data.in_memory(data)
        experiment.data.local_copy(data)
    if x == 3:
        raise ValueError("three")
    for made in Path(scratch).rglob("*") if scratch else ():
        mode = made.lstat().st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if not made.name.startswith("of-train") and stat.S_IMODE(mode) != wanted:
            raise AssertionError(f"{made}: {oct(mode)}")
    umask = os.umask(0)
    os.umask(umask)
    return {"x": x, "umask": umask}


def write_table(path: Path) -> bytes:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), path)
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("isolation", ["process", "none"])
def test_a_run_on_this_host_is_its_users_alone(sparks, tmp_path, isolation):
    cache = tmp_path / "cache"
    spark = sparks.get("local[2]", **{"spark.experiment.cache.folder": str(cache)})
    write_table(tmp_path / "table.parquet")
    result = experiment.launch(
        spark,
        train,
        {"x": [1, 2, 3], "data": [str(tmp_path / "table.parquet")], "scratch": [""]},
        optimization_key="x",
        logdir=tmp_path / "runs",
        isolation=isolation,
        preload=(),
    )
    root = Path(result.logdir)
    assert open_to_others(root) == {}
    assert not RunPaths(root).secrets.exists()
    assert open_to_others(cache, copies=True) == {}
    assert {path.name.rpartition(".")[2] for path in cache.iterdir()} > {"lock"}
    # The train function's files follow its own umask, in folders that are closed to others.
    [umask] = {trial.metrics["umask"] for trial in result.trials if trial.metrics}
    plain = [path for path in root.rglob(f"{FROM_TRAIN}*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in plain} == {0o666 & ~int(umask)}
    assert {0o666 & ~int(umask)} != {0o600}, "a umask that hides everything shows nothing here"


def test_the_file_that_stops_a_run_is_its_users_alone(spark, tmp_path, capsys):
    started = tmp_path / "started"

    def wait(x):
        import time
        from pathlib import Path

        Path(started).touch()
        while True:
            time.sleep(0.05)

    handle = experiment.submit(
        experiment.launch, spark, wait, {"x": [1]}, logdir=tmp_path / "runs", preload=()
    )
    while not started.exists():
        assert handle.status() == "running"
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.1)
    [root] = (tmp_path / "runs").iterdir()
    assert [path for path in RunPaths(root).secrets.rglob("*") if path.is_file()]
    assert open_to_others(root) == {}
    assert experiment.load(root).trials == []  # whatever other files it has
    assert main(["stop", str(root)]) == 0
    handle.result(timeout=120)
    assert (root / STOP).exists()
    assert not RunPaths(root).secrets.exists()
    assert open_to_others(root) == {}


@pytest.mark.slow
def test_a_run_on_hdfs_is_its_users_alone(sparks, hdfs, tmp_path, monkeypatch):
    scratch, cache = tmp_path / "scratch", tmp_path / "cache"
    scratch.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    settings = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    spark = sparks.get(
        "local[2]",
        **settings,
        **{"spark.executorEnv.TMPDIR": str(scratch), "spark.experiment.cache.folder": str(cache)},
    )
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    home = f"/modes-{next(_FOLDERS)}"
    client.write(f"{home}/table.parquet", data=write_table(tmp_path / "table"), overwrite=True)
    result = experiment.launch(
        spark,
        train,
        {
            "x": [1, 2, 3],
            "data": [f"{hdfs.uri}{home}/table.parquet"],
            "scratch": [str(scratch)],
        },
        optimization_key="x",
        logdir=f"{hdfs.uri}{home}/runs/all",
        preload=(),
    )
    assert {trial.id: trial.status for trial in result.trials} == {
        0: "finished",
        1: "finished",
        2: "failed",
    }, result.failed[0].error
    modes = {
        (entry["type"], entry["permission"])
        for folder, folders, files in client.walk(f"{home}/runs", status=True)
        for _, entry in [folder, *folders, *files]
    }
    assert modes == {("DIRECTORY", "700"), ("FILE", "600")}
    names = [path for path, _, _ in client.walk(f"{home}/runs")]
    assert any(name.endswith("of-train-folder") for name in names)
    assert open_to_others(cache, copies=True) == {}
    with opened(result.logdir, ".*") as reader:  # the copy that is read on this host
        assert open_to_others(reader.paths.root) == {}
    client._session.close()
