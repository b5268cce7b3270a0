"""The slot's side of a zygote."""

from __future__ import annotations

import tempfile

import pytest

from spark_jobs.zygote.link import ZygoteLink

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
    link = ZygoteLink.__new__(ZygoteLink)  # without a process
    with tempfile.TemporaryFile() as link._log:
        link._log.write(log.encode())
        failure = link._died()
    assert (failure.kind, failure.message) == ("machine", message)
