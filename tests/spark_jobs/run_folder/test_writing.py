"""Folders of runs: written files arrive in the store."""

from __future__ import annotations

import contextlib
import errno
import functools
import getpass
import itertools
import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path

import hdfs as hdfs_package
import pytest

from search.errors import InvalidArgument
from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, encode
from spark_jobs.run_folder import writing
from spark_jobs.run_folder.paths import attempt_name
from spark_jobs.run_folder.renames import LIST, PARTS
from spark_jobs.run_folder.scratch import remove_left
from spark_jobs.run_folder.uploader import Uploader
from spark_jobs.run_folder.writing import hand_on_checkpoint, hide_events, run_folder, with_patience
from spark_jobs.storage import webhdfs
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.spark_jobs.run_folder.test_uploader import Watched, touch, tree, wait_until, write_linked

_FOLDERS = itertools.count()
_CONTENT = {
    "manifest.json": b"{}",
    "journal/000001.jsonl": b'{"event": 1}\n',
    "search/events.out.tfevents.trial": b"events",
    "checkpoints/model of ü.keras": b"model",
}


class Place:
    """A folder of a run in some store, and its content there."""

    def __init__(self, location, hadoop, files):
        self.location, self.hadoop, self.files = location, hadoop, files

    def tree(self, folder=None):
        """Return the contents of the files, by path."""
        found = {}
        for status in self.files.listdir(folder or self.location):
            name = status.location.path.removeprefix(f"{self.location.path}/")
            if status.is_folder:
                found |= self.tree(status.location)
            else:
                data = bytearray()
                self.files.read(status, data.extend)
                found[name] = bytes(data)
        return found


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """The folder that scratch folders are made in."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def in_place(tmp_path):
    return Place(Location.parse(tmp_path / "runs" / "of ü"), HadoopSettings(), LocalFiles())


@pytest.fixture
def client(hdfs):
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    yield client
    client._session.close()


@pytest.fixture
def on_hdfs(hdfs):
    location = Location.parse(f"{hdfs.uri}/runs/number-{next(_FOLDERS)}")
    hadoop = HadoopSettings(hdfs.settings(), getpass.getuser())
    files = WebHdfs(location, hadoop)
    yield Place(location, hadoop, files)
    files.close()


@pytest.fixture(params=["in_place", "on_hdfs"])
def place(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def uploaded(tmp_path, monkeypatch):
    """A run on HDFS whose store is a folder of this host."""
    files = Watched()
    monkeypatch.setattr(writing, "writable_files_at", lambda location, hadoop: files)
    return Place(Location.parse(f"hdfs://nn:8020{tmp_path}/store"), HadoopSettings(), files)


@pytest.fixture
def impatient(monkeypatch):
    """Calls of HDFS give up at once; later retries keep their patience."""
    monkeypatch.setattr(webhdfs.WebHdfs.__init__, "__defaults__", (0.5,))


def lengths_in(place):
    found = place.files.listdir(place.location)
    return {status.location.name: status.length for status in found}


def write(folder, content):
    for name, data in content.items():
        path = folder.path / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)


def test_written_files_are_stored_after_keep(place, scratch):
    with run_folder(place.location, place.hadoop) as folder:
        write(folder, _CONTENT)
        folder.keep(pytest.fail)
        assert place.tree() == _CONTENT
        write(folder, {"result.json": b"[]"})
        folder.keep(pytest.fail)
        assert folder.trouble is None
    assert place.tree() == {**_CONTENT, "result.json": b"[]"}
    assert os.listdir(scratch) == []


def test_the_folder_is_made(place):
    with run_folder(place.location, place.hadoop, every=0.01) as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        folder.keep(pytest.fail)
        assert place.files.status(place.location).is_folder


def test_a_run_in_a_folder_is_written_in_place(in_place, scratch):
    with run_folder(in_place.location, in_place.hadoop) as folder:
        assert str(folder.path) == in_place.location.path
        assert os.listdir(scratch) == []


def test_a_run_on_hdfs_is_private(on_hdfs, client):
    with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
        write(folder, _CONTENT)
        folder.keep(pytest.fail)
        write(folder, {"stdout.log": b"1"})
        folder.keep(pytest.fail)
    root = on_hdfs.location.path
    names = [root, *(f"{root}/{name}" for name in ("journal", "search", "checkpoints"))]
    assert {client.status(name)["permission"] for name in names} == {"700"}
    for name in (*_CONTENT, "stdout.log"):
        assert client.status(f"{root}/{name}")["permission"] == "600"


def test_a_run_on_hdfs_grows_while_it_is_written(on_hdfs):
    with run_folder(on_hdfs.location, on_hdfs.hadoop, every=0.05) as folder:
        folder.keep(pytest.fail)
        write(folder, {"trial.json": b"{}"})  # once: it would be uploaded anew
        for text in (b"1", b"12", b"123"):
            write(folder, {"stdout.log": text})
            lengths = {"stdout.log": len(text), "trial.json": 2}
            wait_until(lambda lengths=lengths: lengths_in(on_hdfs) == lengths)
        assert on_hdfs.tree() == {"stdout.log": b"123", "trial.json": b"{}"}


@pytest.mark.usefixtures("impatient")
@pytest.mark.fault(28)
def test_an_outage_of_hdfs_is_reported_and_costs_nothing(hdfs, on_hdfs, scratch):
    notes, back = [], threading.Event()

    def restart():
        hdfs.start_namenode()
        back.set()

    starter = threading.Thread(target=restart)

    def tell(message):
        notes.append(message)
        if len(notes) == 2:
            starter.start()

    with run_folder(on_hdfs.location, on_hdfs.hadoop, every=0.05) as folder:
        write(folder, {"stdout.log": b"before"})
        folder.keep(pytest.fail)
        hdfs.kill("namenode")
        write(folder, {**_CONTENT, "stdout.log": b"before and after"})
        wait_until(lambda: folder.trouble is not None)
        assert f"{on_hdfs.location}" in folder.trouble
        folder.keep(tell)
        assert back.is_set()
        starter.join()
    assert on_hdfs.tree() == {**_CONTENT, "stdout.log": b"before and after"}
    assert os.listdir(scratch) == []
    for message in notes:
        assert message.endswith("; retrying")
        assert "\n" not in message


def in_one_sentence(caught, place, folder):
    message = str(caught.value)
    assert message.startswith(
        f"not all of {place.location} is uploaded, the rest is in {folder.left}"
    )
    assert "\n" not in message
    assert "org.apache" not in message
    return message


@pytest.mark.usefixtures("impatient")
def test_an_hdfs_that_never_answers_leaves_the_files_here(hdfs, on_hdfs, monkeypatch):
    monkeypatch.setattr(time_limits, "OUTAGE", 5.0)
    notes = []
    with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
        write(folder, _CONTENT)
        hdfs.kill("namenode")
        with pytest.raises(OSError) as caught:
            folder.keep(notes.append)
        assert "no WebHDFS at" in in_one_sentence(caught, on_hdfs, folder)
        assert notes
    assert (folder.left / "manifest.json").read_bytes() == b"{}"


def test_refused_files_stay_here_and_the_rest_is_stored(hdfs, on_hdfs, client, scratch):
    client.makedirs(on_hdfs.location.path, permission="700")
    hdfs.admin("-setSpaceQuota", "40m", on_hdfs.location.path)
    model = bytes(24 << 20)
    with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
        write(folder, {"a.json": b"a", "model.keras": model, "z.json": b"z"})
        with pytest.raises(OSError) as caught:
            folder.keep(pytest.fail)
        assert "quota" in in_one_sentence(caught, on_hdfs, folder)
    assert on_hdfs.tree() == {"a.json": b"a", "z.json": b"z"}
    assert [scratch / name for name in os.listdir(scratch)] == [folder.left]
    assert (folder.left / "model.keras").read_bytes() == model
    shutil.rmtree(folder.left)


def test_stored_files_leave_nothing_here_also_after_an_error(on_hdfs, scratch):
    with pytest.raises(KeyboardInterrupt):
        with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
            write(folder, _CONTENT)
            folder.keep(pytest.fail)
            raise KeyboardInterrupt
    assert os.listdir(scratch) == []
    assert on_hdfs.tree() == _CONTENT


def test_files_that_were_not_stored_stay_here(on_hdfs, scratch):
    with pytest.raises(KeyboardInterrupt):
        with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
            write(folder, _CONTENT)
            raise KeyboardInterrupt
    assert (folder.left / "manifest.json").read_bytes() == b"{}"
    assert folder.left.parent == scratch


def test_what_is_left_is_in_a_new_folder_that_nobody_else_may_enter(on_hdfs, monkeypatch):
    """Also where it has to be copied: another file system has Spark's folders."""

    def rename(*paths):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
            write(folder, _CONTENT)
            predicted = folder.path.with_name(folder.path.name.replace("run", "left"))
            predicted.mkdir()  # by another user, who would get the files
            raise KeyboardInterrupt
    assert (folder.left / "manifest.json").read_bytes() == b"{}"
    assert folder.left.stat().st_mode & 0o077 == 0
    assert list(predicted.iterdir()) == []
    assert not folder.path.exists()


