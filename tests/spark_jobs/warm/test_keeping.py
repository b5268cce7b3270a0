"""Zygotes of one importer are like those that import by themselves, whatever ran before."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spark_jobs.slot.runners import ProcessRunner
from spark_jobs.warm import keeper
from spark_jobs.warm.asking import Imports, Unavailable, Warm, ask, warm_here
from spark_jobs.warm.executor import Executor, socket_name
from spark_jobs.warm.keeper import free_memory, is_unwanted
from spark_jobs.warm.packets import Answer, Peer, Request, peer_of
from spark_jobs.zygote import importer, link
from tests.experiment.waiting import wait_until
from tests.spark_jobs.slot.running import LIGHT, alive, program
from tests.spark_jobs.warm.hosts import host_in


@pytest.fixture
def host(tmp_path):
    with host_in(tmp_path) as host:
        yield host


def test_searches_share_an_import_and_a_zygote_serves_one(host):
    slots = []
    for _ in range(3):
        slot = host.slot().start()
        assert slot.run("double", x=2.5) == ["finished", 5.0, ""]
        slot.close()
        slots.append(slot)
    assert len({slot.importer.pid for slot in slots}) == 1
    assert len({slot.zygote.pid for slot in slots}) == 3
    assert not any(alive(slot.zygote) for slot in slots)


def test_slots_with_different_gpus_share_an_import(host):
    slots = [host.slot(environment={"CUDA_VISIBLE_DEVICES": gpu}).start() for gpu in "01"]
    assert slots[0].importer == slots[1].importer
    assert [slot.run("visible_devices", x=1.0)[1] for slot in slots] == [0.0, 1.0]


def test_other_users_cannot_guess_the_environment_from_the_sockets_name(host):
    """They see the name in the keeper's command line, and in the kernel's list of sockets."""
    assert host.slot().start().kept
    (name,) = [path.name for path in host.folder.iterdir() if path.is_socket()]
    assert name in " ".join(host.keepers()[0].cmdline())
    salt = host.folder / "salt"
    assert salt.stat().st_mode & 0o777 == 0o600
    assert len(salt.read_bytes()) == 32
    salt.write_bytes(b"")
    assert host.slot().start().kept
    assert len(host.keepers()) == 2
    assert len(salt.read_bytes()) == 32


def descriptors(process: psutil.Process) -> list[tuple[int, str]]:
    """Return the kinds of the descriptors of a zygote; numbers of sockets and pipes vary."""
    folder = Path(f"/proc/{process.pid}/fd")
    kinds = [re.sub(r"[\[/#].*", "", os.readlink(path)) for path in folder.iterdir()]
    return sorted(kinds)


def mapped_files(process: psutil.Process) -> set[str]:
    return {found.path for found in process.memory_maps() if found.path.startswith("/")}


def private_memory(process: psutil.Process) -> int:
    """Return the bytes that only this process has written."""
    return sum(found.private_dirty for found in process.memory_maps())


@pytest.mark.slow
def test_the_tenth_zygote_is_like_one_that_imports_by_itself(host, monkeypatch):
    preload = ["numpy", "experiment", "spark_jobs.trial.events.event_file"]
    for _ in range(9):
        slot = host.slot(preload=preload).start()
        assert slot.run("state", change=True)[0] == "finished"
        slot.close()
    tenth = host.slot(preload=preload).start()
    host.folder.chmod(0o755)  # no slot uses it
    own = host.slot(preload=preload).start()
    assert (tenth.kept, own.kept) == (True, False)
    assert descriptors(tenth.zygote) == descriptors(own.zygote)
    assert tenth.zygote.environ() == own.zygote.environ()
    assert tenth.zygote.cwd() == own.zygote.cwd()
    assert mapped_files(tenth.zygote) == mapped_files(own.zygote)
    assert private_memory(tenth.zygote) < private_memory(own.zygote)
    assert tenth.zygote.children() == []
    same = [process.run("state", change=False) for process in (tenth, own)]
    assert same[0] == same[1]
    for limit in ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_CORE"):
        number = getattr(psutil, limit)
        assert tenth.zygote.rlimit(number) == own.zygote.rlimit(number)
    scores = [Path(f"/proc/{slot.zygote.pid}/oom_score_adj").read_text() for slot in (tenth, own)]
    assert scores[0] == scores[1]
    assert [os.getsid(slot.zygote.pid) for slot in (tenth, own)] == [
        tenth.zygote.pid,
        own.zygote.pid,
    ]


def test_a_changed_module_is_imported_again(host):
    (host.modules / "mine.py").write_text("value = 1")
    first = host.slot(preload=["mine"]).start()
    (host.modules / "mine.py").write_text("value = 22")
    second = host.slot(preload=["mine"]).start()
    third = host.slot(preload=["mine"]).start()
    assert first.kept
    assert second.kept
    assert first.importer != second.importer == third.importer
    assert alive(first.zygote)
    first.close()
    wait_until(lambda: not alive(first.keeper))


CHANGES_ITSELF = """
import os, pathlib
with open({imports!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
new = pathlib.Path(__file__ + ".new")
if new.exists():
    os.utime(new, (0, 0))  # as a copy that keeps its time
    new.rename(__file__)
"""


def test_a_module_that_was_changed_during_its_import_is_imported_again(host, tmp_path):
    imports = tmp_path / "imports"
    for name in ("mine.py", "mine.py.new"):
        (host.modules / name).write_text(CHANGES_ITSELF.format(imports=str(imports)))
    slots = [host.slot(preload=["mine"]).start() for _ in range(2)]
    assert [slot.kept for slot in slots] == [True, True]
    _, current = imports.read_text().split()
    assert [str(slot.importer.pid) for slot in slots] == [current, current]


NOTES_ITS_EXIT = """
import atexit, os, pathlib
atexit.register(pathlib.Path({notes!r}, str(os.getpid())).touch)
"""


def test_an_importer_ends_without_the_exit_handlers_of_what_its_zygotes_use(host, tmp_path):
    (host.modules / "mine.py").write_text(NOTES_ITS_EXIT.format(notes=str(tmp_path)))
    slot = host.slot(preload=["mine"]).start()
    (host.modules / "mine.py").write_text("value = 1")
    assert host.slot(preload=["mine"]).start().importer != slot.importer
    wait_until(lambda: not alive(slot.importer))
    assert alive(slot.zygote)
    assert not (tmp_path / str(slot.importer.pid)).exists()


def test_whatever_may_change_an_import_leads_to_another_one(host):
    def importers(**variables):
        host.environment.update(variables)
        slot = host.slot().start()
        assert slot.kept
        return slot.importer.pid

    base = importers()
    assert importers() == base
    assert importers(TF_ENABLE_ONEDNN_OPTS="0") != base


def test_the_key_covers_what_a_process_inherits(tmp_path, monkeypatch):
    def key(*modules, salt=b"salt", **environment):
        return socket_name(Imports(importer.__name__, modules, environment).identity(), salt)

    base = key("json")
    assert key("json") == base
    others = [key("json", "csv"), key("json", A="1"), key("json", A="2")]
    others.append(key("json", salt=b"other"))
    monkeypatch.chdir(tmp_path)
    others.append(key("json"))
    before = os.umask(0o077)
    others.append(key("json"))
    os.umask(before)
    assert len({base, *others}) == 7
    missing = key("comes_later")
    (tmp_path / "comes_later.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert key("comes_later") != missing


def test_nothing_is_kept_without_a_jvm_a_folder_or_time(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/one,/tmp/two")
    assert warm_here(300.0) is None  # this process is below no JVM
    monkeypatch.setattr("spark_jobs.warm.executor._jvm_above", lambda: 7)
    assert warm_here(300.0) == Warm(Executor(Path("/tmp/one/experiment-warm"), 7), 300.0)
    assert warm_here(0.0) is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert warm_here(300.0) is None


@pytest.mark.parametrize(
    ("idle", "is_there", "free", "unwanted"),
    [
        (299.0, True, 0.11, False),
        (301.0, True, 0.9, True),
        (0.0, False, 0.9, True),
        (0.0, True, 0.09, True),
    ],
)
def test_an_idle_keeper_ends_when_time_folder_or_memory_are_gone(idle, is_there, free, unwanted):
    assert is_unwanted(idle, 300.0, is_there=is_there, free=free) == unwanted


def test_the_free_memory_is_a_share():
    assert 0 < free_memory() <= 1


def test_a_keeper_whose_host_has_no_memory_left_ends(host):
    (host.modules / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'spark_jobs.warm.keeper' in sys.orig_argv:\n"
        "    import io, builtins\n"
        "    real = open\n"
        "    def fake(path, *words, **more):\n"
        "        if path != '/proc/meminfo':\n"
        "            return real(path, *words, **more)\n"
        "        return io.StringIO('MemTotal: 100 kB\\nMemAvailable: 9 kB\\n')\n"
        "    builtins.open = fake\n"
    )
    slot = host.slot().start()
    if slot.kept:  # else the keeper had ended before the slot could ask it
        assert slot.run("double", x=2.5) == ["finished", 5.0, ""]
        slot.close()
    wait_until(lambda: not host.keepers())


def test_credentials_name_the_user():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getpid(), os.getuid(), os.getgid())


ANOTHER_USER = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    try:
        os.chdir(os.path.dirname(sys.argv[1]))  # the path may be too long for a socket
        connection.connect(os.path.basename(sys.argv[1]))
        connection.send(b'{"seconds": 300.0}')
        print(connection.recv(100))
    except (PermissionError, ConnectionError) as error:
        print(type(error).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_zygote(host):
    def ask_as_another(path):
        words = [sys.executable, "-c", ANOTHER_USER, str(path)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    slot = host.slot().start()
    (path,) = [path for path in host.folder.iterdir() if path.is_socket()]
    assert ask_as_another(path) == "PermissionError"
    modes = {place: place.stat().st_mode for place in (path, *path.parents)}
    modes = {place: mode for place, mode in modes.items() if place == path or not mode & 0o001}
    try:
        for place, mode in modes.items():
            place.chmod(mode | (0o002 if place == path else 0o001))
        assert ask_as_another(path) in ("b''", "ConnectionResetError", "BrokenPipeError")
    finally:
        for place, mode in modes.items():
            place.chmod(mode)
    assert slot.run("double", x=2.5) == ["finished", 5.0, ""]
    assert host.slot().start().importer == slot.importer


@pytest.mark.parametrize("how", ["mode", "link"])
def test_a_folder_that_others_may_enter_is_not_used(tmp_path, how):
    folder = tmp_path / "warm"
    if how == "mode":
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    else:
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    imports = Imports(importer.__name__, ("json",), dict(os.environ))
    with pytest.raises(Unavailable):
        ask(Warm(Executor(folder, os.getpid()), 1.0), imports, (0, 1, 2), time.monotonic() + 60)
    assert list(folder.iterdir()) == []


def test_a_slot_that_hangs_while_it_starts_a_keeper_does_not_block_others(tmp_path):
    folder = tmp_path / "warm"
    folder.mkdir(mode=0o700)
    imports = Imports(importer.__name__, ("json",), dict(os.environ))
    with open(folder / "salt", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable):
            ask(
                Warm(Executor(folder, os.getpid()), 1.0), imports, (0, 1, 2), time.monotonic() + 0.1
            )


def test_a_slot_does_without_a_keeper_that_does_not_start(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import threading; threading.Event().wait()")
    environment = dict(os.environ, PYTHONPATH=str(tmp_path))
    imports = Imports(importer.__name__, ("json",), environment)
    with pytest.raises(Unavailable):
        ask(
            Warm(Executor(tmp_path / "warm", os.getpid()), 1.0),
            imports,
            (0, 1, 2),
            time.monotonic() + 0.5,
        )


def test_a_slot_without_a_keeper_starts_its_zygote_as_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "KeptProcess", lambda *_, **__: pytest.fail("asked"))
    with ProcessRunner(program(abs, preload=LIGHT)) as runner:
        assert psutil.Process(runner._zygote.process.pid).ppid() == os.getpid()


def test_a_keeper_needs_the_standard_library_alone():
    code = (
        f"import sys; before = set(sys.modules); import {keeper.__name__}; "
        "print([n for n in set(sys.modules) - before "
        "if n.partition('.')[0] not in {*sys.stdlib_module_names, 'spark_jobs'}])"
    )
    words = [sys.executable, "-c", code]
    output = subprocess.run(words, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "answer", [Answer(), Answer(pid=7), Answer(problem="ü" * 9_000), Answer(stale=True)]
)
def test_an_answer_fits_into_a_packet(answer):
    data = answer.to_json()
    assert len(data) < 1 << 16
    read = Answer.from_json(data)
    assert (read.pid, read.stale) == (answer.pid, answer.stale)
    assert answer.problem.startswith(read.problem)


def test_a_request_says_how_long_to_stay():
    assert Request.from_json(Request(1.5).to_json()) == Request(1.5)


@pytest.mark.parametrize("kind", [Request, Answer])
@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"7", b"{}", b'{"pid": null, "seconds": null}', b'{"seconds": "a"}', b"\xff"],
)
def test_what_is_no_packet_is_refused(kind, data):
    with pytest.raises(ValueError):
        kind.from_json(data)
