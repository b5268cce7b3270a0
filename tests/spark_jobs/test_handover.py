"""Files that pass secrets to slots: permissions, refusals, removal."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import stat
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from spark_jobs import handover as module
from spark_jobs.channel.file_channel import FileChannelAddress
from spark_jobs.channel.grpc_channel import Address
from spark_jobs.doctor.examination import Access, Examination, examination_function
from spark_jobs.handover import handover
from spark_jobs.messages import encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot.closure import Shared, slot_function
from spark_jobs.slot.config import SlotConfig
from spark_jobs.slot.host import host_name, not_lent
from spark_jobs.slot.problems import PROBLEM
from spark_jobs.storage.local_files import open_new
from spark_jobs.storage.locations import Location
from spark_jobs.trial.context import DataSettings
from spark_jobs.trial.trial_process import Program
from tests import ROOT

TOKEN, KEY, CERTIFICATE = "token of this run", "key of this run", "certificate of this run"
ADDRESS = Address(
    target="host:1",
    token=TOKEN,
    certificate=CERTIFICATE,
    mailbox=FileChannelAddress("file:/run/mailbox", KEY),
)


class Broadcasting:
    """A session that lends bytes as a broadcast does, and nothing else."""

    class Value:
        def __init__(self, value):
            self.value = value

        def __reduce__(self):
            return (str, ("a number",))

    def __init__(self):
        self.lent = []

    @contextlib.contextmanager
    def shared(self, data):
        self.lent.append(data)
        yield Broadcasting.Value(data)


@pytest.fixture
def session():
    return Broadcasting()


@pytest.fixture
def root(tmp_path):
    return Location.parse(tmp_path / "run of ü")


def files_of(root):
    return [path for path in RunPaths(Path(root.path)).secrets.rglob("*") if path.is_file()]


def travelled(lent):
    """Return a `Lent` as an executor gets it."""
    return pickle.loads(cloudpickle.dumps(lent))


def test_secrets_are_in_files_of_their_user_only(session, root):
    with handover(session, root, b"function") as lender:
        secrets = [lender.lend(b"first"), lender.lend(b"second")]
        assert [travelled(lent)() for lent in secrets] == [b"first", b"second"]
        assert travelled(lender.function)() == b"function"
        folder = RunPaths(Path(root.path)).secrets
        found = [folder, *folder.rglob("*")]
        modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}
        assert modes == {(True, 0o700), (False, 0o600)}
    assert not folder.exists()
    assert session.lent == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_files_are_removed_however_a_search_ends(session, root, error):
    with pytest.raises(error), handover(session, root, b"function"):
        assert files_of(root)
        raise error
    assert list(Path(root.path).iterdir()) == []


def test_files_of_a_killed_driver_are_removed_by_the_next(session, root):
    killed = handover(session, root, b"function")
    old = killed.__enter__().lend(b"old")
    with handover(session, root, b"function") as lender:
        with pytest.raises(FileNotFoundError):
            old()
        new = lender.lend(b"new")
        killed.__exit__(None, None, None)  # one that was suspended, and wakes up
        assert new() == b"new"
        assert len(files_of(root)) == 2
    assert list(Path(root.path).iterdir()) == []


def config_of(root):
    program = Program(function=b"", key=None, direction="max")
    return SlotConfig(
        address=ADDRESS,
        root=str(root),
        program=program,
        isolation="process",
        timeout=None,
        grace=1.0,
        spark_assigns_gpus=False,
        as_text=(),
        echo=False,
    )


def test_closures_of_slots_hold_no_secret(session, root):
    config = config_of(root)
    examination = Examination(
        number=1,
        key="key",
        folder=str(root),
        content="content",
        data="",
        modules=(),
        assigns_gpus=False,
        has_function=True,
        timeout=9.0,
    )
    with handover(session, root, b"the train function") as lender:
        access = lender.lend(encode(Access(ADDRESS, DataSettings())))
        closures = [
            slot_function(7, lender.lend(encode(config)), lender.function, [], Shared()),
            examination_function(examination, access, lender.function, []),
        ]
        for closure in map(cloudpickle.dumps, closures):
            for secret in (TOKEN, KEY, CERTIFICATE, "the train function"):
                assert secret.encode() not in closure
        lying = b"".join(path.read_bytes() for path in files_of(root))
        for secret in (TOKEN, KEY, CERTIFICATE, "the train function"):
            assert secret.encode() in lying


def open_to_others(path):
    file = open_new(path)
    path.chmod(0o755)
    return file


@pytest.mark.parametrize("place", ["hdfs://cluster/run", "a file system without modes"])
def test_secrets_go_through_spark_if_files_cannot_protect_them(session, root, place, monkeypatch):
    if place.startswith("hdfs"):
        root = Location.parse(place)
    else:  # such as those that stand for a bucket, where all files have one mode
        monkeypatch.setattr(module, "open_new", open_to_others)
    with handover(session, root, b"function") as lender:
        assert session.lent == [b"function"]
        assert travelled(lender.lend(b"secret"))() == b"secret"
        assert lender.function() == b"function"
        assert root.scheme == "hdfs" or list(Path(root.path).iterdir()) == []


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_no_secret_is_written_to_a_file_of_another_process(session, root, make):
    """As of one that can write to the run's folder, and knows the next file's name."""
    with handover(session, root, b"function") as lender:
        [function] = files_of(root)
        make(function.with_name("2"))
        with pytest.raises(FileExistsError):
            lender.lend(b"secret")
    assert session.lent == []


def test_no_secret_is_written_to_a_file_that_others_can_read(session, root, monkeypatch):
    with handover(session, root, b"function") as lender:
        monkeypatch.setattr(module, "open_new", open_to_others)
        with pytest.raises(PermissionError, match="others can read it") as caught:
            lender.lend(b"secret")
        [path] = [path for path in files_of(root) if path.read_bytes() != b"function"]
        assert path.read_bytes() == b""
        assert str(path) in str(caught.value)


@pytest.fixture
def lent(session, root):
    """A secret that a driver has lent, and its file."""
    with handover(session, root, b"function") as lender:
        secret = lender.lend(b"a secret")
        [path] = [path for path in files_of(root) if path.read_bytes() == b"a secret"]
        yield secret, path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601])
def test_a_file_that_is_open_to_others_is_refused(lent, mode):
    secret, path = lent
    path.chmod(mode)
    got = re.escape(f"{path}: expected mode 600, got {mode:o}, so others")
    with pytest.raises(PermissionError, match=got):
        secret()


def test_another_content_is_refused(lent):
    secret, path = lent
    path.write_bytes(b"a Secret")
    with pytest.raises(OSError, match="its content is not the driver's"):
        secret()


def test_a_link_is_refused(lent, tmp_path):
    secret, path = lent
    path.rename(tmp_path / "same content")
    path.symlink_to(tmp_path / "same content")
    with pytest.raises(OSError, match=re.escape(str(path))) as caught:
        secret()
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_anything_but_a_file_is_refused_at_once(lent, make):
    secret, path = lent
    path.unlink()
    make(path)
    with pytest.raises(OSError, match="expected a file|Is a directory"):
        secret()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_a_stranger_is_refused(lent):
    secret, path = lent
    os.chown(path, 61234, 61234)
    with pytest.raises(PermissionError, match=f"of user {os.geteuid()}, got 61234's"):
        secret()
    os.chown(path, 65534, 65534)  # an owner who has no number here
    assert secret() == b"a secret"


def test_the_message_of_a_host_that_cannot_read(lent, root):
    secret, path = lent
    path.chmod(0o644)
    with pytest.raises(PermissionError) as refused:
        secret()
    assert not_lent(refused.value).startswith("cannot read the driver's files for slots: ")
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        secret()
    assert not_lent(missing.value) == (
        f"does not see the folder {root} of the driver; give logdir a shared folder or hdfs://..."
    )


def test_a_slot_without_access_to_the_secrets_fails_at_once_with_its_host(session, root):
    """Spark passes on an error of a task at once, but results when all tasks have ended."""
    with handover(session, root, b"function") as lender:
        config = lender.lend(encode(config_of(root)))
        slot = travelled(slot_function(7, config, lender.function, [], Shared()))
    with pytest.raises(RuntimeError) as caught:
        list(slot(iter(())))
    assert str(caught.value) == (
        f"{PROBLEM}host {host_name()} does not see the folder {root} of the driver; "
        "give logdir a shared folder or hdfs://..."
    )


@pytest.mark.parametrize("package", ["search", "spark_jobs"])
@pytest.mark.parametrize("make", [slot_function, examination_function])
def test_a_file_that_hides_a_package_on_an_executor_is_named(
    session, root, tmp_path, make, package
):
    """As one that was shipped there: Spark puts what it ships first on Python's path."""
    hiding = tmp_path / f"{package}.py"
    hiding.write_text("")
    with handover(session, root, b"function") as lender:
        access = lender.lend(b"{}")
        first, *last = (7, Shared()) if make is slot_function else (b"{}",)
        closure = cloudpickle.dumps(make(first, access, lender.function, [str(ROOT)], *last))
    (tmp_path / "closure").write_bytes(closure)
    code = "import pickle; list(pickle.load(open('closure', 'rb'))(iter(())))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"RuntimeError: {PROBLEM}Python ")
    assert last.endswith(
        f": {hiding} hides the package {package!r} of the framework, or is of another version; "
        "rename it if it is yours, or install the driver's version on every executor"
    )


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("no such block"),
        FileNotFoundError(2, "No such file or directory", "/tmp/spark-1/broadcast-2/tmp3"),
        FileNotFoundError(2, "No such file or directory", 3),
        FileNotFoundError(2, "No such file or directory", "secrets"),
    ],
)
def test_a_file_that_is_missing_elsewhere_names_no_folder_of_a_run(error):
    assert not_lent(error) == f"cannot read the driver's files for slots: {error}"