def test_files_that_can_be_left_nowhere_are_no_error(on_hdfs, monkeypatch):
    def rename(*paths):
        raise OSError(errno.EXDEV, "another file system")

    def move(*paths):
        raise shutil.Error("no space left on device")

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(shutil, "move", move)
    with run_folder(on_hdfs.location, on_hdfs.hadoop) as folder:
        write(folder, _CONTENT)
    assert (folder.path / "manifest.json").read_bytes() == b"{}"


def test_files_whose_folder_cannot_be_listed_stay_here(uploaded, scratch, monkeypatch):
    def fail(path, *, listing):
        if Path(path) == folder.path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), os.fspath(path))
        return listing(path)

    with monkeypatch.context() as patched:
        with run_folder(uploaded.location, uploaded.hadoop) as folder:
            write(folder, _CONTENT)
            for name in ("listdir", "scandir"):
                patched.setattr(os, name, functools.partial(fail, listing=getattr(os, name)))
            with pytest.raises(OSError, match="Too many open files") as caught:
                folder.keep(pytest.fail)
            in_one_sentence(caught, uploaded, folder)
    remove_left()
    assert os.listdir(scratch) == [folder.left.name]
    assert (folder.left / "manifest.json").read_bytes() == b"{}"


def test_an_unknown_store_leaves_nothing_here(scratch):
    with pytest.raises(InvalidArgument):
        with run_folder(Location.parse("hdfs:///runs"), HadoopSettings()):
            raise AssertionError
    assert os.listdir(scratch) == []


