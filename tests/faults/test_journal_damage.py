"""Damaged journals and full disks in real searches."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import experiment
from experiment.cli.commands import main
from experiment.results.text import command
from experiment.run_files.journal import JournalDamaged, read_journal
from spark_jobs.run_folder.paths import RunPaths
from tests import ROOT
from tests.spark_jobs import train_functions as functions


@pytest.fixture
def paths(spark, logdir):
    """The files of a search with eight trials."""
    result = experiment.launch(
        spark, functions.double, {"x": range(8)}, logdir=logdir, preload=(), verbose=0
    )
    return RunPaths(Path(result.logdir))


def table(result):
    return [(trial.id, trial.status, trial.value, trial.params) for trial in result.trials]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(26)
def test_a_search_whose_journal_was_changed_is_refused_and_repaired_as_it_says(paths):
    [segment] = paths.journal.iterdir()
    whole, before = segment.read_bytes(), table(experiment.load(paths.root))
    lines = whole.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for number in (6, *range(len(lines) - 3, len(lines))):
        for offset in range(starts[number], starts[number + 1]):
            changed = bytearray(whole)
            changed[offset] ^= 1 << offset % 8
            segment.write_bytes(changed)
            with pytest.raises(JournalDamaged) as caught:
                experiment.load(paths.root)
            said = str(caught.value)
            assert said.startswith(f"{segment}, line {number + 1}: ")
    repair = command("repair", str(paths.root))
    assert said.endswith(repair)
    subprocess.run(repair, shell=True, cwd=ROOT, check=True, capture_output=True, timeout=120)
    assert segment.with_name(f"{segment.name}.damaged").read_bytes() == changed
    after = table(experiment.load(paths.root))
    assert [trial for trial in before if trial in after] == after
    assert len(after) >= len(before) - 1


@pytest.mark.fault(26)
def test_a_search_whose_journal_was_cut_anywhere_is_read_up_to_there(paths):
    [segment] = paths.journal.iterdir()
    whole, before = segment.read_bytes(), table(experiment.load(paths.root))
    assert len(before) == 8
    for cut in range(0, len(whole), 7):
        segment.write_bytes(whole[:cut])
        after = table(experiment.load(paths.root))
        finished = whole[:cut].count(b'"finished","attempt"')
        assert [trial for trial in before if trial in after] == after
        assert finished - 1 <= len(after) <= finished


DRIVER = """
    import json, os, resource, signal, sys, threading, warnings
    from pathlib import Path

    import experiment
    from pyspark.sql import SparkSession
    from tests.experiment.waiting import processes_in, wait_until

    warnings.simplefilter("ignore")
    logdir, pids, largest = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()

    def limit(size):  # for files that the driver alone writes
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    def train(x, text):
        if pids.exists():
            import os, time

            (pids / f"pid-{os.getpid()}").touch()
            time.sleep(600)
        return 2.0 * x

    def fill_and_kill():
        wait_until(lambda: len(processes_in(pids)) == 2)
        [journal] = logdir.glob("*/journal/*.jsonl")
        limit(journal.stat().st_size)
        os.kill(processes_in(pids)[0], signal.SIGKILL)

    settings = {"logdir": logdir, "preload": (), "verbose": 0}
    if largest:
        limit(largest)
    if pids.exists():
        settings["isolation"] = "none"
        threading.Thread(target=fill_and_kill, daemon=True).start()
    points = [{"x": number, "text": "t" * 4_000} for number in range(1_000)]
    try:
        experiment.launch(spark, train, points, **settings)
    except experiment.SearchFailed as error:
        heard = [[t.id, t.status, t.value] for t in error.result.trials]
        print(json.dumps([str(error), error.result.logdir, error.result.problem, heard]))
    spark.stop()
