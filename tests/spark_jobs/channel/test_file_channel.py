"""The channel through files: of this host, and of a real HDFS."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from spark_jobs import time_limits
from spark_jobs.channel import file_channel
from spark_jobs.channel.connecting import connect
from spark_jobs.channel.credentials import Seal
from spark_jobs.channel.exchange import ChannelLost, ChannelRefused, Cut
from spark_jobs.channel.file_channel import FileChannelAddress, FileChannelClient, FileChannelServer
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.messages import LARGEST_MESSAGE, Heard, Hello, Next, Stop, Wait, as_json, encode
from spark_jobs.storage.files import PART
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from tests.experiment.waiting import wait_until
from tests.spark_jobs.channel.channel_contract import (
    ATTEMPT,
    OUTCOME,
    REPORTS,
    ChannelContract,
    Script,
    Working,
)

LOOPBACK = "127.0.0.1"
HERE = HadoopSettings()
_FOLDERS = itertools.count()


@contextlib.contextmanager
def opened_at(root, hadoop, handler):
    """Yield a server, a function that connects a slot to it, and its mailbox."""
    with (
        ChannelServer(LOOPBACK, handler) as server,
        FileChannelServer(server, root.below("mailbox"), hadoop) as box,
    ):
        yield server, lambda slot: FileChannelClient(box.address, slot, hadoop), box


@pytest.fixture
def run(tmp_path):
    """A run's folder, with a name that has to be quoted."""
    folder = tmp_path / "run ü 'quoted'"
    folder.mkdir()
    return folder


@pytest.fixture
def opened(run):
    """A function of a handler: see `opened_at`."""
    return lambda handler: opened_at(Location.parse(run), HERE, handler)


def without_box(open_):
    @contextlib.contextmanager
    def opened(handler):
        with open_(handler) as (server, connect, _):
            yield server, connect

    return opened


class TestFileChannel(ChannelContract):
    @pytest.fixture
    def opened(self, tmp_path):
        numbers = itertools.count()

        def open_(handler):
            run = tmp_path / f"run {next(numbers)}"
            run.mkdir()
            return opened_at(Location.parse(run), HERE, handler)

        return without_box(open_)


@pytest.mark.slow
@pytest.mark.contract
class TestMailboxOnHdfs(ChannelContract):
    @pytest.fixture
    def opened(self, hdfs, monkeypatch):
        monkeypatch.setattr(file_channel, "_LISTING_ON_HDFS", 0.02)
        monkeypatch.setattr(file_channel, "_LONGEST_PAUSE_ON_HDFS", 0.1)
        hadoop = HadoopSettings(hdfs.settings(), getpass.getuser())

        def open_(handler):
            root = Location.parse(f"{hdfs.uri}/tmp/mailbox ü/{next(_FOLDERS)}")
            return opened_at(root, hadoop, handler)

        return without_box(open_)


@pytest.fixture
def impatient(monkeypatch):
    """Slots repeat messages that are not answered within about a second."""
    monkeypatch.setattr(time_limits, "MAILBOX_WAIT", 0.2)
    monkeypatch.setattr(time_limits, "MAILBOX_ANSWER", 1.0)


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def request_in(folder):
    """Return the only request, once it has its final name."""
    wait_until(lambda: any(not path.name.startswith(PART) for path in files_below(folder)))
    (request,) = files_below(folder)
    return request


def folders_of(box):
    folder = Path(box.address.folder)
    return folder / "requests", folder / "answers"


def test_nothing_is_left_of_messages_nor_of_the_mailbox(opened, run):
    with opened(Script(ATTEMPT, Stop())) as (_, connect, _), connect("1.0.0") as slot:
        assert slot.next() == ATTEMPT
        wait_until(lambda: files_below(run) == [])
        assert slot.next(2, OUTCOME) is None
        wait_until(lambda: files_below(run) == [])
    assert list(run.iterdir()) == []


def test_mailboxes_of_killed_drivers_are_removed(opened, run):
    old = run / "mailbox" / "0123" / "requests"
    old.mkdir(parents=True)
    (old / "1.0.0-Next-1").write_bytes(b"old")
    with opened(Script(Stop())) as (_, connect, _), connect("1.0.0") as slot:
        assert slot.next() is None
        assert not old.exists()


