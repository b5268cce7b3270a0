"""The messages between a slot and its zygote."""

from __future__ import annotations

import msgspec

from search.trial import Outcome
from spark_jobs.messages import Report
from spark_jobs.trial.pipe.link import EndTrial, StopTrial
from spark_jobs.trial.trial_process import Task


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The zygote can run trials.

    Attributes:
        start_method: 'fork', or 'spawn' if a fork would hang.
        reason: Why it is not the requested 'fork'; '' otherwise.
    """

    start_method: str
    reason: str = ""


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The zygote cannot run trials, and ends."""

    reason: str


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A trial's process runs; its process group has the same number."""

    pid: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A trial has ended and no process of it is left.

    Attributes:
        exit: Exit code of its process, or minus the signal's number.
        overdue: Whether it was ended: at the time limit, since it did not stop, or on request.
        seconds: Seconds from the fork to the end.
        stopped: The reason of its stop request; '' without one.
        memory: Its memory limits, if it ended for lack of memory; '' otherwise.
        end_request: The reason of its request to end; '' without one.
        outcome: The outcome that its process wrote; None without one.
    """

    exit: int
    overdue: bool
    seconds: float
    outcome: Outcome | None = None
    stopped: str = ""
    memory: str = ""
    end_request: str = ""


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The zygote watches the trial."""


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """The trial reported."""

    report: Report


ToZygote = Task | StopTrial | EndTrial
FromZygote = Ready | Broken | Started | Alive | Reported | Ended
