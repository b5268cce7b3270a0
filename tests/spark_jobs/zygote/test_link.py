"""The slot's side of a zygote."""

from __future__ import annotations

import re
import tempfile
import threading

import psutil
import pytest

from spark_jobs import time_limits
from spark_jobs.trial.trial_process import Program
from spark_jobs.zygote.link import RunnerBroken, ZygoteLink
from spark_jobs.zygote.shared_import import OURS

TRACEBACK = """a warning
Traceback (most recent call last):
  File "zygote.py", line 1, in _start
BlockingIOError: [Errno 11] Resource temporarily unavailable
"""


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", "the process that supervises the trial was ended from outside"),
        ("a warning\n", "the process that supervises the trial was ended from outside"),
        (
            TRACEBACK,
            "the process that supervises the trial failed: BlockingIOError: [Errno 11] Resource "
            "temporarily unavailable",
        ),
    ],
)
def test_a_zygote_that_ended_is_named_with_its_error(log, message):
    failure = died(log, during_the_trial=log)
    assert (failure.kind, failure.message) == ("machine", message)


def test_an_error_before_the_trial_did_not_end_the_zygote():
    assert "failed" not in died(TRACEBACK, during_the_trial="").message
    assert "failed" not in died(TRACEBACK + "a warning\n", during_the_trial="a warning\n").message


def died(log, during_the_trial):
    """Return the failure of a link, without a process, whose zygote has written a log."""
    link = ZygoteLink.__new__(ZygoteLink)
    link._logged = len(log) - len(during_the_trial)
    with tempfile.TemporaryFile() as link._log:
        link._log.write(log.encode())
        return link._died()


def test_an_import_that_does_not_end_is_ended_and_named(tmp_path, monkeypatch):
    (tmp_path / "waits_for_ever.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(time_limits, "OWN_IMPORT", 0.5)
    program = Program(function=b"", key=None, direction="max", preload=("waits_for_ever", *OURS))
    with pytest.raises(RunnerBroken) as broken:
        ZygoteLink(program)
    assert str(broken.value) == (
        "the import of waits_for_ever took longer than 0.5 s; see preload="
    )


def test_an_import_that_forks_and_does_not_end_is_ended_too(tmp_path, monkeypatch):
    """The child has the zygote's end of the socket, so that the slot sees no end of the zygote."""
    forked = tmp_path / "forked"
    (tmp_path / "forks.py").write_text(
        "import os, time\n"
        "if (child := os.fork()) == 0:\n"
        "    time.sleep(1000)\n"
        f"with open({str(forked) + '.part'!r}, 'w') as file:\n"
        "    file.write(str(child))\n"
        f"os.replace({str(forked) + '.part'!r}, {str(forked)!r})\n"
        "time.sleep(1000)\n"
    )

    class WhenForked(threading.Timer):
        """A timer whose time is up once the import has forked."""

        def run(self):
            while not forked.exists():
                if self.finished.wait(0.01):
                    return
            self.function()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(threading, "Timer", WhenForked)
    monkeypatch.setattr(time_limits, "OWN_IMPORT", 0.0)
    program = Program(function=b"", key=None, direction="max", preload=("forks", *OURS))
    with pytest.raises(RunnerBroken, match="the import of forks took longer than 0 s"):
        ZygoteLink(program)
    child = psutil.Process(int(forked.read_text()))
    assert child.is_running()  # else the test shows nothing
    child.kill()
    psutil.wait_procs([child])


def test_an_import_that_forks_and_crashes_is_named_with_its_exit_code_at_once(
    tmp_path, monkeypatch
):
    (tmp_path / "forks.py").write_text(
        "import os, sys, time\n"
        "if (child := os.fork()) == 0:\n"
        "    time.sleep(1000)\n"
        "print(f'<{child}>', flush=True)\n"
        "os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(time_limits, "OWN_IMPORT", 1e6)
    with pytest.raises(RunnerBroken, match=r"the zygote ended with 3: .*<\d+>") as caught:
        ZygoteLink(Program(function=b"", key=None, direction="max", preload=("forks", *OURS)))
    child = psutil.Process(int(re.search(r"<(\d+)>", str(caught.value))[1]))
    assert child.is_running()  # else the test shows nothing
    child.kill()
    psutil.wait_procs([child])


def test_a_slot_that_may_start_no_thread_says_so_and_leaves_no_zygote(monkeypatch):
    def refused(timer):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refused)
    before = psutil.Process().children()
    with pytest.raises(RunnerBroken, match="can't start new thread"):
        ZygoteLink(Program(function=b"", key=None, direction="max"))
    assert psutil.Process().children() == before
