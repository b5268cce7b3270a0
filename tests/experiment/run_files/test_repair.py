from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import experiment
from experiment.cli.commands import main
from experiment.run_files.journal import Journal, JournalDamaged, encode_line, read_journal
from experiment.run_files.ownership import owned, owner_of
from experiment.run_files.repair import repair_journal
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from tests.experiment.runs import begun, make_run

pytestmark = pytest.mark.fault(26)


def resume(journal):
    """Add the segment of a resumed search without trials left."""
    records = len(list(read_journal(journal)))
    with Journal(journal) as segment:
        segment.append(begun(records, 4))


@pytest.fixture
def paths(tmp_path):
    """A run that was resumed twice: segments with 11, 1 and 1 records."""
    paths = RunPaths(make_run(tmp_path / "runs of ü 'quoted'", trials=4, failed=()))
    for _ in range(2):
        resume(paths.journal)
    return paths


def add(path, data):
    with path.open("ab") as file:
        file.write(data)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def change_line(number, change=lambda line: line.replace(b"e", b"E", 1), segment=1):
    def damage(journal):
        path = journal / f"{segment:06d}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number - 1] = change(lines[number - 1])
        path.write_bytes(b"".join(lines))

    return damage


def empty(segment):
    return lambda journal: (journal / f"{segment:06d}.jsonl").write_bytes(b"")


def remove(segment):
    return lambda journal: (journal / f"{segment:06d}.jsonl").unlink()


def swap(journal):
    first, second = (journal / f"{number:06d}.jsonl" for number in (1, 2))
    contents = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(contents)


def cut_all(journal):
    for path in journal.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"\x0b")


# The damage, the number of records kept of 13, the segments set aside.
DAMAGES = {
    "the first line": (change_line(1), 0, [1, 2, 3]),
    "a line": (change_line(4), 3, [1, 2, 3]),
    "a line without its end": (change_line(4, lambda line: line[:-1]), 3, [1, 2, 3]),
    "the end of a segment": (change_line(11, lambda line: line[:-1] + b"x"), 11, [1, 2, 3]),
    "the end of the last segment": (change_line(1, lambda line: line[:-1] + b"x", 3), 13, [3]),
    "a line of the last segment": (change_line(1, segment=3), 12, [3]),
    "ends of all segments": (cut_all, 11, [1, 2, 3]),
    "the first segment is empty": (empty(1), 0, [2, 3]),
    "the second segment is empty": (empty(2), 11, [3]),
    "the first segment is missing": (remove(1), 0, [2, 3]),
    "the second segment is missing": (remove(2), 11, [3]),
    "segments in another order": (swap, 0, [1, 2, 3]),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_records_before_the_damage_are_kept_and_the_rest_is_set_aside(paths, kind, capsys):
    damage, kept, aside = DAMAGES[kind]
    whole = list(read_journal(paths.journal))
    damage(paths.journal)
    before = contents(paths.journal)
    with pytest.raises(JournalDamaged):
        experiment.load(paths.root)
    assert main(["repair", str(paths.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert owner_of(paths) is None
    assert lines[1].startswith(f"kept: {kept} records before it; ")
    assert f"resume={str(paths.root)!r}" in lines[2]
    assert list(read_journal(paths.journal)) == whole[:kept]
    assert experiment.load(paths.root).done == max(0, min(kept, 10) - 2) // 2
    after = contents(paths.journal)
    for number in aside:
        name = f"{number:06d}.jsonl"
        assert str(paths.journal / f"{name}.damaged") in lines[1]
        assert after[f"{name}.damaged"] == before[name]
    untouched = {name for name in before if int(Path(name).stem) not in aside}
    assert {name for name in untouched if after[name] == before[name]} == untouched
    assert not [name for name in after if name.startswith(".")]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths.journal.iterdir())
    resume(paths.journal)
    assert list(read_journal(paths.journal))[:kept] == whole[:kept]


def test_a_run_that_had_ended_has_not_ended_once_its_journal_was_cut(paths):
    assert experiment.load(paths.root).done == 4
    change_line(4)(paths.journal)
    assert main(["repair", str(paths.root)]) == 0
    assert not paths.result.exists()


def test_an_intact_journal_is_not_changed(paths, capsys):
    add(paths.journal / "000003.jsonl", b"torn")
    before = contents(paths.journal)
    assert main(["repair", str(paths.root)]) == 0
    assert capsys.readouterr().out == f"nothing to repair: {paths.journal} is not damaged\n"
    assert contents(paths.journal) == before
    assert not paths.owners.exists()


def test_segments_set_aside_earlier_are_kept(paths):
    for times in range(1, 4):
        change_line(3)(paths.journal)
        before = contents(paths.journal)
        assert main(["repair", str(paths.root)]) == 0
        name = "000001.jsonl.damaged" + (f"-{times}" if times > 1 else "")
        after = contents(paths.journal)
        assert after[name] == before["000001.jsonl"]
        assert all(after[name] == before[name] for name in before if ".damaged" in name)
        add(paths.journal / "000001.jsonl", encode_line({"event": "planned"}))


class Killed(BaseException):
    pass


class Cut(LocalFiles):
    """Files of a process that is killed before one of its steps."""

    def __init__(self, steps):
        self._steps = steps

    def _step(self):
        if self._steps == 0:
            raise Killed
        self._steps -= 1

    def write(self, location, source, length=None):
        self._step()
        super().write(location, source, length)

    def rename(self, location, new):
        self._step()
        super().rename(location, new)


@pytest.mark.parametrize("kind", DAMAGES)
def test_an_interrupted_repair_can_be_repeated(paths, kind):
    damage, kept, _ = DAMAGES[kind]
    whole = list(read_journal(paths.journal))
    damage(paths.journal)
    before = set(contents(paths.journal).values())
    for steps in range(5):
        try:
            repair_journal(paths, Cut(steps))
        except Killed:
            with pytest.raises(JournalDamaged):
                list(read_journal(paths.journal))
    assert repair_journal(paths, LocalFiles()) is None
    assert list(read_journal(paths.journal)) == whole[:kept]
    assert before <= set(contents(paths.journal).values())


def test_invalid_records_are_neither_repaired_nor_called_intact(paths, capsys):
    finished = encode_line({"event": "finished", "attempt": 1, "outcome": {}, "at": 1.0})
    add(paths.journal / "000003.jsonl", finished)
    before = contents(paths.journal)
    assert main(["repair", str(paths.root)]) == 2
    assert f"{paths.journal}, record 14: " in capsys.readouterr().err
    assert contents(paths.journal) == before


def test_a_run_with_an_active_driver_is_refused(paths, capsys):
    change_line(3)(paths.journal)
    before = contents(paths.journal)
    with owned(Location.parse(paths.root), HadoopSettings(), "", taken=fail, tell=fail):
        assert main(["repair", str(paths.root)]) == 2
    assert f"pid {os.getpid()}" in capsys.readouterr().err
    assert contents(paths.journal) == before


def fail(message):
    raise AssertionError(message)


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["repair", str(tmp_path)]) == 2
    assert "without a manifest.json" in capsys.readouterr().err
