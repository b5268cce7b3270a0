"""The copy of runs that TensorBoard reads when they are on another store."""

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path

import fsspec.core
import msgspec
import pytest
from tensorboard.plugins.hparams import api_pb2

from experiment.display import tensorboard_process
from experiment.tab.finding import folders_of_runs
from experiment.tab.run_pages import RunPages
from experiment.tab.trial_files import RemoteTrialFiles
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from tests.experiment.runs import TRACEBACK, make_run
from tests.experiment.waiting import wait_until


@pytest.mark.parametrize("several", [False, True])
def test_a_copy_has_what_the_tab_reads_but_what_pages_of_trials_ask_for(tmp_path, several):
    source, copy = tmp_path / "source", tmp_path / "copy"
    run = make_run(source)
    (run / "trials" / "000000" / "model.bin").write_bytes(b"large")
    copy.mkdir()
    place = Location.parse(source if several else run)
    wanted = tensorboard_process.wanted(several=several)
    Mirror(LocalFiles(), place, copy, re.compile(wanted)).update()
    [(name, paths)] = folders_of_runs(
        str(copy), "hdfs://host/runs" + ("" if several else "/run")
    ).items()
    pages = RunPages(name, paths, RemoteTrialFiles(LocalFiles(), Location.parse(run)))
    facts = pages.summary()
    assert (facts["state"], facts["counts"]["done"]) == ("finished", 6)
    assert name == (run.name if several else "run")
    page = json.loads(pages.trial(0))
    assert page["output"][0] == {"name": "stdout", "text": "trial 0 says hello\n"}
    assert page["files"] == [{"name": "model.bin", "size": 5}]
    assert json.loads(pages.trial(1))["error"]["traceback"] == TRACEBACK
    copied = {path.name for path in copy.rglob("*") if path.is_file()}
    assert {"manifest.json", "000001.jsonl", "events.out.tfevents.trial"} <= copied
    assert not copied & {"model.bin", "stdout.log"}


def test_runs_of_different_directions_share_a_metric_without_an_arrow():
    def table(*names):
        metrics = [
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(tag=f"objective/{name[0]}"), display_name=name
            )
            for name in names
        ]
        return api_pb2.Experiment(metric_infos=metrics)

    first = table("a ↑", "b ↑")
    tensorboard_process._add_columns(first, table("a ↓", "b ↑", "c ↓"))
    tensorboard_process._add_columns(first, table("a ↑"))
    assert [info.display_name for info in first.metric_infos] == ["a", "b ↑", "c ↓"]


@contextlib.contextmanager
def shared_folder():
    """A folder for runs with one that its owner alone may enter, by a user who is not the owner."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        mine = make_run(Path(folder))
        for path in (mine, *mine.rglob("*")):
            path.chmod(0o755)
        private = make_run(Path(folder), name="another")  # which is read first
        private.chmod(0o000)
        (Path(folder) / "a link").symlink_to(private / "trials")
        (Path(folder) / "no folder").touch()
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        try:
            yield mine, private
        finally:
            os.seteuid(user)
            private.chmod(0o700)


def test_runs_that_only_their_owner_may_read_are_passed_over():
    with shared_folder() as (mine, private), tempfile.TemporaryDirectory() as searches:
        assert folders_of_runs(str(mine.parent)).keys() == {mine.name}
        assert folders_of_runs(str(private)) == {}
        tensorboard_process._link_searches(mine.parent, Path(searches))
        assert [link.name for link in Path(searches).iterdir()] == [mine.name]


def test_runs_that_only_their_owner_may_read_hide_no_other_in_a_copy():
    fsspec.core.url_to_fs("local:///")  # imports modules, which the other user may not read
    with shared_folder() as (mine, _), tempfile.TemporaryDirectory() as searches:
        request = tensorboard_process.Request(
            folder=f"local://{mine.parent}",
            several=True,
            hadoop=HadoopSettings(),
            parent=os.getpid(),
            reload=1,
        )
        with tensorboard_process._on_this_host(request, Path(searches)) as copy:
            wait_until((Path(searches) / mine.name).is_symlink)
            assert folders_of_runs(str(copy)).keys() == {mine.name}


@pytest.mark.parametrize("reload", [0, 0.5])
def test_a_reload_without_a_pause_is_refused(reload):
    text = json.dumps({"folder": "/runs", "several": True, "hadoop": {}, "reload": reload})
    with pytest.raises(msgspec.ValidationError, match=r"\$.reload"):
        msgspec.json.decode(text, type=tensorboard_process.Request)
