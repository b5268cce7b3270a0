"""A mirror of a folder that is written to, mostly with folders of this host on both sides."""

import os
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.properties import examples

EVERYTHING = re.compile(".*")


class CountingFiles(LocalFiles):
    """Records the calls."""

    def __init__(self):
        self.listed, self.read_bytes = [], 0

    def listdir(self, location):
        self.listed.append(os.path.basename(location.path))
        return super().listdir(location)

    def read(self, status, sink, offset=0):
        self.read_bytes += status.length - offset
        super().read(status, sink, offset)


@pytest.fixture
def files():
    return CountingFiles()


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def add(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def test_only_wanted_files_are_fetched(files, source, target):
    for name in ("manifest.json", "search/a.tfevents", "trials/1/b.tfevents", "trials/1/model"):
        put(source / name, name.encode())
    wanted = re.compile(r"(search|trials)/(.*/)?([^/]*tfevents[^/]*)?")
    Mirror(files, Location.parse(source), target, wanted).update()
    assert set(tree(target)) == {"search/a.tfevents", "trials/1/b.tfevents"}


def test_only_the_new_part_of_a_growing_file_is_read(files, source, target):
    mirror = Mirror(files, Location.parse(source), target, EVERYTHING)
    for number in range(1, 5):
        add(source / "stdout.log", b"x" * 1000)
        mirror.update()
        assert files.read_bytes == 1000 * number
    assert tree(target) == tree(source)


def test_a_mirror_that_is_up_to_date_reads_nothing(files, source, target):
    put(source / "a/b.json", b"1")
    mirror = Mirror(files, Location.parse(source), target, EVERYTHING)
    assert mirror.update()
    assert not mirror.update()
    assert files.read_bytes == 1
    (source / "a/b.json").unlink()
    assert mirror.update()


def test_a_trial_with_an_outcome_is_listed_again_only_when_a_name_changes(files, source, target):
    events = source / "trials/000001/a.tfevents"
    put(events, b"1")
    mirror = Mirror(files, Location.parse(source), target, EVERYTHING)
    mirror.update()
    mirror.update()
    assert files.listed.count("000001") == 2
    put(source / "trials/000001/outcome.json", b"{}")
    mirror.update()
    mirror.update()
    assert files.listed.count("000001") == 3
    before = events.parent.stat().st_mtime_ns
    while events.parent.stat().st_mtime_ns == before:  # clocks have coarse steps
        events = events.rename(events.with_name(f"{events.name}-hidden"))
    mirror.update()
    assert files.listed.count("000001") == 4
    assert tree(target) == tree(source)


def test_the_workers_of_a_trial_may_end_after_its_outcome(files, source, target):
    trial = source / "trials/000001"
    put(trial / "outcome.json", b"{}")
    put(trial / "workers/1/stdout.log", b"1")
    mirror = Mirror(files, Location.parse(source), target, EVERYTHING)
    mirror.update()
    add(trial / "workers/1/stdout.log", b"2")
    put(trial / "workers/1/outcome.json", b"{}")
    mirror.update()
    assert tree(target) == tree(source)
    listed = files.listed.count("000001")
    mirror.update()
    mirror.update()
    assert files.listed.count("000001") == listed


def test_the_copy_has_the_time_of_the_original(files, source, target):
    put(source / "a.jsonl", b"1")
    os.utime(source / "a.jsonl", (1_000, 1_000))
    Mirror(files, Location.parse(source), target, EVERYTHING).update()
    assert (target / "a.jsonl").stat().st_mtime == 1_000


def test_names_that_differ_by_a_dot_or_are_long_are_fetched(files, source, target):
    for name in ("state", ".state", "x" * 255):
        put(source / name, name.encode())
    Mirror(files, Location.parse(source), target, EVERYTHING).update()
    assert tree(target) == tree(source)


def test_a_folder_that_is_not_there_is_an_error(files, source, target):
    mirror = Mirror(files, Location.parse(source / "nowhere"), target, EVERYTHING)
    with pytest.raises(FileNotFoundError):
        mirror.update()


@pytest.mark.parametrize("suffix", ["log", "json"])
def test_a_round_continues_where_the_last_one_failed(source, target, suffix):
    class Failing(LocalFiles):
        left = 3

        def read(self, status, sink, offset=0):
            self.left -= 1
            if self.left < 0:
                raise ConnectionError("away")
            super().read(status, sink, offset)

    for number in range(7):
        put(source / f"{number}.{suffix}", b"x" * number)
    failing = Failing()
    mirror = Mirror(failing, Location.parse(source), target, EVERYTHING)
    while tree(target) != tree(source):
        failing.left = 3
        try:
            mirror.update()
        except ConnectionError:
            continue


NAMES = st.sampled_from(
    ["a.log", "b.jsonl", "m.json", "trials/1/e.tfevents.1", "trials/1/outcome.json", "trials/2/x"]
)
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("remove"), NAMES, st.just(b"")),
    st.tuples(st.just("update"), st.just(""), st.just(b"")),
)


