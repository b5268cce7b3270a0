from __future__ import annotations

import errno
import itertools
import json
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.run_files import ownership
from experiment.run_files.ownership import owned, owner_of
from search.errors import InvalidArgument
from spark_jobs.run_folder.marks import Mark, Origin, Silence
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from tests.experiment.run_files.owning import Place, race
from tests.experiment.waiting import wait_until

_FOLDERS = itertools.count()
HOST = socket.gethostname()
pytestmark = pytest.mark.fault(24)


@pytest.fixture(params=["local", "without locks", pytest.param("hdfs", marks=pytest.mark.slow)])
def place(request, tmp_path):
    if request.param == "hdfs":
        hdfs = request.getfixturevalue("hdfs")
        root = Location.parse(f"{hdfs.uri}/owned of ü/{next(_FOLDERS)}")
        place = Place(root, hdfs.settings(), locks=False)
    else:
        place = Place(Location.parse(tmp_path / "run of ü"), locks=request.param == "local")
    with place:
        yield place


def paths_of(place):
    return RunPaths(Path(place.root.path))


def test_a_second_driver_is_refused_with_the_owners_name(place):
    first, second = place.driver(), place.driver()
    assert first.take() == "owned"
    refusal = second.take()
    who = rf"host {HOST}, pid {first.pid} \(application app-{first.pid}\)"
    got = rf"'{re.escape(str(place.root))}', which {who} has been running for [\d.]+ s; "
    assert re.match(f"refused: resume: expected a run with no active driver, got {got}", refusal)
    assert refusal.endswith(f"-m experiment stop {shlex.quote(str(place.root))}")
    assert first.hears_nothing()
    assert first.ask("release") == "released"


def test_a_released_run_is_taken_at_once(place):
    first, second = place.driver(silence=1000), place.driver(silence=1000)
    for driver in (first, second, first, first):
        assert driver.ask("take") == "owned"
        assert driver.ask("release") == "released"
    numbers = [f"00000{number}.json" for number in range(1, 5)]
    assert [name for name in place.marks() if name != "lock"] == numbers


def test_a_run_whose_driver_was_killed_on_this_host_is_taken_at_once(place):
    first, second = place.driver(), place.driver(silence=1000)
    assert first.take() == "owned"
    first.kill()
    assert second.ask("take") == "owned"
    assert second.ask("release") == "released"


def test_waiting_ends_when_the_awaited_driver_is_killed(place):
    if place.locks:
        pytest.skip("an active driver that holds the lock is not waited for")
    first, second = place.driver(beat=1000), place.driver(silence=1000)
    assert first.take() == "owned"
    assert second.ask("take") == (
        f"note: host {HOST}, pid {first.pid} has not released {str(place.root)!r}; "
        "waiting for 1000 s without a sign of life"
    )
    first.kill()
    assert second.hear() == "owned"
    assert second.ask("release") == "released"


@pytest.mark.parametrize("dead", [False, True])
def test_one_of_several_drivers_that_take_a_run_at_once_gets_it(place, dead):
    if dead:
        before = place.driver()
        assert before.take() == "owned"
        before.kill()
    winner = race([place.driver() for _ in range(3)])
    assert winner.ask("release") == "released"
    assert not [name for name in place.marks() if name.startswith(".")]


@pytest.mark.slow
@pytest.mark.contract
def test_a_suspended_owner_notices_that_it_was_presumed_dead(place):
    first, second = place.driver(), place.driver(silence=5)
    assert first.take() == "owned"
    first.process.send_signal(signal.SIGSTOP)
    if place.locks:  # it holds the lock while suspended, too
        assert f"pid {first.pid} " in second.take()
        first.process.send_signal(signal.SIGCONT)
        assert first.ask("release") == "released"
        return
    assert second.take() == "owned"
    first.process.send_signal(signal.SIGCONT)
    assert first.hear() == (
        f"taken: host {HOST}, pid {second.pid} has taken over the run, since this driver gave no "
        "sign of life"
    )
    assert first.ask("release") == "released"
    assert second.hears_nothing()
    assert f"pid {second.pid} " in first.take()
    assert second.ask("release") == "released"