def test_a_run_that_gets_another_owner_during_the_last_upload_is_written_to_no_more(
    uploaded, scratch
):
    def lose(method, name):
        if method == "write":
            folder.abandon()
            raise ConnectionError("no answer")

    uploaded.files.failing = lose
    with run_folder(uploaded.location, uploaded.hadoop) as folder:
        write(folder, _CONTENT)
        folder.keep(pytest.fail)
        assert len(uploaded.files.named("write")) == 1
    assert os.listdir(scratch) == []


def test_attempts_before_disappear_from_tensorboard_and_keep_their_data(place):
    with run_folder(place.location, place.hadoop) as folder:
        for number in (1, 3, 4):  # the second never began
            name = attempt_name(7, number)
            write(
                folder,
                {
                    f"{name}/events.out.tfevents.trial": b"%d" % number,
                    f"{name}/train/a.tfevents.2.host": b"train",
                    f"{name}/stdout.log": b"said",
                },
            )
        write(folder, {f"{attempt_name(8)}/events.out.tfevents.trial": b"other"})
        folder.keep(pytest.fail)
        for _ in range(2):
            hide_events(place.files, place.location, 7, 4)
        folder.keep(pytest.fail)
    found = place.tree()
    assert {name for name in found if "tfevents" in name} == {
        "trials/000007-4/events.out.tfevents.trial",
        "trials/000007-4/train/a.tfevents.2.host",
        "trials/000008/events.out.tfevents.trial",
    }
    assert found["trials/000007/events.out.lost-events.trial"] == b"1"
    assert found["trials/000007-3/train/a.lost-events.2.host"] == b"train"
    assert found["trials/000007-3/stdout.log"] == b"said"


