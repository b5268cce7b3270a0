"""Kills of slot, zygote, importer, keeper and JVM, also during an import, leave no process."""

from __future__ import annotations

import os
import signal
import time

import pytest

from spark_jobs.warm.asking import Imports, Warm, start
from spark_jobs.warm.executor import Executor
from spark_jobs.zygote.shared_import import GUESSED, IMPORTER
from tests.experiment.waiting import wait_until
from tests.spark_jobs.slot.running import alive
from tests.spark_jobs.warm.hosts import host_in

DOUBLED = ["finished", 5.0, ""]

HANGS_AT_FIRST = """
import os, pathlib, time
with open({imports!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
while len(pathlib.Path({imports!r}).read_text().split()) == 1:
    time.sleep(0.01)
"""

IMPATIENT = """
from spark_jobs import time_limits
time_limits.WARM_IMPORT = 0.5
"""

HANGS_IN_AN_IMPORTER = """
import sys
import threading
if "spark_jobs.zygote.importer" in sys.orig_argv:
    with open({tries!r}, "a") as file:
        file.write("x")
    threading.Event().wait()
"""

IMPATIENT_LATER = """
import os
import pathlib
from spark_jobs import time_limits
del time_limits.WARM_IMPORT
def limit(name):
    if name != "WARM_IMPORT":
        raise AttributeError(name)
    return 0.5 if pathlib.Path({flag!r}).read_text() == str(os.getpid()) else 120.0
time_limits.__getattr__ = limit
"""


@pytest.fixture
def host(tmp_path):
    with host_in(tmp_path) as host:
        yield host


@pytest.fixture
def imports(host, tmp_path):
    """Return the processes that have imported the module `noted`, which hangs the first time."""
    path = tmp_path / "imports"
    path.touch()
    (host.modules / "noted.py").write_text(HANGS_AT_FIRST.format(imports=str(path)))
    return lambda: [int(pid) for pid in path.read_text().split()]


def gone(*processes):
    return lambda: not any(alive(process) for process in processes)


@pytest.mark.fault(7)
def test_a_killed_zygote_leaves_nothing_when_its_slot_learns_of_it(host):
    slot = host.slot().start()
    slot.hang()
    slot.zygote.kill()
    assert slot.hear() == ["failed", None, "machine"]
    assert slot.left() == []
    assert slot.run("double", x=2.5) == DOUBLED
    assert alive(slot.importer)
    assert alive(slot.keeper)


@pytest.mark.fault(7)
def test_a_killed_slot_leaves_no_zygote_and_no_trial_but_the_importer(host):
    slot = host.slot().start()
    slot.hang()
    slot.process.kill()
    wait_until(lambda: slot.left() == [] and not alive(slot.zygote))
    other = host.slot().start()
    assert other.importer == slot.importer
    assert other.run("double", x=2.5) == DOUBLED


@pytest.mark.fault(7)
def test_a_killed_slot_leaves_no_zygote_that_its_trial_has_stopped(host):
    slot = host.slot().start()
    slot.ask("stop_supervisor", tag=slot.tag)
    wait_until(lambda: slot.left() and slot.zygote.status() == "stopped")
    slot.process.kill()
    wait_until(lambda: slot.left() == [] and not alive(slot.zygote))


@pytest.mark.fault(7)
def test_one_slots_end_does_not_touch_the_trial_of_another(host):
    slots = [host.slot().start(), host.slot().start()]
    assert slots[0].importer == slots[1].importer
    for slot in slots:
        slot.hang()
    slots[0].zygote.kill()
    assert slots[0].hear() == ["failed", None, "machine"]
    assert slots[0].left() == []
    assert len(slots[1].left()) == 3


@pytest.mark.fault(7)
def test_all_end_with_the_jvm(host):
    idle, busy = host.slot().start(), host.slot().start()
    busy.hang()
    host.jvm.kill()
    for slot in (idle, busy):  # as the JVM's end ends them
        slot.process.kill()
    wait_until(gone(idle.keeper, idle.importer, idle.zygote, busy.zygote))
    assert busy.left() == []


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(7)
def test_a_trial_survives_the_kill_of_the_importer(host):
    slot = host.slot().start()
    slot.hang()
    slot.importer.kill()
    wait_until(gone(slot.importer))
    wait_until(lambda: slot.zygote.ppid() == slot.keeper.pid)
    assert len(slot.left()) == 3
    other = host.slot().start()  # from another keeper
    assert other.kept
    assert other.keeper != slot.keeper
    slot.zygote.kill()
    assert slot.hear() == ["failed", None, "machine"]
    assert slot.left() == []
    assert slot.run("double", x=2.5) == DOUBLED
    wait_until(gone(slot.keeper))


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(7)
def test_a_trial_survives_an_importer_that_does_not_fork_any_more(host):
    flag = host.root / "impatient"
    flag.touch()
    (host.modules / "sitecustomize.py").write_text(IMPATIENT_LATER.format(flag=str(flag)))
    slot = host.slot().start()
    slot.hang()
    slot.importer.suspend()
    flag.write_text(str(slot.keeper.pid))
    other = host.slot().start()  # from another keeper
    assert other.kept
    assert other.keeper != slot.keeper
    assert not alive(slot.importer)
    assert len(slot.left()) == 3
    assert alive(slot.zygote)