@examples(60)
@given(steps=st.lists(STEPS, max_size=25))
def test_after_any_changes_the_last_round_makes_both_equal(tmp_path_factory, steps):
    root = tmp_path_factory.mktemp("mirror")
    source, target = root / "source", root / "target"
    source.mkdir()
    target.mkdir()
    mirror = Mirror(LocalFiles(), Location.parse(source), target, EVERYTHING)
    removed = set()
    for step, name, data in steps:
        if step == "update":
            mirror.update()
        elif step == "remove":
            (source / name).unlink(missing_ok=True)
            removed.add(name)
        # What only grows does not come back as another file, nor is it added to after the outcome.
        elif name not in removed and not (source / name).with_name("outcome.json").exists():
            add(source / name, data)
    mirror.update()
    assert tree(target) == tree(source)
    shutil.rmtree(root)


def test_a_folder_that_is_removed_there_is_removed_here(files, source, target):
    put(source / "trials/1/a.log", b"1")
    put(source / "trials/1/outcome.json", b"{}")
    put(source / "trials/2/a.log", b"2")
    mirror = Mirror(files, Location.parse(source), target, EVERYTHING)
    mirror.update()
    shutil.rmtree(source / "trials/1")
    mirror.update()
    assert set(tree(target)) == {"trials/2/a.log"}
    put(source / "trials/1/a.log", b"3")  # another one of the same name
    mirror.update()
    assert tree(target) == tree(source)


def test_links_are_not_followed(files, source, target, tmp_path):
    put(tmp_path / "elsewhere/a.log", b"1")
    (source / "data").symlink_to(tmp_path / "elsewhere")
    (source / "loop").symlink_to(source)
    put(source / "b.log", b"2")
    Mirror(files, Location.parse(source), target, EVERYTHING).update()
    assert set(tree(target)) == {"b.log"}


def test_a_file_removed_before_it_is_read_leaves_nothing(files, source, target):
    class Vanishing(LocalFiles):
        def read(self, status, sink, offset=0):
            os.unlink(status.location.path)
            super().read(status, sink, offset)

    put(source / "a.log", b"1")
    Mirror(Vanishing(), Location.parse(source), target, EVERYTHING).update()
    assert tree(target) == {}


def test_an_entry_that_may_not_be_read_hides_no_other(source, target):
    class Refusing(LocalFiles):
        def listdir(self, location):
            if location.name == "b":
                raise PermissionError(13, "Permission denied", location.path)
            return super().listdir(location)

    for name in ("a", "b", "c"):
        put(source / name / "x.log", name.encode())
    with pytest.raises(PermissionError, match="source/b"):
        Mirror(Refusing(), Location.parse(source), target, EVERYTHING).update()
    assert set(tree(target)) == {"a/x.log", "c/x.log"}