def test_a_driver_presumed_dead_that_wakes_leaves_its_successors_mailbox(opened, run):
    with contextlib.ExitStack() as earlier:
        earlier.enter_context(opened(Script()))
        with opened(Script(Stop())) as (_, connect, box), connect("1.0.0") as slot:
            earlier.close()
            assert Path(box.address.folder).is_dir()
            assert slot.next() is None
    assert list(run.iterdir()) == []


def test_folders_and_files_are_the_users_alone(opened, run):
    previous = os.umask(0)
    try:
        with opened(Script(Wait())) as (_, connect, box), ThreadPoolExecutor() as pool:
            requests, answers = folders_of(box)
            (answers / "1.0.0").mkdir(mode=0o700)
            with contextlib.closing(frozen(box)), connect("1.0.0") as slot:
                waiting = pool.submit(slot.next)
                request = request_in(requests)
                modes = [stat.S_IMODE(path.stat().st_mode) for path in (requests, answers, request)]
                slot.__exit__()
                assert isinstance(waiting.exception(30), ChannelLost)
    finally:
        os.umask(previous)
    assert modes == [0o700, 0o700, 0o600]


class frozen:
    """Keeps the driver from listing a mailbox until it is closed."""

    def __init__(self, box):
        self._box, self._collect, looked = box, box._collect, threading.Event()
        box._collect = lambda found: looked.set()
        assert looked.wait(30)  # a look that began before would still find something

    def close(self):
        self._box._collect = self._collect


def test_messages_and_answers_are_encrypted(opened, run):
    seen = []
    with opened(Script(ATTEMPT)) as (_, connect, box), connect("1.0.0") as slot:
        seal, post, key = slot._seal, box._post, slot._key
        taken = box._take

        def take(status):
            seen.append(Path(status.location.path).read_bytes())
            taken(status)

        def spy(name, reply):
            post(name, reply)
            with contextlib.suppress(FileNotFoundError):  # the slot was quicker
                seen.append(Path(box.address.folder, "answers", "1.0.0", name).read_bytes())

        box._take, box._post = take, spy
        assert slot.next() == ATTEMPT
        assert seal.open(seen[0], "request 1.0.0-Next-1") == encode(
            {"key": key, "message": as_json(Next("1.0.0"))}
        )
    assert not any(word in data for data in seen for word in (b"slot", b"attempt", key.encode()))


@pytest.mark.fault(35)
@pytest.mark.parametrize("data", [b"", b"x", b"x" * 28, b"x" * 500], ids=len)
@pytest.mark.parametrize("name", ["1.0.0-Next-1", "1.0.0-Next-999", "1.1.0-Hello-1", "x", ".x"])
def test_a_forged_message_is_ignored_and_removed(opened, name, data):
    handler = Script(Stop())
    with opened(handler) as (server, connect, box), connect("1.0.0") as slot:
        requests, _ = folders_of(box)
        (requests / name).write_bytes(data)
        wait_until(lambda: files_below(requests) == [])
        frozen(box).close()  # a look from before would remove a message of the same name
        wait_until(lambda: not box._work)
        assert slot.next() is None
    assert len(handler.heard) == 1
    assert server.error is None


@pytest.mark.fault(35)
def test_a_message_sealed_with_another_runs_key_is_ignored(opened):
    handler = Script(Stop())
    with opened(handler) as (_, connect, box), connect("1.0.0") as slot:
        requests, _ = folders_of(box)
        letter = encode({"key": "0" * 32, "message": Next("1.0.0")})
        other = Seal(Seal.new_key()).close(letter, "request 1.0.0-Next-1")
        (requests / "1.0.0-Next-1").write_bytes(other)
        wait_until(lambda: files_below(requests) == [])
        assert slot.next() is None
    assert len(handler.heard) == 1


@pytest.mark.fault(35)
def test_a_repeated_or_moved_message_is_ignored(opened):
    handler, seen = Working(), {}
    with opened(handler) as (_, connect, box), connect("1.0.0") as slot:
        taken = box._take

        def take(status):
            with contextlib.suppress(FileNotFoundError):  # a look from before it was removed
                seen[status.location.name] = Path(status.location.path).read_bytes()
            taken(status)

        box._take = take
        assert slot.next() == ATTEMPT
        assert slot.next(2, OUTCOME) == ATTEMPT
        (name, again), requests = list(seen.items())[-1], folders_of(box)[0]
        assert name == "1.0.0-Next-2"
        for copy in (name, "1.0.0-Next-1", "1.0.0-Next-3", "1.1.0-Next-1", "1.0.0-Hello-9"):
            (requests / copy).write_bytes(again)
            wait_until(lambda: files_below(requests) == [])
        assert handler.outcomes == [0.5]
        assert slot.next(2, OUTCOME) == ATTEMPT
    assert handler.outcomes == [0.5, 0.5]