"""


def run_driver(tmp_path, *, mount="true", largest=0):
    """Run a search of 1,000 trials that does not fit on its disk.

    Args:
        tmp_path: The run goes to the folder `disk` in it and is copied to `kept` in the end. Where
            there is a folder `pids`, trials hang until the journal is full and one is killed.
        mount: Shell command that makes the disk.
        largest: Bytes that a file of the driver may have; 0 for any.

    Returns:
        What the error says; the run's folder; its problem; the trials in its result.
    """
    logdir = tmp_path / "disk"
    logdir.mkdir()
    arguments = [str(logdir), str(tmp_path / "pids"), str(largest)]
    driver = [sys.executable, "-c", textwrap.dedent(DRIVER), *arguments]
    script = f'{mount} || exit 99; "$@" && cp -r {logdir}/*-*-* {tmp_path / "kept"}'
    shell = ["sh", "-c", script, "sh", *driver]
    if mount != "true":  # in a namespace that ends with the process
        shell = ["unshare", "--mount", *shell]
    ended = subprocess.run(
        shell,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if ended.returncode == 99 or "unshare" in ended.stderr:
        pytest.skip(f"nothing may be mounted here: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def assert_stopped_in_order(kept, heard):
    """Check that the journal has all outcomes, and that no trial was started after it failed."""
    trials = [[trial.id, trial.status, trial.value] for trial in experiment.load(kept).trials]
    assert [trial for trial in trials if trial in heard] == heard
    assert 5 < len(heard) < 900
    records = list(read_journal(kept / "journal"))
    planned = [record["trial"]["id"] for record in records if record["event"] == "planned"]
    assert len(set(planned)) == len(planned) <= len(trials) + 2


@pytest.mark.slow
@pytest.mark.fault(25)
def test_a_full_disk_ends_the_search_and_the_journal_loads(tmp_path):
    mount = f"mount -t tmpfs -o size=1m none {tmp_path / 'disk'}"
    said, folder, problem, heard = run_driver(tmp_path, mount=mount)
    reason = f"the driver cannot continue: OSError: [Errno 28] No space left on device: '{folder}/"
    assert problem.startswith(reason)
    assert said.startswith(problem)
    assert_stopped_in_order(tmp_path / "kept", heard)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.fault(25)
def test_a_journal_that_may_not_grow_ends_the_search_alone(tmp_path):
    said, folder, problem, heard = run_driver(tmp_path, largest=200_000)
    assert problem == (
        f"the driver cannot continue: OSError: [Errno 27] File too large: "
        f"'{folder}/journal/000001.jsonl'"
    )
    assert said.startswith(problem)
    assert {status for _, status, _ in heard} == {"finished"}
    assert_stopped_in_order(tmp_path / "kept", heard)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.fault(25)
def test_a_journal_that_cannot_record_a_lost_slot_ends_the_search(tmp_path):
    (tmp_path / "pids").mkdir()
    _, folder, problem, heard = run_driver(tmp_path)
    assert problem == (
        f"the driver cannot continue: OSError: [Errno 27] File too large: "
        f"'{folder}/journal/000001.jsonl'"
    )
    assert heard == []
    assert experiment.load(tmp_path / "kept").trials == []


@pytest.mark.slow
@pytest.mark.fault(25)
@pytest.mark.skipif(not shutil.which("mkfs.ext2"), reason="takes mkfs.ext2")
def test_a_disk_that_takes_writes_and_fails_to_sync_them_ends_the_search(tmp_path):
    """A device with less memory than it reports: only a sync fails."""
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    memory.mkdir()
    mount = (
        f"mount -t tmpfs -o size=1m none {memory} && truncate -s 64m {memory}/image && "
        f"mkfs.ext2 -q -m 0 {memory}/image && mount -o loop {memory}/image {disk}"
    )
    said, folder, problem, heard = run_driver(tmp_path, mount=mount)
    where = re.escape(f"'{folder}/journal/000001.jsonl'")
    reason = rf"the driver cannot continue: OSError: \[Errno (5|28)\] .*: {where}"
    assert re.fullmatch(reason, problem)
    assert said.startswith(problem)
    kept = tmp_path / "kept"
    try:
        assert_stopped_in_order(kept, heard)
    except JournalDamaged:  # it has lost written data, which is detected and can be repaired
        assert main(["repair", str(kept)]) == 0
        trials = [[t.id, t.status, t.value] for t in experiment.load(kept).trials]
        assert trials == sorted(heard[: len(trials)]) != []
