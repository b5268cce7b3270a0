"""The uploaded folder equals the local one, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import errno
import getpass
import itertools
import os
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import hdfs as hdfs_package
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spark_jobs.run_folder.renames import LIST, PARTS, finish_renames
from spark_jobs.run_folder.uploader import Uploader
from spark_jobs.storage.files import LocalFiles, pieces
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.properties import examples
from tests.spark_jobs.storage.disturbed_hdfs import datanodes, disturbed, once, read

_FOLDERS = itertools.count()
_CLOCK = itertools.count(10**9, 10**9)


class Watched:
    """`LocalFiles`, or others, that record the calls and fail as configured.

    Attributes:
        calls: (method, name of the file, bytes of an append) of each call.
        failing: Called with the method and the name before each call; may raise.
        losing: The same after each call, as an answer that got lost.
    """

    def __init__(self, files=None):
        self.files, self.calls = files or LocalFiles(), []
        self.failing = self.losing = lambda method, name: None

    def __getattr__(self, method):
        def call(location, *arguments):
            size = len(arguments[0]) if method == "append" else 0
            self.calls.append((method, location.name, size))
            self.failing(method, location.name)
            result = getattr(self.files, method)(location, *arguments)
            self.losing(method, location.name)
            return result

        return call

    def close(self):
        self.files.close()

    def named(self, *methods):
        """Return the files' names in the calls of these methods, and clear all calls.

        Without the list of renames, which is none of the files.
        """
        found = [name for method, name, _ in self.calls if method in methods and name != LIST]
        self.calls.clear()
        return found


def tree(folder):
    """Return the contents of the plain files below a folder, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def write(path, data, mode="wb"):
    """Write to a file, later than to any other before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(data)
    touch(path)


def touch(path):
    now = next(_CLOCK)  # the kernel's clock has steps in which much can happen
    os.utime(path, ns=(now, now))


def write_linked(checkpoint, outside):
    """Write checkpoints with links to each other and to elsewhere; return what is handed on."""
    write(checkpoint / "steps" / "500" / "state", b"500")
    write(outside / "state", b"secret")
    for name, target in {
        "latest": "steps/500/state",
        "steps/last": "500",
        "absolute": checkpoint / "steps" / "500" / "state",
        "steps/500/around": "..",
        "all": ".",
        "itself": "itself",
        "nothing": "nowhere",
        "above": "..",
        "outside": outside,
        "outside-state": outside / "state",
        "beside": "../stdout.log",
    }.items():
        (checkpoint / name).symlink_to(target)
    write(checkpoint.parent / "stdout.log", b"printed")
    return dict.fromkeys(["absolute", "latest", "steps/500/state", "steps/last/state"], b"500")


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target" / "of ü"


@pytest.fixture
def files():
    return Watched()


@pytest.fixture
def uploader(files, source, target):
    return Uploader(files, source, Location.parse(target))


def test_a_folder_is_uploaded_with_all_that_is_in_it(uploader, source, target):
    for name in ("trial.json", "stdout.log", "train/events.out.tfevents.1", "a/b/c d/ü", "empty"):
        write(source / name, name.encode() if name != "empty" else b"")
    uploader.upload()
    assert tree(target) == tree(source)
    assert len(tree(source)) == 5


def test_an_empty_folder_is_made(uploader, target):
    uploader.upload(everything=False)
    assert target.is_dir()


@pytest.mark.parametrize("name", ["state.jsonl", "train.log", "tfevents-model/x.h5"])
def test_a_checkpoint_that_is_rewritten_in_place_is_uploaded_whole_whatever_its_name(
    uploader, source, target, name
):
    path = source / "checkpoint" / name
    write(path, b"0" * 10_000)
    uploader.upload()
    with path.open("r+b") as file:
        file.write(b"1")
    touch(path)
    uploader.upload()
    assert tree(target) == {f"checkpoint/{name}": b"1" + b"0" * 9_999}


def test_files_that_grow_are_appended_to(uploader, files, source, target):
    names = ["stdout.log", "journal/000001.jsonl", "train/events.out.tfevents.1.host"]
    for number in range(5):
        for name in names:
            write(source / name, b"%d" % number * 10, "ab")
        uploader.upload(everything=False)
        assert tree(target) == tree(source)
    written = {name: [m for m, n, _ in files.calls if n == name] for _, name, _ in files.calls}
    for name in names:
        assert written[Path(name).name] == ["write", "append", "append", "append", "append"]
    assert {size for method, _, size in files.calls if method == "append"} == {10}


def test_unchanged_files_are_not_uploaded_again(uploader, files, source):
    for name in ("a.json", "a.log"):
        write(source / name, b"1")
    for _ in range(3):
        uploader.upload(everything=False)
    assert files.named("write", "append") == ["a.log", "a.json"]
    for _ in range(3):
        uploader.upload(everything=False)
        uploader.upload()
    assert files.calls == []


def test_other_files_are_uploaded_when_unchanged_for_a_round(uploader, files, source):
    for size in range(1, 5):
        write(source / "model.keras", bytes(size))
        uploader.upload(everything=False)
        assert files.named("write", "append") == []
    uploader.upload(everything=False)
    assert files.named("write", "append") == ["model.keras"]


def test_a_file_that_changes_all_the_time_is_uploaded_in_every_fifth_round(
    uploader, files, source, target
):
    """As a checkpoint of each epoch, where epochs are shorter than rounds."""
    uploaded = []
    for number in range(12):
        write(source / "model.keras", b"%d" % number)
        uploader.upload(everything=False)
        if files.named("write"):
            uploaded.append(number)
            assert tree(target) == {"model.keras": b"%d" % number}
    assert uploaded == [4, 9]


@pytest.mark.parametrize("problem", ["it was changed meanwhile", "above the quota"])
def test_a_file_that_changes_all_the_time_is_not_sent_in_each_round_after_a_failure(
    uploader, files, source, problem
):
    def fail(method, name):
        if method == "write":
            raise OSError(problem)

    files.failing, sent = fail, []
    for number in range(12):
        write(source / "model.keras", b"%d" % number)
        with contextlib.suppress(OSError):
            uploader.upload(everything=False)
        if files.named("write"):
            sent.append(number)
    assert sent == [4, 9]


class TestCheckpoints:
    """The folder for checkpoints, whose files belong together."""

    OLD, NEW = ({"checkpoint/a": data, "checkpoint/b/c": data} for data in (b"old", b"newer"))

    @pytest.fixture
    def save(self, source):
        def save(files):
            for name, data in files.items():
                write(source / name, data)

        return save

    @pytest.fixture
    def fail_at(self, files):
        """Let the store refuse a file, the first being number 0, with an error; or call it."""

        def fail_at(number, error):
            left = itertools.count()

            def fail(method, name):
                if method == "write" and next(left) == number:
                    if isinstance(error, OSError):
                        raise error
                    error()

            files.failing = fail

        return fail_at

    @pytest.mark.parametrize("everything", [False, True])
    @pytest.mark.parametrize(
        "error", [ConnectionError("no answer"), OSError("above the quota")], ids=["away", "quota"]
    )
    def test_a_part_of_a_checkpoint_replaces_no_whole_one(
        self, uploader, source, target, save, fail_at, error, everything
    ):
        save(self.OLD)
        uploader.upload()
        save(self.NEW)
        uploader.upload(everything=False)
        fail_at(1, error)
        with pytest.raises(type(error), match=str(error)):
            uploader.upload(everything=everything)
        visible = {n: d for n, d in tree(target).items() if not n.startswith(".part-")}
        assert visible == self.OLD
        fail_at(0, lambda: None)
        uploader.upload()
        assert tree(target) == tree(source) == self.NEW
        assert not list(target.glob(".part-*"))

    @pytest.mark.parametrize("way", ["failing", "losing"])
    def test_a_host_that_is_lost_at_any_moment_leaves_a_whole_checkpoint(
        self, files, source, tmp_path, save, way
    ):
        """The store answers some calls of a round, then some of the next round, then no more."""
        newest = dict.fromkeys(self.NEW, b"newest")

        def upload(uploader, calls):
            left = itertools.count(calls, -1)

            def fail(method, name):
                if next(left) <= 0:
                    raise ConnectionError("no answer")

            setattr(files, way, fail)
            with contextlib.suppress(ConnectionError):
                uploader.upload()
            setattr(files, way, lambda method, name: None)

        found = []
        for first, second in itertools.product(range(12), repeat=2):
            target = tmp_path / f"target {first} {second}"
            uploader = Uploader(files, source, Location.parse(target))
            save(self.OLD)
            uploader.upload()
            save(self.NEW)
            upload(uploader, first)
            save(newest)
            upload(uploader, second)
            finish_renames(LocalFiles(), Location.parse(target))
            visible = {n: d for n, d in tree(target).items() if not n.startswith(PARTS)}
            assert visible in (self.OLD, self.NEW, newest), (first, second)
            found.append(visible)
        assert (found[0], found[-1]) == (self.OLD, newest)
        assert self.NEW in found

    def test_who_follows_an_old_list_moves_no_part_of_a_later_checkpoint(
        self, uploader, files, source, target, save
    ):
        """As the next attempt of one whose host was only thought to be lost."""
        old, newest = [], dict.fromkeys(self.NEW, b"newest")

        def keep(method, name):
            if method == "rename" and not old:
                old.append((target / PARTS / LIST).read_bytes())

        files.failing = keep
        save(self.NEW)
        uploader.upload()
        save(newest)

        def follow(method, name):
            if method == "write" and name.endswith("-c"):  # the last part
                (target / PARTS / LIST).write_bytes(old[0])
                finish_renames(LocalFiles(), Location.parse(target))
                (target / PARTS / LIST).unlink()

        files.failing = follow
        uploader.upload()
        assert tree(target) == tree(source) == newest

    def test_a_part_is_sent_once_where_the_store_does_not_answer_for_the_next(
        self, uploader, files, source, target, save, fail_at
    ):
        save(self.NEW)
        fail_at(1, ConnectionError("no answer"))
        with pytest.raises(ConnectionError):
            uploader.upload()
        assert len(files.named("write")) == 2
        fail_at(0, lambda: None)
        uploader.upload()
        assert len(files.named("write")) == 1
        assert tree(target) == tree(source)

    def test_nothing_of_a_refused_checkpoint_takes_up_space(self, uploader, target, save, fail_at):
        save(self.NEW)
        fail_at(1, OSError("above the quota"))
        with pytest.raises(OSError, match="quota"):
            uploader.upload()
        assert list(target.rglob("*")) == []

    def test_a_refused_checkpoint_is_sent_again_only_at_the_end_or_changed(
        self, uploader, files, save, fail_at
    ):
        save(self.NEW)
        uploader.upload(everything=False)
        fail_at(1, OSError("above the quota"))
        for sent in (2, 0, 0):
            with pytest.raises(OSError, match="quota"):
                uploader.upload(everything=False)
            assert len(files.named("write")) == sent
        uploader.upload()
        assert len(files.named("write")) == 2

    @pytest.mark.parametrize("method", ["write", "rename", "make_folder"])
    def test_a_name_that_the_store_refuses_is_not_sent_in_each_round(
        self, uploader, files, target, save, method
    ):
        """HDFS refuses it when a file would get it."""

        def refuse(called, name):
            if called == method and "b:c" in name:
                raise OSError("invalid name")

        files.failing = refuse
        save({"checkpoint/a": b"1", "checkpoint/b:c/b:c": b"2"})
        uploader.upload(everything=False)
        with pytest.raises(OSError, match="invalid name"):
            uploader.upload(everything=False)
        assert not list(target.glob(".part-*"))
        files.calls.clear()
        with pytest.raises(OSError, match="invalid name"):
            uploader.upload(everything=False)
        assert files.calls == []

    def test_a_name_that_the_store_refuses_is_refused_before_other_files_get_theirs(
        self, uploader, files, target, save
    ):
        def refuse(method, name):
            if method == "write" and ":" in name:
                raise OSError("invalid name")

        files.failing = refuse
        save({"checkpoint/a": b"1", "checkpoint/b:c": b"2"})
        with pytest.raises(OSError, match="invalid name"):
            uploader.upload()
        assert tree(target) == {}

    def test_a_checkpoint_that_is_saved_while_it_is_uploaded_is_not_mixed_with_the_next_one(
        self, uploader, source, target, save, fail_at
    ):
        save(self.OLD)
        fail_at(1, lambda: save({"checkpoint/a": b"newer"}))
        uploader.upload()
        assert tree(target) == tree(source) == {**self.OLD, "checkpoint/a": b"newer"}
        save(self.NEW)
        uploader.upload()
        assert tree(target) == tree(source) == self.NEW

    @pytest.fixture
    def keep_changing(self, uploader, save):
        """Change a checkpoint in each round until one is due in which it need not be whole."""

        def keep_changing():
            for number in range(4):
                save({"checkpoint/a": b"%d" % number})
                uploader.upload(everything=False)

        return keep_changing

    def test_a_checkpoint_to_which_a_file_is_saved_meanwhile_gets_its_names_with_that_file(
        self, uploader, files, source, target, save, keep_changing, fail_at
    ):
        save(self.OLD)
        uploader.upload()
        keep_changing()
        shutil.rmtree(source / "checkpoint")
        save({"checkpoint/6/index": b"6"})
        fail_at(0, lambda: save({"checkpoint/6/data": b"6"}))
        files.calls.clear()
        uploader.upload(everything=False)
        calls = [call for call in files.calls if call[0] in ("write", "rename") and call[1] != LIST]
        assert [method for method, *_ in calls] == ["write", "write", "rename", "rename"]
        assert tree(target) == tree(source)

    def test_a_checkpoint_to_which_files_are_saved_again_and_again_does_not_get_its_names(
        self, uploader, files, source, target, save, keep_changing
    ):
        save(self.OLD)
        uploader.upload()
        keep_changing()
        shutil.rmtree(source / "checkpoint")
        save({"checkpoint/6/0": b"6"})
        numbers = itertools.count(1)

        def save_more(method, name):
            if method == "write":
                save({f"checkpoint/6/{next(numbers)}": b"6"})

        files.failing = save_more
        with pytest.raises(OSError, match=r"checkpoint: it was changed meanwhile"):
            uploader.upload(everything=False)
        files.failing = lambda method, name: None
        visible = {n: d for n, d in tree(target).items() if not n.startswith(".part-")}
        assert visible == self.OLD
        for _ in range(2):
            uploader.upload(everything=False)
        assert tree(target) == tree(source)

    def test_parts_take_up_no_room_where_a_file_that_came_meanwhile_is_refused(
        self, uploader, files, target, save
    ):
        save(self.OLD)
        numbers = itertools.count()

        def fill(method, name):
            if method == "write" and next(numbers) == 0:
                save({"checkpoint/large": b"1"})
            elif method == "write" and "large" in name:
                raise OSError("above the quota")

        files.failing = fill
        with pytest.raises(OSError, match="above the quota"):
            uploader.upload()
        assert tree(target) == {}

    def test_a_checkpoint_stays_there_while_the_next_one_is_about_to_be_saved(
        self, uploader, source, target, save, keep_changing
    ):
        save(self.OLD)
        uploader.upload()
        keep_changing()
        shutil.rmtree(source / "checkpoint")
        uploader.upload(everything=False)
        assert tree(target) == self.OLD
        save(self.NEW)
        for _ in range(2):
            uploader.upload(everything=False)
        assert tree(target) == self.NEW

    @pytest.mark.parametrize("change", ["rewritten", "removed", "added"])
    def test_a_checkpoint_that_was_sent_gets_its_names_though_the_next_one_is_being_saved(
        self, uploader, source, target, save, fail_at, change
    ):
        def begin_the_next():
            if change == "removed":
                (source / "checkpoint" / "a").unlink()
            else:
                save({"checkpoint/a" if change == "rewritten" else "checkpoint/z": b"newer"})

        save(self.OLD)
        uploader.upload(everything=False)
        fail_at(1, begin_the_next)
        uploader.upload(everything=False)
        assert tree(target) == self.OLD
        uploader.upload()
        assert tree(target) == tree(source)

    def test_a_file_that_is_rewritten_just_before_it_is_sent_gets_no_name(
        self, uploader, target, save, fail_at
    ):
        save(self.OLD)
        uploader.upload(everything=False)
        fail_at(1, lambda: save({"checkpoint/b/c": b"newer"}))
        with pytest.raises(OSError, match=r"checkpoint/b/c: it was changed meanwhile"):
            uploader.upload(everything=False)
        assert not (target / "checkpoint").exists()

    def test_checkpoints_with_a_new_name_each_replace_the_former_ones_when_they_are_there(
        self, uploader, source, target, save
    ):
        saved, there = [], []
        for number in range(12):
            save({f"checkpoint/{number}/{name}": b"%d" % number for name in "ab"})
            if number:
                shutil.rmtree(source / f"checkpoint/{number - 1}")
            saved.append(tree(source))
            uploader.upload(everything=False)
            there.append(tree(target))
        assert there == [{}] * 4 + [saved[4]] * 5 + [saved[9]] * 3

    def test_folders_of_former_checkpoints_are_removed_with_their_files(
        self, uploader, source, target, save
    ):
        """A program that looks for its newest folder must not find one without files."""
        for number in (1, 2):
            save({f"checkpoint/{number}/{name}": b"1" for name in ("a", "variables/part/b")})
        uploader.upload()
        (source / "checkpoint" / "2").rename(source / "checkpoint" / "3")
        shutil.rmtree(source / "checkpoint" / "1" / "variables")
        uploader.upload()
        there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_dir()}
        folders = {"1", "3", "3/variables", "3/variables/part"}
        assert there == {"checkpoint", *(f"checkpoint/{name}" for name in folders)}
        save({"checkpoint/1/variables/part/b": b"again"})
        uploader.upload()
        assert tree(target) == tree(source)

    def test_a_folder_that_is_removed_during_a_round_stays_until_the_next_checkpoint_is_there(
        self, uploader, files, source, target, save
    ):
        """A program removes its last checkpoint, and saves the next one in its place."""
        save({"checkpoint/last/a": b"1"})
        uploader.upload()
        write(source / "stdout.log", b"a line")
        folder, away = source / "checkpoint/last", source.with_name("away")

        def move(method, name):
            if name == "stdout.log" and not away.exists():
                folder.rename(away)

        files.losing = move
        uploader.upload(everything=False)
        assert tree(target) == {"checkpoint/last/a": b"1", "stdout.log": b"a line"}
        away.rename(folder)
        uploader.upload()
        assert tree(target) == tree(source)

    @pytest.mark.parametrize("way", ["failing", "losing"])
    def test_a_folder_comes_back_whose_removal_had_no_answer(
        self, uploader, files, source, target, save, way
    ):
        def fail(method, name):
            if method == "remove":
                raise ConnectionError("no answer")

        save({"checkpoint/1/a": b"1", "checkpoint/2/a": b"1"})
        uploader.upload()
        (source / "checkpoint/1/a").unlink()
        uploader.upload()
        (source / "checkpoint/1").rmdir()
        setattr(files, way, fail)
        with pytest.raises(ConnectionError):
            uploader.upload()
        setattr(files, way, lambda method, name: None)
        save({"checkpoint/1/a": b"again"})
        uploader.upload()
        assert tree(target) == tree(source)

    def test_a_name_of_the_greatest_length_is_uploaded(self, uploader, source, target, save):
        save({f"checkpoint/{'w' * 255}": b"1"})
        uploader.upload()
        assert tree(target) == tree(source)

    def test_a_checkpoint_of_which_one_file_changes_all_the_time_waits_with_it(
        self, uploader, source, target, save
    ):
        save(self.OLD)
        for number in range(4):
            save({"checkpoint/a": b"%d" % number})
            uploader.upload(everything=False)
            assert tree(target) == {}
        uploader.upload(everything=False)
        assert tree(target) == tree(source)

    def test_the_outcome_comes_after_the_checkpoint(self, uploader, files, source, target, save):
        there = {}

        def look(method, name):
            if name == "outcome.json":
                there.update(tree(target))

        files.failing = look
        write(source / "outcome.json", b"{}")
        save(self.OLD)
        uploader.upload()
        assert there == self.OLD

    def test_a_file_missing_for_a_moment_waits_for_the_next_round(
        self, uploader, source, target, save, fail_at
    ):
        def hide():
            (source / "checkpoint" / "b").rename(source.with_name("elsewhere"))

        save(self.OLD)
        uploader.upload(everything=False)
        fail_at(0, hide)
        with pytest.raises(FileNotFoundError):
            uploader.upload(everything=False)
        source.with_name("elsewhere").rename(source / "checkpoint" / "b")
        uploader.upload(everything=False)
        assert tree(target) == self.OLD

    def test_no_file_gets_its_name_after_a_stop(self, uploader, target, save, fail_at):
        save(self.OLD)
        fail_at(1, uploader.stop)
        uploader.upload()
        assert not (target / "checkpoint").exists()


class SendingSlowly(LocalFiles):
    """Files whose source is changed by a function once the first piece is sent."""

    def __init__(self, change):
        self.change = change

    def write(self, location, source, length=None):
        sent = []
        for data in pieces(source, length):
            sent.append(data)
            if len(sent) == 1:
                self.change()
        super().write(location, b"".join(sent))


@pytest.mark.parametrize("everything", [False, True])
def test_a_file_that_is_rewritten_while_it_is_uploaded_replaces_no_whole_one(
    source, target, everything
):
    def rewrite(content):
        with path.open("r+b") as file:  # in place, and of the same size
            file.write(content * (3 << 20))
        touch(path)

    path = source / "model.h5"
    write(path, b"0" * (3 << 20))
    files = SendingSlowly(lambda: None)
    uploader = Uploader(files, source, Location.parse(target))
    uploader.upload()
    rewrite(b"1")
    uploader.upload(everything=False)
    files.change = lambda: rewrite(b"2")
    with pytest.raises(OSError, match=r"model\.h5: it was changed meanwhile"):
        uploader.upload(everything=everything)
    assert tree(target) == {"model.h5": b"0" * (3 << 20)}
    files.change = lambda: None
    for _ in range(2):
        uploader.upload(everything=False)
    assert tree(target) == {"model.h5": b"2" * (3 << 20)}


def test_a_file_that_is_replaced_since_it_was_looked_at_is_not_uploaded_in_part(
    uploader, files, source, target
):
    """Its size is that of the former file."""
    write(source / "a.json", b"1")
    write(source / "b.json", b"before")
    uploader.upload(everything=False)

    def replace(method, name):
        if name == "a.json":
            write(source / "b.json", b"longer than before")

    files.failing = replace
    with pytest.raises(OSError, match=r"b\.json: it was changed meanwhile"):
        uploader.upload(everything=False)
    assert tree(target) == {"a.json": b"1"}
    for _ in range(2):
        uploader.upload(everything=False)
    assert tree(target) == tree(source)


def test_at_the_end_everything_is_uploaded(uploader, source, target):
    write(source / "model.keras", b"model")
    uploader.upload()
    assert tree(target) == {"model.keras": b"model"}


def test_the_oldest_is_uploaded_first(uploader, files, source):
    names = ["z.log", "a.json", "m.log", "b.json", "outcome.json"]
    for name in names:
        write(source / name, name.encode())
    uploader.upload()
    assert files.named("write") == names


def test_the_outcome_comes_last_within_a_step_of_the_clock(uploader, files, source):
    names = ["outcome.json", "stdout.log", "events.out.tfevents.trial"]
    for name in names:
        write(source / name, name.encode())
        os.utime(source / name, ns=(10**9, 10**9))
    uploader.upload()
    assert files.named("write")[-1] == "outcome.json"


def test_removed_files_are_removed_from_the_store(uploader, source, target):
    for name in ("a.log", "b.json", "sub/c.json", "sub/d.log"):
        write(source / name, b"1")
    uploader.upload()
    (source / "a.log").unlink()
    shutil.rmtree(source / "sub")
    uploader.upload(everything=False)
    assert tree(target) == tree(source) == {"b.json": b"1"}


@pytest.mark.parametrize("folder", [".", "sub"])
def test_files_in_a_folder_that_cannot_be_listed_are_not_removed(
    uploader, source, target, monkeypatch, folder
):
    for name in ("a.log", "manifest.json", "sub/b.json", "sub/c.json"):
        write(source / name, b"1")
    uploader.upload()
    before = tree(target)
    (source / "sub/c.json").unlink()
    scandir = os.scandir

    def fail(path):
        if Path(path) == source / folder:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), os.fspath(path))
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fail)
        with pytest.raises(OSError, match="Too many open files"):
            uploader.upload()
    assert tree(target) == before
    uploader.upload()
    assert tree(target) == tree(source)


def test_files_that_somebody_else_removes_here_may_stay_there(files, source, target):
    """As a program that cleans the folder for temporary files, where a driver's scratch is."""
    names = ["manifest.json", "journal/000001.jsonl", "search/events.out.tfevents.1"]
    for name in names:
        write(source / name, b"1")
    uploader = Uploader(files, source, Location.parse(target), keeps=True)
    uploader.upload()
    for name in names:
        (source / name).unlink()
    write(source / "result.json", b"1")
    uploader.upload()
    assert tree(target) == dict.fromkeys([*names, "result.json"], b"1")
    uploader.drop(names[1])
    uploader.upload()
    assert tree(target) == dict.fromkeys([names[0], names[2], "result.json"], b"1")