def test_an_owner_whose_mark_was_removed_ends(place):
    driver = place.driver()
    assert driver.take() == "owned"
    mark = place.root.below("owners/000001.json")
    with place.files() as files:
        files.remove(mark)
    assert driver.hear() == f"taken: the owner file {mark} was removed"
    assert driver.ask("release") == "released"


def mark_of(**changes):
    known = {"host": HOST, "pid": 1, "origin": None, "application": "app", "since": 1.0}
    known["locked"] = True
    return json.dumps(known | changes).encode()


BROKEN = {
    "empty": b"",
    "half": mark_of()[:40],
    "no object": b"[]",
    "deep": b"[" * 4000,
    "large": b" " * 5000 + mark_of(),
    "no unicode": b'{"host": "\xff"}',
    "long host": mark_of(host="h" * 256),
    "no process": mark_of(pid=-1),
    "no number": mark_of(pid="1; rm"),
    "no time": mark_of(since=1e300),
    "infinite": mark_of(since=float("inf")),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_an_unreadable_mark_has_no_owner_after_enough_silence(place, content):
    place.put("000007.json", content)
    assert owner_of(paths_of(place)) is None
    notes = []
    with taking(place, tell=notes.append, silence=0.3, beat=0.1):
        assert owner_of(paths_of(place)).pid == os.getpid()
    assert "its driver, whose mark cannot be read, has not released" in notes[0]
    assert "000008.json" in place.marks()


def taking(place, **options):
    known = {"taken": pytest.fail, "tell": pytest.fail}
    return owned(place.root, HadoopSettings(), "app", **known | options)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_waiting_driver_names_the_faster_one_even_if_its_mark_is_still_empty(place):
    place.put("000001.json", mark_of(host="elsewhere"))
    waiting = place.driver(silence=1000)
    assert waiting.ask("take").startswith("note: ")
    place.put("000002.json", b"")
    looks = {part_of(place)}
    wait_until(lambda: looks.add(part_of(place)) or len(looks) > 3)
    place.put("000002.json", mark_of(host="faster", pid=4711))
    assert "which host faster, pid 4711 " in waiting.hear()


def origin(**changes):
    return msgspec.to_builtins(msgspec.structs.replace(Origin.of_this_process(), **changes))


ELSEWHERE = {
    "another host of the same name": origin(boot="0" * 32),
    "a container": origin(namespace=1),
    "a system that tells nothing": None,
}


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_driver_whose_process_cannot_be_checked_here_is_waited_for(place, where):
    """Even if this host has no process with that id, and does not see the other host's lock."""
    ended = place.driver()
    ended.kill()
    mark = mark_of(pid=ended.pid, origin=where, locked=where != ELSEWHERE["a container"])
    place.put("000001.json", mark)
    notes = []
    with taking(place, tell=notes.append, silence=0.5, beat=0.1):
        pass
    assert [message.partition(";")[0] for message in notes] == [
        f"host {HOST}, pid {ended.pid} has not released {str(place.root)!r}"
    ]


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_free_lock_is_not_enough_where_the_process_cannot_be_seen(place, alive):
    """Two containers may each have a mount of the folder, with locks of its own."""
    place.put("000001.json", mark_of(host="other", pid=4711, origin=origin(namespace=1)))
    mark = Path(place.root.path, "owners", "000001.json")
    notes = []

    def tell(message):
        notes.append(message)
        if alive:
            os.utime(mark)

    if alive:
        with pytest.raises(InvalidArgument, match="which host other, pid 4711 "):
            with taking(place, tell=tell, silence=1000, beat=0.2):
                pass
    else:
        with taking(place, tell=tell, silence=1000, beat=0.2) as ours:
            assert ours.killed.pid == 4711
    assert notes[0].endswith("waiting for 0.4 s without a sign of life")


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_process_with_the_reused_id_of_a_killed_driver_is_not_the_driver(place):
    started = Origin.of_this_process().started
    mark = mark_of(pid=os.getpid(), origin=origin(started=started + 1), locked=False)
    place.put("000001.json", mark)
    assert owner_of(paths_of(place)).alive is False
    with taking(place) as ours:
        assert (ours.killed.pid, ours.mark.name) == (os.getpid(), "000002.json")


def test_a_zombie_process_does_not_run():
    child = subprocess.Popen(["sleep", "60"])
    process = psutil.Process(child.pid)
    mark = msgspec.json.decode(mark_of(pid=child.pid, origin=origin()), type=Mark)
    started = process_started(child.pid)
    mark = msgspec.structs.replace(
        mark, origin=msgspec.structs.replace(mark.origin, started=started)
    )
    assert mark.runs() is True
    process.kill()
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert mark.runs() is False
    child.wait()
    assert mark.runs() is False


def process_started(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_waiting_driver_continues_when_an_owner_has_removed_its_file(place):
    place.put("000001.json", mark_of(host="elsewhere"))
    waiting = place.driver(silence=1000)
    assert waiting.ask("take").startswith("note: ")
    [part] = Path(place.root.path, "owners").glob(".part-*")
    part.unlink()
    wait_until(part.exists)
    place.put("000001.json", mark_of(host="elsewhere", released=True))
    assert waiting.hear() == "owned"
    assert waiting.ask("release") == "released"


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_faster_drivers_mark_that_passes_for_the_own_one_is_not_taken(place, monkeypatch):
    """As on HDFS, where the answer to a rename is lost."""

    class Losing(LocalFiles):
        def rename(self, location, new, *, replace=True):
            if new.name == "000001.json":
                self.remove(location)
                place.put(new.name, mark_of(host="faster", released=True))
            else:
                super().rename(location, new, replace=replace)

    monkeypatch.setattr(ownership, "writable_files_at", lambda location, hadoop: Losing())
    with taking(place) as ours:
        assert ours.mark.name == "000002.json"


def part_of(place):
    [part] = Path(place.root.path, "owners").glob(".part-*")
    return part.stat().st_mtime_ns


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_hostile_mark_moves_no_cursor(place):
    hostile = "\x1b[2J\r\n\u202e<b>"
    place.put("000001.json", mark_of(host=hostile, application=hostile))
    owner = owner_of(paths_of(place))
    assert f"{owner} {owner.application}".isprintable()
    notes = []
    with taking(place, tell=notes.append, silence=0.3, beat=0.1):
        pass
    assert notes[0].isprintable()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_files_that_are_no_marks_are_skipped(place):
    for name in ("000001.json.bak", "x.json", ".part-1", "-1.json", "1234567890.json"):
        place.put(name, b"?")
    Path(place.root.path, "owners", "000005.json").mkdir()
    Path(place.root.path, "owners", "000006.json").symlink_to("x.json")
    with taking(place):
        assert owner_of(paths_of(place)).pid == os.getpid()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_driver_of_another_host_is_waited_for_even_if_the_lock_is_free(place):
    """Where a shared folder is mounted so that its locks are seen on one host only."""
    since = time.time() - 200
    sign_of_life = since, since + 205
    place.put("000001.json", mark_of(host="elsewhere", pid=4711, since=since))
    owner = owner_of(paths_of(place))
    assert (owner.host, owner.pid, owner.alive) == ("elsewhere", 4711, None)
    mark = Path(place.root.path, "owners", "000001.json")
    with pytest.raises(InvalidArgument, match="which host elsewhere, pid 4711 .* for 3 min 2"):
        with taking(place, tell=lambda _: os.utime(mark, sign_of_life), silence=1000, beat=0.1):
            pass
    notes = []
    with taking(place, tell=notes.append, silence=0.5, beat=0.1):
        pass
    assert len(notes) == 1


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_run_that_is_released_while_it_is_waited_for_is_taken(place):
    place.put("000001.json", mark_of(host="elsewhere"))

    def release(message):
        place.put("000002.json", mark_of(host="elsewhere", released=True))

    with taking(place, tell=release, silence=1000, beat=0.1) as ours:
        assert (ours.killed, ours.mark.name) == (None, "000003.json")


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_faster_driver_whose_mark_cannot_be_read_refuses_others(place):
    place.put("000001.json", mark_of(host="elsewhere"))
    with pytest.raises(InvalidArgument, match="an active driver, whose mark cannot be read; wait"):
        with taking(place, tell=lambda _: place.put("000002.json", b"?"), silence=1000, beat=0.1):
            pass
    assert not [name for name in place.marks() if name.startswith(".")]


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_an_owner_without_its_mark_says_so_once_and_does_not_write_it_again(place):
    said = []
    with taking(place, taken=said.append, beat=0.01) as ours:
        Path(ours.mark.path).unlink()
        wait_until(lambda: said)
    assert said == [f"the owner file {ours.mark} was removed"]
    assert place.marks() == ["lock"]


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_where_locks_do_not_work_the_process_tells_whether_an_owner_is_alive(place, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    place.put("000001.json", mark_of(pid=os.getpid(), origin=origin()))
    Path(place.root.path, "owners", "lock").touch()
    assert owner_of(paths_of(place)).alive is False, "the lock is free"
    monkeypatch.setattr(ownership.fcntl, "flock", flock)
    assert owner_of(paths_of(place)).alive is True


@pytest.mark.parametrize("place", ["local", "without locks"], indirect=True)
def test_a_reader_sees_whether_the_owner_is_alive(place):
    paths = paths_of(place)
    assert owner_of(paths) is None
    driver = place.driver()
    assert driver.take() == "owned"
    owner = owner_of(paths)
    assert (owner.host, owner.pid, owner.application) == (HOST, driver.pid, f"app-{driver.pid}")
    assert owner.alive is True
    elsewhere = owner_of(RunPaths(paths.root, "hdfs://somewhere/run"))
    assert (elsewhere.pid, elsewhere.alive) == (driver.pid, True)
    wait_until(lambda: owner_of(paths).ran > owner.ran)
    assert 0 <= time.time() - owner_of(paths).seen < 60
    assert driver.ask("release") == "released"
    assert owner_of(paths) is None
    assert driver.take() == "owned"
    driver.kill()
    assert owner_of(paths).alive is False


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_readers_do_not_keep_a_driver_from_starting(place):
    ended = threading.Event()

    def look():
        while not ended.is_set():
            owner_of(paths_of(place))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            with taking(place):
                pass
    finally:
        ended.set()
        for reader in readers:
            reader.join()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_child_of_a_killed_driver_does_not_keep_the_run(place):
    first, second = place.driver(), place.driver()
    assert first.take() == "owned"
    child = psutil.Process(int(first.ask("fork")))
    first.kill()
    try:
        assert second.ask("take") == "owned"
        assert child.is_running()
    finally:
        child.kill()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_child_that_is_forked_and_ends_does_not_end_the_ownership(place):
    first, second = place.driver(), place.driver()
    assert first.take() == "owned"
    child = psutil.Process(int(first.ask("fork")))
    child.kill()
    assert f"pid {first.pid} " in second.take()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_files_in_the_folder_are_private(place):
    with taking(place):
        folder = Path(place.root.path, "owners")
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
        assert folder.stat().st_mode & 0o777 == 0o700
    assert modes == {"lock": 0o600, "000001.json": 0o600}


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_folder_that_cannot_be_written_to_is_refused(place):
    Path(place.root.path).mkdir()
    Path(place.root.path, "owners").touch()
    with pytest.raises(InvalidArgument, match="^run: expected a run that can be written to") as no:
        with taking(place, argument="run"):
            pass
    assert str(place.root) in str(no.value)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_driver_interrupted_while_it_waits_leaves_no_files(place):
    place.put("000001.json", mark_of(host="elsewhere"))

    def interrupt(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with taking(place, tell=interrupt):
            pass
    assert place.marks() == ["000001.json", "lock"]


def test_a_mark_is_not_larger_than_readers_accept(tmp_path):
    root = Location.parse(tmp_path / secrets.token_hex(50))
    with owned(root, HadoopSettings(), "ü" * 1000, taken=pytest.fail, tell=pytest.fail):
        assert owner_of(RunPaths(Path(root.path))).application == "ü" * 200


GAPS = st.lists(st.floats(0.01, 3.0), max_size=60)


@given(GAPS)
def test_silence_is_over_after_enough_time_with_checks(gaps):
    silence, now, heard = Silence(5.0, 1.0, 100.0), 100.0, 0.0
    for gap in gaps:
        now += gap
        heard = heard + gap if gap <= 1.0 else 0.0
        assert silence.is_over(now) == pytest.approx(heard >= 5.0) or heard == pytest.approx(5.0)