@pytest.mark.usefixtures("impatient")
def test_a_torn_message_is_sent_again(opened, monkeypatch):
    handler = Working()
    with opened(handler) as (_, connect, _), connect("1.0.0") as slot:
        files, write = slot._lanes["Next"].files, slot._lanes["Next"].files.write

        def torn(location, source):
            write(location, source[: len(source) // 2])
            files.write = write
            monkeypatch.setattr(time_limits, "MAILBOX_ANSWER", 60.0)  # of what is sent again

        monkeypatch.setattr(files, "write", torn, raising=False)
        assert slot.next() == ATTEMPT
    assert handler.calls == 1


def test_a_huge_file_is_removed_unread(opened):
    handler = Script(Stop())
    with opened(handler) as (_, connect, box), connect("1.0.0") as slot:
        requests, _ = folders_of(box)
        with (requests / "1.0.0-Next-1").open("wb") as file:
            file.truncate(1 << 40)  # nothing could read it
        wait_until(lambda: files_below(requests) == [])
        assert slot.next() is None


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_odd_files_in_the_mailbox_are_removed_but_not_the_targets_of_links(opened, tmp_path, kind):
    (tmp_path / "behind").write_text("kept")
    with opened(Script(Stop())) as (_, connect, box), connect("1.0.0") as slot:
        odd = folders_of(box)[0] / "1.0.0-Next-1"
        if kind == "folder":
            (tmp_path / "odd").mkdir()
            (tmp_path / "odd" / "file").touch()
            (tmp_path / "odd").rename(odd)
        elif kind == "link":
            odd.symlink_to(tmp_path / "behind")
        else:
            os.mkfifo(odd)
        wait_until(lambda: not odd.exists() and not odd.is_symlink())
        assert slot.next() is None
    assert (tmp_path / "behind").read_text() == "kept"


def test_a_file_that_is_being_written_is_skipped(opened):
    with opened(Script(Stop())) as (_, connect, box), connect("1.0.0") as slot:
        part = folders_of(box)[0] / ".part-0123"
        part.write_bytes(b"half")
        assert slot.next() is None
        assert part.exists()


@pytest.mark.fault(35)
def test_a_forged_answer_is_passed_over(opened):
    with opened(Script(ATTEMPT)) as (_, connect, box), ThreadPoolExecutor() as pool:
        with connect("1.0.0") as slot:
            answers = folders_of(box)[1] / "1.0.0"
            hold = frozen(box)
            waiting = pool.submit(slot.next)
            request = request_in(folders_of(box)[0])
            for forged in (b"", b"x" * 100, request.read_bytes(), b"\0" * (LARGEST_MESSAGE * 2)):
                (answers / f"{PART}forged").write_bytes(forged)
                (answers / f"{PART}forged").rename(answers / request.name)
                looked_at_twice(slot)
            assert not waiting.done()
            hold.close()
            assert waiting.result(30) == ATTEMPT


def looked_at_twice(slot):
    """Wait until a slot has listed its answers once more."""
    files, looks = slot._lanes["Next"].files, threading.Semaphore(0)
    listdir = type(files).listdir

    def listing(folder):
        looks.release()
        return listdir(files, folder)

    files.listdir = listing
    try:
        assert looks.acquire(timeout=120)
        assert looks.acquire(timeout=120)
    finally:
        del files.listdir


@pytest.mark.fault(33)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("away", ["driver", "storage"])
def test_an_outcome_survives_an_outage(opened, run, monkeypatch, away):
    handler = Working()
    with opened(handler) as (_, connect, box), ThreadPoolExecutor() as pool:
        with connect("1.0.0") as slot:
            assert slot.next() == ATTEMPT
            if away == "driver":
                hold = frozen(box)
            else:
                run.rename(run.with_name("elsewhere"))
            answer = pool.submit(slot.next, 2, OUTCOME)
            for _ in range(2):
                with pytest.raises(ChannelLost):
                    slot.report(ATTEMPT, REPORTS)
            assert not answer.done()
            if away == "driver":
                hold.close()
            else:
                assert not run.exists()  # nobody has made it anew
                run.with_name("elsewhere").rename(run)
            assert answer.result(timeout=240) == ATTEMPT
            assert set(handler.outcomes) == {0.5}
            monkeypatch.setattr(time_limits, "MAILBOX_ANSWER", 60.0)
            assert slot.report(ATTEMPT, REPORTS) == Heard()


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(opened, monkeypatch):
    late = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * bool(late))
    monkeypatch.setattr(file_channel, "time", clock)
    with opened(Working()) as (_, connect, box), connect("1.0.0") as slot:
        answers, post = folders_of(box)[1] / "1.0.0", box._post
        box._post = lambda *answer: late.append(answer)
        with pytest.raises(Cut):
            slot._ask("Next", encode(Next("1.0.0")))
        box._post = post
        post(*late[0])
        assert [path.name for path in files_below(answers)] == ["1.0.0-Next-1"]
        assert slot.next() == ATTEMPT
        assert files_below(answers) == []


def test_a_slot_lost_during_a_call_does_not_matter(opened):
    handler = Script(Wait(), ATTEMPT, ATTEMPT)
    with opened(handler) as (server, connect, _), ThreadPoolExecutor() as pool:
        gone = connect("1.0.0")
        waiting = pool.submit(gone.next)
        wait_until(lambda: handler.heard)
        gone.__exit__()
        assert isinstance(waiting.exception(30), ChannelLost)
        server.call(lambda: None)
        with connect("1.0.1") as slot:
            assert slot.next() == ATTEMPT


def test_a_reply_that_says_no_ends_the_call(opened):
    with opened(Script(Stop())) as (_, connect, _), connect("1.0.0") as slot:
        with pytest.raises(ChannelRefused, match="INVALID_ARGUMENT"):
            slot._ask("Next", encode({"slot": "1.0.0", "more": 1}))
        assert slot.next() is None


def test_the_key_of_a_mailbox_is_not_in_its_repr():
    assert "the key" not in repr(FileChannelAddress("folder", "the key"))


CLOSED = "127.0.0.9:1"


@pytest.mark.parametrize("reached", [True, False])
def test_a_slot_uses_the_mailbox_if_the_connection_is_refused(opened, reached):
    handler = Script(ATTEMPT)
    with opened(handler) as (server, _, box):
        target = server.address.target if reached else CLOSED
        address = msgspec.structs.replace(server.address, target=target, mailbox=box.address)
        slot, said = connect(address, "1.0.0", "host-7", HERE)
        with slot:
            assert isinstance(slot, FileChannelClient) is not reached
            assert slot.next() == ATTEMPT
    assert (said == "") is reached
    assert reached or f"host-7 does not reach the driver at {CLOSED}" in said


@pytest.mark.parametrize("seen", [True, False])
def test_a_silent_driver_has_some_seconds(opened, monkeypatch, seen):
    import socket

    monkeypatch.setattr("spark_jobs.channel.connecting._PROBE", 0.5)
    with opened(Script(ATTEMPT)) as (server, _, box), socket.socket() as silent:
        silent.bind((LOOPBACK, 0))
        silent.listen()
        there = box.address if seen else msgspec.structs.replace(box.address, folder="/nonexistent")
        target = f"{LOOPBACK}:{silent.getsockname()[1]}"
        address = msgspec.structs.replace(server.address, target=target, mailbox=there)
        slot, said = connect(address, "1.0.0", "host-7", HERE)
        with slot:
            assert isinstance(slot, FileChannelClient) is seen
            assert not seen or slot.next() == ATTEMPT
    assert bool(said) is seen
    assert not Path("/nonexistent").exists()


def test_without_a_mailbox_the_driver_is_not_probed():
    with ChannelServer(LOOPBACK, Script()) as server:
        address = msgspec.structs.replace(server.address, target=CLOSED)
        slot, said = connect(address, "1.0.0", "host-7", HERE)
        slot.__exit__()
    assert said == ""
    assert not isinstance(slot, FileChannelClient)


def test_a_hello_names_no_detour_by_default():
    assert Hello(slot="1.0.0", host="host").detour == ""
