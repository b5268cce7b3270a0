"""The copy of runs that TensorBoard reads when they are on another store."""

import re

import pytest

from experiment.display import tensorboard_process
from experiment.tab.finding import folders_of_runs
from experiment.tab.run_pages import RunPages
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.runs import make_run


@pytest.mark.parametrize("several", [False, True])
def test_a_copy_has_what_the_tab_reads_and_no_files_of_trials(tmp_path, several):
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
    facts = RunPages(name, paths).summary()
    assert (facts["state"], facts["counts"]["done"]) == ("finished", 6)
    assert name == (run.name if several else "run")
    assert b'"copied":true' in RunPages(name, paths).trial(1)
    copied = {path.name for path in copy.rglob("*") if path.is_file()}
    assert {"manifest.json", "000001.jsonl", "events.out.tfevents.trial"} <= copied
    assert not copied & {"model.bin", "stdout.log"}