def test_an_attempt_after_one_that_wrote_a_file_named_checkpoint_starts_from_scratch(
    place, tmp_path
):
    with run_folder(place.location, place.hadoop) as folder:
        # As tf.train.CheckpointManager does in the trial's folder.
        write(folder, {f"{attempt_name(7)}/checkpoint": b"model_checkpoint_path: 'ckpt-1'"})
        folder.keep(pytest.fail)
        to = tmp_path / "attempt" / "checkpoint"
        hand_on_checkpoint(place.files, place.location, Attempt(Trial(7, {}), 2), to)
    assert not to.exists()


def test_the_trained_epochs_of_the_same_trial_come_with_its_checkpoint(place, tmp_path):
    with run_folder(place.location, place.hadoop) as folder:
        for trial, number in ((6, 1), (7, 1), (7, 2)):  # attempt 2 was lost before it had saved
            write(
                folder,
                {f"{attempt_name(trial, number)}/keras-epochs.jsonl": b"%d-%d" % (trial, number)},
            )
        for trial in (6, 7):
            write(folder, {f"{attempt_name(trial)}/checkpoint/state": b"%d" % trial})
        folder.keep(pytest.fail)

        def given(trial, number):
            to = tmp_path / f"{trial.id}-{number}"
            hand_on_checkpoint(
                place.files, place.location, Attempt(trial, number), to / "checkpoint"
            )
            return {path.name: path.read_bytes() for path in to.rglob("*") if path.is_file()}

        own, from_parent = given(Trial(7, {}, parent=6), 3), given(Trial(8, {}, parent=6), 1)
    assert own == {"state": b"7", "keras-epochs.jsonl": b"7-1"}
    assert from_parent == {"state": b"6"}


def test_links_among_checkpoints_are_handed_on_by_every_store(place, tmp_path):
    to = tmp_path / "to" / "checkpoint"
    with run_folder(place.location.below(attempt_name(7)), place.hadoop) as folder:
        handed_on = write_linked(folder.path / "checkpoint", tmp_path / "outside")
        folder.keep(pytest.fail)
    hand_on_checkpoint(place.files, place.location, Attempt(Trial(7, {}), 2), to)
    assert {name: (to / name).read_bytes() for name in handed_on} == handed_on


def test_a_checkpoint_is_handed_on_beside_something_else_of_the_name_of_its_epochs(tmp_path):
    attempt = tmp_path / "run" / "trials" / "000007"
    (attempt / "checkpoint").mkdir(parents=True)
    (attempt / "checkpoint" / "state").write_bytes(b"7")
    (attempt / "keras-epochs.jsonl").mkdir()
    to = tmp_path / "to" / "checkpoint"
    to.parent.mkdir()
    root = Location.parse(tmp_path / "run")
    hand_on_checkpoint(LocalFiles(), root, Attempt(Trial(7, {}), 2), to)
    assert (to / "state").read_bytes() == b"7"


