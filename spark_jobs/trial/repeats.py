"""Repeats of a train function within one trial, whose mean is the trial's value."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from search.stopping.racing import mean
from search.trial import UNNAMED_OBJECTIVE, Outcome
from spark_jobs.messages import ProtocolError, Report, decode, encode
from spark_jobs.run_folder.paths import REPEATS
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.trial import context
from spark_jobs.trial.objective import EmptyHistory
from spark_jobs.trial.random_numbers import seed_repeat

_NO_EPOCH_LEFT = (
    "got None and no report: the checkpoint that the trial began with has the last epoch already; "
    "save its metrics in the checkpoint, and return them in this case"
)
_LONGEST_WAIT = 0.5  # seconds: five times the pause between messages of a slot to the driver
_SHARE_OF_WAIT = 0.05
_POLL = 0.01


class _Call(msgspec.Struct, frozen=True):
    """A call that was made.

    Attributes:
        outcome: Its outcome.
        next_step: The step after the last one of its curves.
    """

    outcome: Outcome
    next_step: int


def outcome_of(
    running: context.TrialContext, train: Callable[..., Any], read: Callable[[Any], Outcome]
) -> Outcome | None:
    """Call a train function, and read what it returns.

    With several calls, the value of each is reported as a step, and the outcome has the means. A
    trial that is stopped meanwhile makes no further call. After an attempt that was lost, the next
    one makes the calls that are left.

    Args:
        running: The trial.
        train: The train function. Each call has hyperparameters that it may change.
        read: Returns the outcome of a returned value.

    Returns:
        The outcome; None in a worker of a rank above 0, where the function may return nothing.
    """
    calls = _calls_before(running) if running.repeats > 1 else []
    outcomes = [] if running.rank else [made.outcome for made in calls]
    unsent: list[Report] = []
    for number, outcome in enumerate(outcomes):
        _note(running, number, outcome, unsent)
    for number in range(len(calls), running.repeats):
        context.begin_repeat(running, number)
        seed_repeat(running.seed, running.trial, number)
        started = time.monotonic()
        call = functools.partial(train, **copy.deepcopy(dict(running.params)))
        returned = _returned(running, call)
        if not running.rank:
            outcomes.append(read(returned))
            if running.repeats > 1:
                calls.append(_Call(outcomes[-1], running.next_step))
                _keep(running, calls)
                _note(running, number, outcomes[-1], unsent)
                _send(running, unsent)
        if number + 1 < running.repeats:
            if outcomes and outcomes[-1].value is not None:  # which was reported
                _await_answer(running, time.monotonic() - started)
            if reason := _why_stop(running):
                running.stopped = reason
                break
    _send(running, unsent)  # of an attempt that was lost after its last call
    return _mean(outcomes) if outcomes else None


def _calls_before(running: context.TrialContext) -> list[_Call]:
    """Return the calls that earlier attempts have made; the workers agree on their number."""
    calls: list[_Call] = []
    # Without the file, or with one that another program wrote, all calls are made.
    with contextlib.suppress(OSError, ProtocolError):
        calls = decode(_file(running).read_bytes(), list[_Call], largest=None)
    # The checkpoints may be those of the trial that this one resumes from.
    calls = [made for made in calls if made.outcome.trial == running.trial]
    number = min(len(calls), running.repeats)
    if running.communicator is not None:
        (least,) = running.communicator.all_reduce([number], "min")
        number = int(least)
    running.next_step = max((made.next_step for made in calls[:number]), default=0)
    return calls[:number]


def _keep(running: context.TrialContext, calls: Sequence[_Call]) -> None:
    """Keep the calls for the next attempt, which makes them again if they cannot be written."""
    with contextlib.suppress(OSError):
        make_folder(_file(running).parent)
        write_whole(_file(running), encode(calls))


def _file(running: context.TrialContext) -> Path:
    return running.folder / REPEATS


def _returned(running: context.TrialContext, call: Callable[[], Any]) -> Any:
    try:
        returned = call()
    except context.StepsDone:
        return {} if running.reported is None else dict(running.reported.metrics)
    silent = returned is None and running.reported is None and not running.rank
    if silent and running.resumes and running.max_steps is not None:
        raise EmptyHistory(_NO_EPOCH_LEFT)
    return returned


def _await_answer(running: context.TrialContext, seconds: float) -> None:
    """Wait a moment for the driver's answer to a report, without which another call is made.

    Args:
        running: The trial.
        seconds: The time that the call took, of which the wait takes a small part.
    """
    end = time.monotonic() + min(_LONGEST_WAIT, _SHARE_OF_WAIT * seconds)
    while time.monotonic() < end and not running.link.stop():
        time.sleep(_POLL)


def _why_stop(running: context.TrialContext) -> str:
    """Return why the trial is to stop, or ''; the workers agree, since not all hear of it.

    So they wait for the slowest of them, also if they exchange nothing: in a call that a worker
    made alone it would wait for the others for ever.
    """
    reason = running.link.stop()
    if running.communicator is None:
        return reason
    running.communicator.meet()
    (wished,) = running.communicator.all_reduce([int(bool(reason))], "max")
    return reason or ("another worker is to stop" if wished else "")


def _note(
    running: context.TrialContext, number: int, outcome: Outcome, unsent: list[Report]
) -> None:
    if outcome.value is not None:  # several objectives are not judged
        running.last = Report(number, {outcome.objective or UNNAMED_OBJECTIVE: outcome.value})
        unsent.append(running.last)


def _send(running: context.TrialContext, unsent: list[Report]) -> None:
    """Send reports, those of earlier attempts not before the first new one.

    The zygote takes the longest pause before a report for the time that the trial needs to hear of
    a stop, which with repeats is at the end of a call. So no report comes before a call has ended.
    """
    while unsent:
        running.link.send(unsent.pop(0))


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return outcomes[0]
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    return replace(
        outcomes[0],
        value=mean(values) if values else None,
        metrics=_means(outcome.metrics for outcome in outcomes),
        values=_means(outcome.values for outcome in outcomes),
    )


def _means(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number, over the dicts that have it."""
    found: dict[str, list[float]] = {}
    for numbers in of:
        for name, number in numbers.items():
            found.setdefault(name, []).append(number)
    return {name: mean(numbers) for name, numbers in found.items()}