@pytest.mark.fault(7)
def test_a_trial_survives_the_kill_of_the_keeper(host, tmp_path):
    slot = host.slot().start()
    flag = tmp_path / "continue"
    slot.ask("report_and_wait", x=1.5, flag=str(flag))
    wait_until(slot.zygote.children)  # else the slot would run it in another zygote
    slot.keeper.kill()
    wait_until(gone(slot.keeper, slot.importer))
    flag.touch()
    assert slot.hear()[0] == "finished"
    assert slot.run("double", x=2.5) == DOUBLED  # in another zygote
    wait_until(gone(slot.zygote))
    assert len(host.keepers()) == 1


@pytest.mark.fault(7)
def test_the_kill_of_keeper_and_slot_leaves_nothing(host):
    slot = host.slot().start()
    slot.hang()
    slot.keeper.kill()
    wait_until(gone(slot.keeper, slot.importer))
    assert len(slot.left()) == 3
    slot.process.kill()
    wait_until(lambda: slot.left() == [] and not alive(slot.zygote))


@pytest.mark.fault(7)
@pytest.mark.parametrize("kept", [True, False], ids=["keeper", "importer"])
def test_a_kill_during_the_import_delays_the_slot_only(host, imports, kept):
    """Without an importer the slot imports by itself; after a keeper's death another one does."""
    slot = host.slot(preload=["noted"])
    wait_until(imports)
    (keeper,) = host.keepers()
    (importer,) = host.importers()
    assert importer.pid == imports()[0]
    (keeper if kept else importer).kill()
    assert slot.start().kept == kept
    assert not alive(importer)
    assert slot.run("double", x=2.5) == DOUBLED


@pytest.mark.fault(7)
def test_a_slot_killed_during_the_import_leaves_it_to_the_next(host, imports):
    first, second = host.slot(preload=["noted"]), host.slot(preload=["noted"])
    wait_until(imports)
    first.process.kill()
    with open(host.root / "imports", "a") as file:
        file.write("0\n")
    assert second.start().kept
    assert len(imports()) == 2


@pytest.mark.fault(7)
def test_an_import_that_hangs_ends_with_the_jvm(host, imports):
    slot = host.slot(preload=["noted"])
    wait_until(imports)
    (keeper,), (importer,) = host.keepers(), host.importers()
    slot.process.kill()
    host.jvm.kill()
    wait_until(gone(keeper, importer))


@pytest.mark.fault(4)
def test_an_import_that_hangs_is_one_that_slots_do_by_themselves(host, tmp_path):
    tries = tmp_path / "tries"
    tries.touch()
    (host.modules / "sitecustomize.py").write_text(IMPATIENT)
    (host.modules / "hangs.py").write_text(HANGS_IN_AN_IMPORTER.format(tries=str(tries)))
    slot = host.slot(preload=["hangs"]).start()
    assert not slot.kept
    assert slot.run("double", x=2.5) == DOUBLED
    (keeper,) = host.keepers()
    other = host.slot(preload=["hangs"]).start()
    assert not other.kept
    assert host.keepers() == [keeper]
    assert tries.read_text() in ("", "x")  # the first may end before its imports
    assert host.importers() == []


def test_an_import_that_fails_is_one_that_slots_do_by_themselves(host, tmp_path):
    notes = tmp_path / "notes"
    (host.modules / "fails_once.py").write_text(
        f"import pathlib; path = pathlib.Path({str(notes)!r})\n"
        "if not path.exists():\n    path.touch()\n    raise ValueError('not yet')"
    )
    slot = host.slot(preload=["fails_once"]).start()
    assert not slot.kept
    assert slot.run("double", x=2.5) == DOUBLED
    assert not host.slot(preload=["fails_once"]).start().kept
    assert len(host.keepers()) == 1


def test_a_stopped_application_removes_the_folder_and_ends_its_keepers(host):
    slot = host.slot().start()
    slot.close()
    assert alive(slot.keeper)
    host.folder.rename(host.root / "elsewhere")
    wait_until(gone(slot.keeper, slot.importer))


def test_a_keeper_ends_when_it_was_idle_for_long_enough(host):
    slot = host.slot(seconds=0.0).start()
    assert slot.kept
    assert slot.run("double", x=2.5) == DOUBLED
    slot.close()
    wait_until(gone(slot.keeper, slot.importer))


def test_the_latest_search_says_how_long_a_keeper_stays(host):
    slots = [host.slot(seconds=seconds).start() for seconds in (300.0, 0.0)]
    assert slots[0].keeper == slots[1].keeper
    for slot in slots:
        slot.close()
    wait_until(gone(slots[0].keeper, slots[0].importer))


def test_an_import_that_is_begun_again_stays_for_as_long_as_asked_for_then(host):
    asked = Imports(IMPORTER, ("json", GUESSED), host.environment)
    for seconds in (300.0, 0.0):
        start(Warm(Executor(host.folder, host.jvm.pid), seconds), asked, time.monotonic() + 60)
    wait_until(lambda: not host.keepers())


def test_a_keeper_that_is_stopped_is_done_without(host):
    keeper = host.slot(preload=["json"]).start().keeper
    os.kill(keeper.pid, signal.SIGSTOP)
    (host.modules / "sitecustomize.py").write_text(
        "from spark_jobs import time_limits; time_limits.WARM_ANSWER = 0.5"
    )
    slot = host.slot(preload=["json"]).start()
    assert not slot.kept
    assert slot.run("double", x=2.5) == DOUBLED
    os.kill(keeper.pid, signal.SIGCONT)