class TestCheckpoints:
    """The checkpoint folder that an attempt resumes from."""

    @pytest.fixture
    def keep(self, in_place):
        """Write the checkpoint of an attempt, and return the one that another attempt gets."""

        def keep(trial, number, **content):
            folder = Path(in_place.location.path, attempt_name(trial, number), "checkpoint")
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in content.items():
                path = folder / name.replace("__", "/").replace("_", ".")
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)

        return keep

    @pytest.fixture
    def given(self, in_place, tmp_path):
        def given(trial, number, parent=None, *, begun=True, **arguments):
            attempt = Attempt(Trial(trial, {}, parent=parent), number)
            name = attempt_name(trial, number)
            if begun:
                Path(in_place.location.path, name).mkdir(parents=True, exist_ok=True)
            to = tmp_path / "given" / name / "checkpoint"
            hand_on_checkpoint(in_place.files, in_place.location, attempt, to, **arguments)
            if not to.exists():
                return {}
            files = [path for path in to.rglob("*") if path.is_file()]
            return {path.relative_to(to).as_posix(): path.read_bytes() for path in files}

        return given

    def test_the_checkpoint_of_other_hyperparameters_is_not_handed_on(self, keep, given, in_place):
        """The journal had lost its end, so that another trial got the number."""
        for number, params in ((1, {}), (2, {"rate": 0.9})):
            keep(7, number, model_keras=b"of attempt %d" % number)
            folder = Path(in_place.location.path, attempt_name(7, number))
            (folder / "trial.json").write_bytes(encode(Attempt(Trial(7, params), number)))
        assert given(7, 3) == {"model.keras": b"of attempt 1"}

    def test_a_first_attempt_without_a_parent_starts_from_scratch(self, keep, given):
        keep(6, 1, model_keras=b"of another")
        assert given(7, 1) == {}
        keep(7, 2, model_keras=b"of a later attempt")
        assert given(7, 1) == {}

    def test_a_later_attempt_resumes_from_the_one_before(self, keep, given):
        keep(7, 1, model_keras=b"1", state__optimizer_bin=b"1")
        assert given(7, 2) == {"model.keras": b"1", "state/optimizer.bin": b"1"}

    def test_the_newest_checkpoint_of_the_trial_counts(self, keep, given):
        for number in range(1, 12):
            keep(7, number, model_keras=b"%d" % number)
        assert given(7, 12) == {"model.keras": b"11"}
        assert given(7, 11) == {"model.keras": b"10"}
        assert given(7, 3) == {"model.keras": b"2"}

    def test_checkpoints_of_the_trial_come_before_those_of_its_parent(self, keep, given):
        keep(3, 1, model_keras=b"of the parent")
        keep(7, 1, model_keras=b"its own")
        assert given(7, 2, parent=3) == {"model.keras": b"its own"}

    def test_checkpoints_of_the_parent_alone_are_handed_on_if_told_so(self, keep, given):
        keep(3, 1, model_keras=b"of the parent")
        keep(7, 1, model_keras=b"its own")
        assert given(7, 2, parent=3, from_parent=True) == {"model.keras": b"of the parent"}
        assert given(7, 3, from_parent=True) == {}

    def test_a_first_attempt_begins_with_the_parents_newest_checkpoint(self, keep, given):
        keep(3, 1, model_keras=b"1")
        keep(3, 2, model_keras=b"2")
        assert given(7, 1, parent=3) == {"model.keras": b"2"}

    def test_a_parent_without_a_checkpoint_leads_to_an_empty_folder(self, in_place, given):
        Path(in_place.location.path, attempt_name(3)).mkdir(parents=True)
        assert given(7, 1, parent=3) == {}
        assert given(8, 1, parent=4) == {}

    @pytest.mark.parametrize("partly", [{}, {"_part-1": b"half"}, {"a___part-1": b"half"}])
    def test_attempts_without_a_whole_file_are_skipped(self, keep, given, partly):
        """Attempts that never started, that stored nothing, or whose host was lost meanwhile."""
        keep(3, 1, model_keras=b"of the parent")
        keep(7, 1, model_keras=b"1")
        keep(7, 3, **partly)
        assert given(7, 5) == {"model.keras": b"1"}
        keep(8, 1, **partly)
        assert given(8, 2, parent=3) == {"model.keras": b"of the parent"}

    def test_parts_of_files_stay_behind(self, keep, given):
        parts = {"_part-1": b"half", "sub___part-1": b"half"}
        keep(7, 1, model_keras=b"whole", **parts)
        assert given(7, 2) == {"model.keras": b"whole"}

    @pytest.mark.parametrize("parent", [None, 3])
    def test_an_attempt_whose_folder_is_not_there_yet(self, keep, given, parent):
        """On HDFS it is made by the first round of uploading."""
        keep(3, 1, model_keras=b"of the parent")
        assert given(7, 2, parent, begun=False) == (
            {} if parent is None else {"model.keras": b"of the parent"}
        )
        keep(7, 1, model_keras=b"1")
        assert given(7, 2, parent, begun=False) == {"model.keras": b"1"}

    def test_a_run_without_a_stored_file(self, given):
        assert given(7, 2, begun=False) == {}
        assert given(7, 1, parent=3, begun=False) == {}

    def test_the_checkpoint_folder_is_a_copy(self, keep, given, in_place, tmp_path):
        keep(7, 1, model_keras=b"1")
        given(7, 2)
        copy = tmp_path / "given" / attempt_name(7, 2) / "checkpoint" / "model.keras"
        copy.write_bytes(b"2")
        source = Path(in_place.location.path, attempt_name(7, 1), "checkpoint", "model.keras")
        assert source.read_bytes() == b"1"
        assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700

    @pytest.mark.parametrize(("scheme", "handed_on"), [("file", True), ("hdfs", False)])
    def test_folders_without_files_are_handed_on_only_where_nothing_is_uploaded(
        self, keep, in_place, tmp_path, scheme, handed_on
    ):
        """An upload makes folders first, and a host may be lost before their files come."""
        keep(7, 1, steps__state=b"1")
        Path(in_place.location.path, attempt_name(7, 1), "checkpoint/steps/2/a").mkdir(parents=True)
        copy = tmp_path / "given"
        root = Location(scheme, "", in_place.location.path)
        hand_on_checkpoint(in_place.files, root, Attempt(Trial(7, {}), 2), copy)
        assert tree(copy) == {"steps/state": b"1"}
        assert (copy / "steps/2/a").is_dir() == (copy / "steps/2").is_dir() == handed_on

    def test_links_among_checkpoints_are_handed_on_as_links(self, in_place, tmp_path):
        folder = Path(in_place.location.path, attempt_name(7), "checkpoint")
        handed_on = write_linked(folder, tmp_path / "outside")
        (folder / "current").symlink_to("latest")
        (folder / "of-attempt").symlink_to("../../000007/checkpoint/steps")
        copy = Path(in_place.location.path, attempt_name(7, 2), "checkpoint")
        attempt = Attempt(Trial(7, {}), 2)
        hand_on_checkpoint(in_place.files, in_place.location, attempt, copy)
        links = {path for path in copy.rglob("*") if path.is_symlink()}
        assert {path.relative_to(copy).as_posix(): os.readlink(path) for path in links} == {
            "absolute": "steps/500/state",
            "current": "latest",
            "latest": "steps/500/state",
            "steps/last": "500",
        }
        assert tree(copy) == {"steps/500/state": b"500"}
        assert {name: (copy / name).read_bytes() for name in handed_on} == handed_on

    def test_a_program_puts_a_new_link_in_the_place_of_the_one_before(
        self, keep, given, in_place, tmp_path
    ):
        keep(7, 1, steps__500=b"500")
        folder = Path(in_place.location.path, attempt_name(7), "checkpoint")
        (folder / "latest").symlink_to("steps")
        given(7, 2)
        copy = tmp_path / "given" / attempt_name(7, 2) / "checkpoint"
        os.symlink("other", copy / "new")
        os.replace(copy / "new", copy / "latest")
        assert os.readlink(copy / "latest") == "other"

    def test_a_link_that_changes_while_it_is_handed_on_leads_to_a_checkpoint(
        self, keep, given, in_place, monkeypatch
    ):
        def update(mirror):
            changed = updates(mirror)
            if changed and not os.path.lexists(folder / "steps" / "501"):  # a save, meanwhile
                keep(7, 1, steps__501=b"501")
                (folder / "latest").unlink()
                (folder / "latest").symlink_to("steps/501")
                (folder / "steps" / "500").unlink()
            return changed

        updates = writing.Mirror.update
        keep(7, 1, steps__500=b"500")
        folder = Path(in_place.location.path, attempt_name(7), "checkpoint")
        (folder / "latest").symlink_to("steps/500")
        monkeypatch.setattr(writing.Mirror, "update", update)
        assert given(7, 2) == {"steps/501": b"501", "latest": b"501"}

    def test_pipes_and_sockets_stay_behind(self, keep, given, in_place):
        """As on HDFS; a train function may have left them."""
        keep(7, 1, model_keras=b"1", state__optimizer_bin=b"1")
        folder = Path(in_place.location.path, attempt_name(7), "checkpoint")
        os.mkfifo(folder / "state" / "pipe")
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(folder):
            server.bind("socket")
            assert given(7, 2) == {"model.keras": b"1", "state/optimizer.bin": b"1"}

    def test_an_unreadable_checkpoint_is_an_error(self, keep, given, in_place, monkeypatch):
        def refused(status, sink, offset=0):
            raise PermissionError(str(status.location))

        keep(7, 1, model_keras=b"1")
        monkeypatch.setattr(in_place.files, "read", refused)
        with pytest.raises(OSError, match="model.keras"):
            given(7, 2)

    @pytest.fixture
    def write_meanwhile(self, in_place, keep, monkeypatch):
        """Let an attempt at trial 7 write its checkpoint before each time that it is read."""
        read = in_place.files.read

        def write_meanwhile(number, contents):
            def read_late(status, sink, offset=0):
                if attempt_name(7, number) in status.location.path:
                    for content in itertools.islice(contents, 1):
                        keep(7, number, model_keras=content)
                read(status, sink, offset)

            monkeypatch.setattr(in_place.files, "read", read_late)

        return write_meanwhile

    @pytest.mark.parametrize("again", [b"longer than before", b"short"])
    def test_a_checkpoint_that_is_written_meanwhile_is_copied_again(
        self, keep, given, write_meanwhile, again
    ):
        keep(7, 1, model_keras=b"before")
        write_meanwhile(1, iter([again]))
        assert given(7, 2) == {"model.keras": again}

    @pytest.mark.parametrize("name", ["state.jsonl", "train.log", "tfevents-model/x.h5"])
    @pytest.mark.parametrize("again", [b"2222", b"22222222"])
    def test_a_checkpoint_that_is_rewritten_meanwhile_is_not_mixed_whatever_its_name(
        self, in_place, given, monkeypatch, name, again
    ):
        """Train functions rewrite checkpoints in place, also those that end as a log does."""

        def read_first(status, sink, offset=0):
            read(status, sink, offset)
            if path.read_bytes() == b"1111":
                path.write_bytes(again)
                touch(path)

        read = in_place.files.read
        monkeypatch.setattr(in_place.files, "read", read_first)
        path = Path(in_place.location.path, attempt_name(7), "checkpoint", name)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1111")
        assert given(7, 2) == {name: again}

    def test_a_checkpoint_that_is_written_all_the_time_is_not_used(
        self, keep, given, write_meanwhile
    ):
        keep(7, 1, model_keras=b"1")
        keep(7, 2, model_keras=b"2")
        write_meanwhile(2, (bytes(length) for length in itertools.count(2)))
        assert given(7, 3) == {"model.keras": b"1"}