def test_a_file_that_gets_another_name_is_there_by_that_name_alone(files, source, target):
    uploader = Uploader(files, source, Location.parse(target), keeps=True)
    write(source / ".result.json.0123456789abcdef", b"1")
    uploader.upload()
    (source / ".result.json.0123456789abcdef").rename(source / "result.json")
    uploader.upload()
    assert tree(target) == {"result.json": b"1"}


def test_nothing_is_removed_while_the_folder_itself_is_gone(uploader, source, target):
    write(source / "manifest.json", b"1")
    uploader.upload()
    source.rename(source.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        uploader.upload()
    assert tree(target) == {"manifest.json": b"1"}


def test_after_a_stop_no_further_file_is_uploaded_or_removed(uploader, files, source, target):
    for name in ("a.log", "b.log"):
        write(source / name, b"1")
    uploader.upload()
    (source / "b.log").unlink()
    for name in ("c.log", "d.log"):
        write(source / name, b"1")
    files.failing = lambda method, name: name == "c.log" and uploader.stop()
    uploader.upload()
    assert sorted(tree(target)) == ["a.log", "b.log", "c.log"]


def test_files_uploaded_without_an_answer_are_removed_too(uploader, files, source, target):
    write(source / "a.json", b"1")
    write(source / "sub/b.json", b"1")

    def lose(method, name):
        if method == "write" and name == "b.json":
            raise ConnectionError("no answer")

    files.losing = lose
    with pytest.raises(ConnectionError):
        uploader.upload()
    assert tree(target) == tree(source)
    files.losing = lambda method, name: None
    shutil.rmtree(source / "sub")
    uploader.upload()
    assert tree(target) == {"a.json": b"1"}


@pytest.mark.parametrize("way", ["removed", "replaced by a file"])
def test_a_file_comes_back_whose_removal_had_no_answer(uploader, files, source, target, way):
    def lose(method, name):
        if method == "remove":
            raise ConnectionError("no answer")

    write(source / "sub/a.tfevents.1", b"1")
    write(source / "sub/b.json", b"2")
    uploader.upload()
    (source / "sub").rename(source.with_name("elsewhere"))
    if way != "removed":
        write(source / "sub", b"3")
    files.losing = lose
    with pytest.raises(ConnectionError):
        uploader.upload()
    files.losing = lambda method, name: None
    (source / "sub").unlink(missing_ok=True)
    source.with_name("elsewhere").rename(source / "sub")
    uploader.upload()
    assert tree(target) == tree(source)
    assert len(tree(source)) == 2


def test_a_file_removed_before_it_is_uploaded_is_no_error(uploader, files, source, target):
    for name in ("a.json", "b.json", "c.log"):
        write(source / name, b"1")
    files.failing = lambda method, name: name == "a.json" and (source / name).unlink()
    uploader.upload()
    assert tree(target) == {"b.json": b"1", "c.log": b"1"}


def test_a_file_that_becomes_a_pipe_before_it_is_uploaded_hangs_no_upload(
    uploader, files, source, target
):
    for name in ("a.json", "b.json", "c.log", "d.log"):
        write(source / name, b"1")

    def replace(method, name):
        if name == "a.json" and not (source / "b.json").is_fifo():
            for other in ("b.json", "c.log"):
                (source / other).unlink()
                os.mkfifo(source / other)

    files.failing = replace
    with pytest.raises(OSError, match="no regular file"):
        uploader.upload()
    assert tree(target) == {"a.json": b"1", "d.log": b"1"}


def test_a_log_that_is_rotated_during_the_upload_continues(uploader, files, source, target):
    write(source / "a.log", b"1")
    uploader.upload()
    write(source / "a.log", b"2", "ab")
    write(source / "0.json", b"1")
    touch(source / "a.log")

    def rotate(method, name):
        if name == "0.json" and (source / "a.log").exists():
            (source / "a.log").rename(source / "a.log.1")

    files.failing = rotate
    uploader.upload()
    write(source / "a.log", b"3")
    uploader.upload()
    assert tree(target) == tree(source) == {"a.log": b"3", "a.log.1": b"12", "0.json": b"1"}


@pytest.mark.parametrize("again", [b"", b"x", b"header\nother rows, and more of them\n"])
def test_a_log_that_is_started_anew_is_not_mixed_with_the_old_one(uploader, source, target, again):
    """As Keras' CSVLogger does at each fit."""
    write(source / "training.log", b"header\nrow\n")
    uploader.upload(everything=False)
    write(source / "training.log", again)
    uploader.upload(everything=False)
    assert tree(target) == {"training.log": again}


def test_a_log_that_is_cut_off_during_an_append_is_uploaded_in_the_next_round(
    uploader, files, source, target
):
    write(source / "a.log", b"1")
    uploader.upload()
    write(source / "a.log", bytes(40 << 20), "ab")

    def cut_off(method, name):
        if method == "append":
            os.truncate(source / "a.log", 5)

    files.failing = cut_off
    with pytest.raises(OSError, match="changed meanwhile"):
        uploader.upload()
    uploader.upload()
    assert tree(target) == {"a.log": b"1" + bytes(4)}


@pytest.mark.parametrize("name", ["a.log", "a.json"])
def test_a_replaced_file_is_uploaded_whole(uploader, source, target, name):
    write(source / name, b"12345")
    uploader.upload()
    write(source / "beside", b"another, longer one")
    (source / "beside").replace(source / name)
    uploader.upload()
    assert tree(target) == {name: b"another, longer one"}


def test_a_file_may_become_a_folder_and_a_folder_a_file(uploader, source, target):
    for name in ("one", "two/a.log", "two/deep/b", "two-and-more/c"):
        write(source / name, b"1")
    uploader.upload()
    (source / "one").unlink()
    write(source / "one/a.log", b"2")
    shutil.rmtree(source / "two")
    write(source / "two", b"2")
    uploader.upload()
    assert tree(target) == tree(source)
    assert tree(source) == {"one/a.log": b"2", "two": b"2", "two-and-more/c": b"1"}


def test_links_and_special_files_stay_here(uploader, source, target, tmp_path):
    write(tmp_path / "outside" / "secret", b"secret")
    write(source / "a", b"1")
    (source / "link").symlink_to(tmp_path / "outside" / "secret")
    (source / "folder").symlink_to(tmp_path / "outside")
    (source / "nowhere").symlink_to("nothing")
    os.mkfifo(source / "pipe")
    uploader.upload(everything=False)
    uploader.upload()
    assert [path.name for path in target.rglob("*")] == ["a"]


def test_links_among_checkpoints_are_uploaded_as_what_they_lead_to(
    uploader, source, target, tmp_path
):
    handed_on = write_linked(source / "checkpoint", tmp_path / "outside")
    uploader.upload(everything=False)
    uploader.upload()
    assert tree(target / "checkpoint") == handed_on
    (source / "checkpoint" / "steps" / "501").mkdir()
    (source / "checkpoint" / "latest").unlink()
    (source / "checkpoint" / "latest").symlink_to("steps/501")
    write(source / "checkpoint" / "steps" / "501" / "state", b"501")
    uploader.upload()
    added = dict.fromkeys(["latest/state", "steps/501/state"], b"501")
    del handed_on["latest"]
    assert tree(target / "checkpoint") == handed_on | added


def test_checkpoints_behind_a_link_stay_here(uploader, source, target, tmp_path):
    write_linked(tmp_path / "outside" / "checkpoint", tmp_path / "elsewhere")
    (source / "checkpoint").symlink_to(tmp_path / "outside" / "checkpoint")
    uploader.upload()
    assert tree(target) == {}


def test_a_file_removed_from_the_store_is_not_uploaded_again(uploader, source, target):
    """As the next attempt does with the events of a lost one."""
    for name in ("events.out.tfevents.trial", "stdout.log"):
        write(source / name, b"1")
    uploader.upload()
    (target / "events.out.tfevents.trial").rename(target / "events.out.lost-events.trial")
    for _ in range(3):
        for name in ("events.out.tfevents.trial", "stdout.log"):
            write(source / name, b"2", "ab")
        uploader.upload()
    assert tree(target) == {"events.out.lost-events.trial": b"1", "stdout.log": b"1222"}


def test_a_refused_file_does_not_hold_up_the_others(uploader, files, source, target):
    for name in ("a.json", "b.log", "c/d.json", "e.json"):
        write(source / name, b"1")

    def refuse(method, name):
        if name in ("b.log", "c"):
            raise PermissionError(f"no {name}")

    files.failing = refuse
    for everything in (False, True):
        with pytest.raises(PermissionError, match="no b.log"):
            uploader.upload(everything=everything)
    assert tree(target) == {"a.json": b"1", "e.json": b"1"}
    files.failing = lambda method, name: None
    uploader.upload()
    assert tree(target) == tree(source)


def test_a_name_that_is_not_text_does_not_hold_up_the_others(uploader, source, target):
    write(source / os.fsdecode(b"a\xff.log"), b"1")
    write(source / "b.log", b"1")
    with pytest.raises(OSError, match=r"a\\udcff\.log': a name that UTF-8 cannot hold"):
        uploader.upload()
    assert [path.name for path in target.iterdir()] == ["b.log"]


def test_a_place_that_does_not_answer_is_asked_no_more_in_this_round(uploader, files, source):
    for name in ("a.log", "b.log"):
        write(source / name, b"1")

    def fail(method, name):
        raise ConnectionError("no answer")

    files.failing = fail
    for _ in range(3):
        with pytest.raises(ConnectionError, match="no answer"):
            uploader.upload()
        assert len(files.calls) == 1
        files.calls.clear()


def test_an_append_that_is_refused_makes_a_new_file(uploader, files, source, target):
    write(source / "a.log", b"1")
    uploader.upload()
    write(source / "a.log", b"2", "ab")

    def refuse(method, name):
        if method == "append":
            raise OSError("somebody else has the lease")

    files.failing = refuse
    uploader.upload(everything=False)
    assert tree(target) == {"a.log": b"12"}


@pytest.fixture
def clock(monkeypatch):
    """The uploader's clock, which stands still but for the tests."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("spark_jobs.run_folder.uploader.time", clock)
    return clock


def test_a_file_that_is_never_appended_to_is_sent_for_a_tenth_of_the_time(
    uploader, files, source, target, clock
):
    """HDFS refuses each append in an erasure-coded folder; a journal would be sent each second."""

    def take_two_seconds(method, name):
        clock.now += 2 * (method == "write")
        if method == "append":
            raise OSError("append on EC file")

    files.failing = take_two_seconds
    sent = []
    for _ in range(50):
        write(source / "a.log", b"1", "ab")
        uploader.upload(everything=False)
        sent.append(len(files.named("write")))
        clock.now += 1
    assert [index for index, count in enumerate(sent) if count] == [0, 1, 2, 20, 38]
    (source / "a.log").unlink()
    uploader.upload(everything=False)
    write(source / "a.log", b"anew")
    uploader.upload(everything=False)
    assert tree(target) == {"a.log": b"anew"}
    write(source / "a.log", b"1", "ab")
    uploader.upload()
    assert tree(target) == tree(source)


def test_a_log_that_is_rewritten_again_and_again_rests_too(uploader, files, source, clock):
    def take_a_second(method, name):
        clock.now += method == "write"

    files.failing = take_a_second
    sent = []
    for number in range(40):
        write(source / "a.log", b"%d" % number * 10)
        uploader.upload(everything=False)
        sent.append(len(files.named("write")))
        clock.now += 1
    assert [index for index, count in enumerate(sent) if count] == [0, 1, 2, 11, 20, 29, 38]


def test_a_file_rests_for_a_minute_at_most(uploader, files, source, target, clock):
    """A write may have waited for a store that did not answer."""

    def take_long(method, name):
        clock.now += 55 * (method == "write")
        if method == "append":
            raise OSError("append on EC file")

    files.failing = take_long
    for _ in range(3):
        write(source / "a.log", b"1", "ab")
        uploader.upload(everything=False)
    write(source / "a.log", b"1", "ab")
    clock.now += 59
    uploader.upload(everything=False)
    assert tree(target) == {"a.log": b"111"}
    clock.now += 1
    uploader.upload(everything=False)
    assert tree(target) == {"a.log": b"1111"}


def test_a_file_is_appended_to_in_pieces(uploader, files, source, target):
    write(source / "a.log", b"1")
    uploader.upload()
    with (source / "a.log").open("ab") as file:
        file.truncate(40 << 20)
    uploader.upload()
    sizes = [size for method, _, size in files.calls if method == "append"]
    assert sizes == [16 << 20, 16 << 20, (8 << 20) - 1]
    assert (target / "a.log").read_bytes() == (source / "a.log").read_bytes()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_thread_uploads_round_by_round_and_shows_its_trouble(files, source, target):
    def fail(method, name):
        raise ConnectionError("no answer")

    def same():
        with contextlib.suppress(FileNotFoundError):  # of a name that it has for a moment
            return target.exists() and tree(target) == tree(source)
        return False

    with Uploader(files, source, Location.parse(target), every=0.01) as uploader:
        assert uploader.trouble is None
        for number in range(3):
            write(source / "a.log", b"%d" % number, "ab")
            wait_until(same)
        files.failing = fail
        write(source / "a.log", b"3", "ab")
        wait_until(lambda: uploader.trouble == "no answer")
        files.failing = lambda method, name: None
        wait_until(lambda: uploader.trouble is None)
        assert tree(target) == tree(source) == {"a.log": b"0123"}
    assert not uploader._thread.is_alive()


def test_a_thread_continues_when_files_come_and_go(source, target):
    """Whatever a round finds in the folder, it raises errors of the target only."""
    ended, problems = threading.Event(), []

    def churn():
        for number in itertools.count():
            if ended.is_set():
                return
            folder = source / f"sub{number % 3}"
            for name in ("a.log", "b.json"):
                folder.mkdir(exist_ok=True)
                (folder / name).write_bytes(bytes(number % 50))
            if number % 2:
                shutil.rmtree(folder)

    churner = threading.Thread(target=churn)
    uploader = Uploader(LocalFiles(), source, Location.parse(target))
    churner.start()
    try:
        for _ in range(200):
            try:
                uploader.upload(everything=False)
            except OSError as error:  # of one file
                problems.append(str(error))
    finally:
        ended.set()
        churner.join()
    assert not [problem for problem in problems if "changed meanwhile" not in problem]
    uploader.upload()
    assert tree(target) == tree(source)


@pytest.mark.parametrize("name", ["b.json", "x.tfevents.1"])
@pytest.mark.parametrize("method", ["write", "append"])
def test_a_file_missing_for_a_moment_waits_for_the_next_round(source, target, name, method):
    def flicker(called, called_with):
        if called == method and called_with == name:
            path.rename(tmp := source.with_name("elsewhere"))
            try:
                path.open("rb")
            finally:
                tmp.rename(path)

    files, path = Watched(), source / name
    uploader = Uploader(files, source, Location.parse(target))
    write(path, b"a")
    if method == "append":
        uploader.upload()
        write(path, b"b", "ab")
    files.failing = flicker
    uploader.upload()
    files.failing = lambda method, name: None
    write(source / "other.log", b"c")
    uploader.upload()
    assert tree(target) == tree(source)


NAMES = st.sampled_from(["a.log", "s/b.jsonl", "s/t/x.tfevents.1", "s/c", "d.json", "s/t"])
NAMES |= st.sampled_from(["checkpoint/a", "checkpoint/s/b", "checkpoint/s"])
DATA = st.binary(max_size=6)


class AnyFolder(RuleBasedStateMachine):
    """After any changes of the folder and failures of the store, both are equal in the end."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.source, self.target = self.folder / "source", self.folder / "target"
        self.source.mkdir()
        self.files, self.good = Watched(), 0
        self.uploader = Uploader(self.files, self.source, Location.parse(self.target))

    def teardown(self):
        self.mend()
        self.uploader.upload()
        try:
            assert tree(self.target) == tree(self.source)
            assert not list(self.target.rglob("*.part"))
        finally:
            shutil.rmtree(self.folder)

    def room(self, name):
        """Return a path at which a file can be; what is in its way is removed."""
        path = self.source / name
        for parent in path.parents:
            if parent.is_file():
                parent.unlink()
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @rule(name=NAMES, data=DATA)
    def append(self, name, data):
        write(self.room(name), data, "ab")

    @rule(name=NAMES, data=DATA)
    def write_anew(self, name, data):
        write(self.room(name), data)

    @rule(name=NAMES, data=DATA)
    def replace(self, name, data):
        path = self.room(name)
        write(self.source / "beside", data)
        (self.source / "beside").replace(path)

    @rule(name=NAMES, other=NAMES)
    def rename(self, name, other):
        if (self.source / name).is_file() and name != other and not other.startswith(f"{name}/"):
            data = (self.source / name).read_bytes()
            path = self.room(other)
            if (self.source / name).is_file():
                (self.source / name).replace(path)
                assert path.read_bytes() == data

    @rule(name=NAMES, size=st.integers(0, 6))
    def cut_off(self, name, size):
        if (self.source / name).is_file():
            os.truncate(self.source / name, size)
            touch(self.source / name)

    @rule(name=NAMES)
    def remove(self, name):
        if (self.source / name).is_file():
            (self.source / name).unlink()

    @rule(name=st.sampled_from(["s", "s/t", "checkpoint", "checkpoint/s"]))
    def remove_folder(self, name):
        if (self.source / name).is_dir():
            shutil.rmtree(self.source / name)

    @rule(everything=st.booleans())
    def upload(self, everything):
        try:
            self.uploader.upload(everything=everything)
        except ConnectionError:
            assert self.good < 1000
        else:
            if everything:
                assert tree(self.target) == tree(self.source)

    @rule(calls=st.integers(0, 6), late=st.booleans())
    def break_down(self, calls, late):
        """The store answers some more calls; then it may do the work of one more."""
        self.good = calls

        def fail(method, name):
            self.good -= 1
            if self.good < 0:
                raise ConnectionError("no answer")

        self.mend()
        self.good = calls
        if late:
            self.files.losing = fail
        else:
            self.files.failing = fail

    @precondition(lambda self: self.good < 1000)
    @rule()
    def mend(self):
        self.good = 1000
        self.files.failing = self.files.losing = lambda method, name: None

    @invariant()
    def nobody_sees_half_a_file(self):
        assert not list(self.target.rglob("*.part"))


TestAnyFolder = AnyFolder.TestCase
TestAnyFolder.settings = examples(150, stateful_step_count=40)


@pytest.fixture
def on_hdfs(hdfs):
    """A function that returns `WebHdfs` and a new location there."""
    root = Location.parse(hdfs.uri + "/")
    files = WebHdfs(root, HadoopSettings(hdfs.settings(), getpass.getuser()))
    yield files, root.at(f"/uploaded-{next(_FOLDERS)}")
    files.close()


def tree_of(files, folder):
    """Return the contents of the files below a location, by path."""
    found = {}
    for status in files.listdir(folder):
        if status.is_folder:
            below = tree_of(files, status.location)
            found |= {f"{status.location.name}/{name}": data for name, data in below.items()}
        else:
            found[status.location.name] = read(files, status.location)
    return found


def test_a_folder_on_hdfs_is_as_the_one_here_while_a_datanode_is_killed_and_comes_back(
    hdfs, on_hdfs, source
):
    files, location = on_hdfs
    names, numbers = ["stdout.log", "train/events.out.tfevents.1", "model.keras"], random.Random(1)
    with Uploader(files, source, location, every=0.1) as uploader:
        for number in range(6):
            for name in names:
                write(source / name, numbers.randbytes(3 << 20), "ab")
            write(source / f"{number}.json", b"{}")
            write(source / "checkpoint" / "weights.h5", numbers.randbytes(3 << 20))
            write(source / "checkpoint" / f"{number}" / "state.json", b"{}")
            if number == 1:
                hdfs.kill("datanode1")
            elif number == 4:
                hdfs.restore()
            uploader.upload(everything=False)
        uploader.upload()
    assert tree_of(files, location) == tree(source)


@pytest.mark.parametrize("role", ["taker", "other"])
def test_an_append_on_hdfs_whose_datanode_is_killed_ends_whole(
    hdfs, on_hdfs, source, monkeypatch, role
):
    files, location = on_hdfs
    uploader, plain = Uploader(files, source, location), files._client.write
    kill, sent = once(4 << 20, lambda: hdfs.kill(datanodes(hdfs)[role])), []

    def disturbed_write(path, data, **options):
        if options.get("append"):
            sent.append(len(data))
            pieces = [data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16)]
            data = disturbed(pieces, kill)
        return plain(path, data=data, **options)

    monkeypatch.setattr(files._client, "write", disturbed_write)
    for number in range(4):
        write(source / "a.log", random.Random(number).randbytes(6 << 20), "ab")
        uploader.upload(everything=False)
    assert tree_of(files, location) == tree(source)
    assert len(hdfs.pids()) == 2
    assert sent[-2:] == [6 << 20, 6 << 20]  # it is appended to again, once there is a new file
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    assert client.status(f"{location.path}/a.log")["permission"] == "600"
    client._session.close()


def test_parts_of_files_are_not_uploaded(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / ".part-checkpoint").mkdir(parents=True)
    (source / ".part-checkpoint" / "a").write_bytes(b"1")
    (source / "b").write_bytes(b"2")
    Uploader(LocalFiles(), source, Location.parse(target)).upload()
    assert [path.name for path in target.iterdir()] == ["b"]


def test_a_refused_file_is_sent_again_only_at_the_end_or_changed(uploader, files, source):
    """It may be large, and would be sent whole in each round."""

    def refuse(method, name):
        if method == "write" and name == "a:b":
            raise OSError("invalid name")

    files.failing = refuse
    write(source / "a:b", b"1")
    for _ in range(4):  # the first one waits whether it changes
        with contextlib.suppress(OSError):
            uploader.upload(everything=False)
    assert files.named("write") == ["a:b"]
    with pytest.raises(OSError, match="invalid name"):
        uploader.upload(everything=False)
    write(source / "a:b", b"2")
    for _ in range(3):
        with contextlib.suppress(OSError):
            uploader.upload(everything=False)
    assert files.named("write") == ["a:b"]
    with pytest.raises(OSError, match="invalid name"):
        uploader.upload()
    assert files.named("write") == ["a:b"]
