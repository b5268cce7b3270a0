"""Repeats of a train function within one trial, whose mean is the trial's value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from search.trial import UNNAMED_OBJECTIVE, Outcome
from spark_jobs.messages import Report
from spark_jobs.trial import context


def outcome_of(
    running: context.TrialContext, call: Callable[[], Any], read: Callable[[Any], Outcome]
) -> Outcome | None:
    """Call a train function, and read what it returns.

    With several calls, the value of each is reported as a step, and the outcome has the means. A
    trial that is stopped meanwhile makes no further call.

    Args:
        running: The trial.
        call: Calls the train function.
        read: Returns the outcome of a returned value.

    Returns:
        The outcome; None in a worker of a rank above 0, where the function may return nothing.
    """
    outcomes: list[Outcome] = []
    for number in range(running.repeats):
        context.begin_repeat(running, number)
        returned = _returned(running, call)
        if not running.rank:
            outcomes.append(read(returned))
            if running.repeats > 1:
                _report(running, number, outcomes[-1])
        if number + 1 < running.repeats and (reason := _why_stop(running)):
            running.stopped = reason
            break
    return _mean(outcomes) if outcomes else None


def _returned(running: context.TrialContext, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except context.StepsDone:
        return {} if running.reported is None else dict(running.reported.metrics)


def _why_stop(running: context.TrialContext) -> str:
    """Return why the trial is to stop, or ''; the workers agree, since not all hear of it."""
    reason = running.link.stop()
    if running.communicator is None:
        return reason
    (wished,) = running.communicator.all_reduce([int(bool(reason))], "max")
    return reason or ("another worker is to stop" if wished else "")


def _report(running: context.TrialContext, number: int, outcome: Outcome) -> None:
    if outcome.value is not None:  # several objectives are not judged
        running.last = Report(number, {outcome.objective or UNNAMED_OBJECTIVE: outcome.value})
        running.link.send(running.last)


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return outcomes[0]
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    return replace(
        outcomes[0],
        value=fmean(values) if values else None,
        metrics=_means(outcome.metrics for outcome in outcomes),
        values=_means(outcome.values for outcome in outcomes),
    )


def _means(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number, over the dicts that have it."""
    found: dict[str, list[float]] = {}
    for numbers in of:
        for name, number in numbers.items():
            found.setdefault(name, []).append(number)
    return {name: fmean(numbers) for name, numbers in found.items()}