def test_events_behind_a_link_are_not_hidden(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").touch()
    attempt = tmp_path / "run" / "trials" / "000001"
    attempt.mkdir(parents=True)
    (attempt / "data").symlink_to(elsewhere)
    (attempt / "loop").symlink_to(attempt)
    (attempt / "events.out.tfevents.2").touch()
    hide_events(LocalFiles(), Location.parse(tmp_path / "run"), 1, 2)
    assert [path.name for path in elsewhere.iterdir()] == ["events.out.tfevents.1"]
    assert (attempt / "events.out.lost-events.2").exists()


def test_patience_starts_with_the_first_error_and_ends_in_a_hurry():
    notes = []

    def away():
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        with_patience(away, notes.append, hurry=lambda: len(notes) == 1)
    assert notes == ["away; retrying"]
    answers = iter([ConnectionError("away"), 5])

    def comes_back():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert with_patience(comes_back, notes.append) == 5


@pytest.mark.parametrize("lost", [False, True])
def test_a_checkpoint_whose_upload_was_not_finished_does_not_hide_the_one_before(tmp_path, lost):
    """An attempt uploads what it resumes from, too, and may be lost meanwhile."""

    def end(method, name):
        if method == "write" and next(written) == 1:
            if lost:
                raise ConnectionError("away")
            uploader.stop()

    root, files, written = Location.parse(tmp_path / "run"), Watched(), itertools.count()
    first = tmp_path / "run" / attempt_name(7) / "checkpoint"
    first.mkdir(parents=True)
    for name in ("weights", "state", "notes"):
        (first / name).write_bytes(name.encode())
    source = tmp_path / "second"
    shutil.copytree(first, source / "checkpoint")
    uploader = Uploader(files, source, root.below(attempt_name(7, 2)))
    files.failing = end
    with contextlib.suppress(ConnectionError):
        uploader.upload()
    to = tmp_path / "third" / "checkpoint"
    hand_on_checkpoint(LocalFiles(), root, Attempt(Trial(7, {}), 3), to)
    assert {path.name for path in to.iterdir()} == {"weights", "state", "notes"}


def test_an_incomplete_checkpoint_is_ignored(tmp_path):
    class Lost(LocalFiles):
        left = 1

        def read(self, status, sink, offset=0):
            if self.left == 0:
                raise ConnectionError("away")
            self.left -= 1
            super().read(status, sink, offset)

    before = tmp_path / "run" / attempt_name(3) / "checkpoint"
    before.mkdir(parents=True)
    (before / "a").write_bytes(b"1")
    (before / "b").write_bytes(b"2")
    root, files = Location.parse(tmp_path / "run"), Lost()
    to = tmp_path / "run" / attempt_name(3, 2) / "checkpoint"
    to.parent.mkdir()
    with pytest.raises(ConnectionError):
        hand_on_checkpoint(files, root, Attempt(Trial(3, {}), 2), to)
    assert not to.exists()
    files.left = 5
    hand_on_checkpoint(files, root, Attempt(Trial(3, {}), 2), to)
    assert {path.name for path in to.iterdir()} == {"a", "b"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ('{"0-b": "checkpoint/b"}', {"a": b"new", "b": b"new"}),
        ('{"0-b": "checkpoint/b", "1-a": "checkpoint/a"}', {"a": b"new", "b": b"new"}),  # moved
        ('{"0-b": "checkpoint/../../../stolen"}', {"a": b"new", "b": b"old"}),
        ('{"0-b": "beside"}', {"a": b"new", "b": b"old"}),
        ('{"../trial.json": "checkpoint/b"}', {"a": b"new", "b": b"old"}),
        ("[1]", {"a": b"new", "b": b"old"}),
        ("{", {"a": b"new", "b": b"old"}),
        ('{"\udcff": "a"}', {"a": b"new", "b": b"old"}),  # no UTF-8
    ],
)
def test_the_renames_that_a_lost_host_has_begun_are_finished(tmp_path, names, expected):
    attempt = tmp_path / attempt_name(3, 1)
    for name, content in {
        "checkpoint/a": "new",
        "checkpoint/b": "old",
        f"{PARTS}/0-b": "new",
        f"{PARTS}/{LIST}": names,
    }.items():
        path = attempt / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(content))
    to = tmp_path / "checkpoint"
    hand_on_checkpoint(LocalFiles(), Location.parse(tmp_path), Attempt(Trial(3, {}), 2), to)
    assert tree(to) == expected
    assert not (tmp_path / "stolen").exists()
