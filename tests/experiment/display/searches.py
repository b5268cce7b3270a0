"""States of searches, and progress displays that record what they show."""

from experiment.display.frames import Frame
from experiment.display.progress import Progress
from experiment.results.result import Result
from experiment.results.status import Running, Status
from experiment.results.trial_result import TrialResult
from search.direction import Direction
from search.trial import Failure, Trial
from spark_jobs.messages import Attempt

HOSTILE = "a\x1b[2Jb\x1b]0;t\x07c\rd\x9be\u202ef\ng<b>h</b>$x$[red]i[/red]:smile:"
HARMLESS = "a?[2Jb?]0;t?c?d?e?f?g<b>h</b>$x$[red]i[/red]:smile:"


def finished(number, value=0.5, params=None):
    return TrialResult(
        id=number,
        params=params or {},
        value=value,
        metrics={},
        status="finished",
        error=None,
        seconds=1.0,
        logdir="",
    )


def failed(number, message="ValueError: no"):
    error = Failure(kind="user error", message=message, traceback="Traceback")
    return TrialResult(
        id=number,
        params={},
        value=None,
        metrics={},
        status="failed",
        error=error,
        seconds=1.0,
        logdir="",
    )


def stopped(number, reason="step 7: too bad"):
    return TrialResult(
        id=number,
        params={},
        value=0.25,
        metrics={},
        status="stopped",
        error=None,
        seconds=1.0,
        logdir="",
        reason=reason,
    )


def running(number, since=0.0, generation=None, params=None, last=None):
    return Running(
        attempt=Attempt(Trial(number, params or {}, generation=generation)), since=since, last=last
    )


def status(total=5, results=(), out=(), slots=1, objective="accuracy", typical=None):
    """Return the status of a coordinator after these results."""
    results = list(results)
    best = Direction.MAX.best(results, lambda result: result.value)
    return Status(
        total=total,
        results=results,
        ended=len(results),
        failed=sum(result.status == "failed" for result in results),
        cancelled=sum(result.status == "cancelled" for result in results),
        running=tuple(out),
        slots=slots,
        at_once=slots,
        best=best,
        objective=objective,
        typical=typical,
    )


def frame(state, seconds=10.0, waiting="", ended=False):
    return Frame(
        name="train", status=state, seconds=seconds, waiting=waiting, now=seconds, ended=ended
    )


def result_of(state):
    return Result(state.results, Direction.MAX, "/runs", total=state.total)


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Recording:
    """A view that records its frames and lines."""

    every = 2.0

    def __init__(self):
        self.frames, self.lines, self.closed = [], [], 0

    def show(self, frame):
        assert not self.closed
        self.frames.append(frame)

    def write(self, line):
        self.lines.append(line)

    def close(self):
        self.closed += 1


def begin(name, folder, asked, **arguments):
    """Create a `Progress` as the driver does."""
    progress = Progress(name, **arguments)
    progress.asked = asked
    progress.announce(folder)
    return progress
