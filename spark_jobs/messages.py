"""The messages of slots, driver and trial processes: JSON, checked on arrival.

Nothing that a process sent is unpickled by its receiver. Each message is one JSON object; msgspec
checks names and types while it decodes. ARCHITECTURE.md describes the messages for other clients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import msgspec

from search.errors import ExperimentError
from search.trial import Failure, FailureKind, Outcome, Status, Trial
from search.values import from_json, to_json

LARGEST_MESSAGE = 1 << 20
"""Bytes. Outcomes hold numbers and a cut traceback; a message beyond this is not one of ours."""

MOST_METRICS = 1_000
"""Metrics of a trial that are kept of what it reports."""

M = TypeVar("M")
_LONGEST = 10_000  # characters of a sentence
_LONGEST_NAME = 300  # of a host, or of the address of a GPU
_MOST_SAID = 1_000  # sentences, GPUs
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_Slot = Annotated[str, msgspec.Meta(pattern=rf"\A{_NUMBER}\.{_NUMBER}\.{_NUMBER}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Sentence = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
_Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)]
_Step = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what an event file holds


class ProtocolError(ExperimentError):
    """Bytes that are not the message that they should be."""


class SlotId(NamedTuple):
    """Which slot: the attempt of Spark at a task of a slot job. `str` is its name in messages.

    Attributes:
        job: Number of the slot job, from 1.
        partition: Of the task, from 0.
        attempt: Of Spark at the task, from 0.
    """

    job: int
    partition: int
    attempt: int

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the slot of a name; ProtocolError where it is none."""
        try:
            return cls(*map(int, name.split(".")))
        except (ValueError, TypeError):
            raise ProtocolError(f"{name!r} is no slot") from None

    @property
    def task(self) -> tuple[int, int]:
        """The task, which Spark tries again as the next attempt: job and partition."""
        return self.job, self.partition

    def __str__(self) -> str:
        return f"{self.job}.{self.partition}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a trial; a trial whose executor was lost is tried again."""

    trial: Trial
    number: int = 1


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot's first words.

    Attributes:
        slot: "<job>.<partition>.<task attempt>", unique in a run.
        host: Where it runs.
        problem: Why it cannot work, in one sentence; ''.
        warnings: What the user should know, each once.
        free_gpus: GPUs of the host, where Spark does not assign any; 0 where it does.
        gpus: Addresses of the GPUs that Spark gave it.
        set_aside: Those of them that are to get no more trials, each with a sentence that says why.
        detour: What the user should know of a channel that is slower than need be, shown of one
            slot only; ''.
    """

    slot: _Slot
    host: _Name
    problem: _Sentence = ""
    warnings: Annotated[tuple[_Sentence, ...], msgspec.Meta(max_length=_MOST_SAID)] = ()
    free_gpus: _Count = 0
    gpus: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=_MOST_SAID)] = ()
    set_aside: Annotated[dict[_Name, _Sentence], msgspec.Meta(max_length=_MOST_SAID)] = {}
    detour: _Sentence = ""

    def cut(self) -> Hello:
        """Return these words with long texts cut to what the driver takes."""
        return msgspec.structs.replace(
            self,
            host=self.host[:_LONGEST_NAME],
            problem=_ends(self.problem, _LONGEST // 2),
            warnings=tuple(_ends(text, _LONGEST // 2) for text in self.warnings),
            detour=_ends(self.detour, _LONGEST // 2),
        )


class Welcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's answer to `Hello`.

    Attributes:
        now: Its clock, seconds since 1970.
    """

    now: float


class Next(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot hands in its last outcome, if it has one, and asks for the next trial."""

    slot: _Slot
    attempt: _Count = 0
    outcome: dict[str, Any] | None = None


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="work"):
    """A trial to run."""

    trial: int
    attempt: int
    params: dict[str, Any]
    generation: int | None = None
    parent: int | None = None


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a trial says of itself on its way: a step, and metrics; infinities and NaN as text."""

    step: _Step
    metrics: dict[str, float | str]

    def __post_init__(self) -> None:
        for value in self.metrics.values():
            float(value)  # a ValueError is refused as what has a wrong type

    @classmethod
    def of(cls, step: int, metrics: Mapping[str, float]) -> Report:
        """Return a report of plain numbers."""
        return cls(step, _finite_or_text(metrics))

    def after(self, before: Report) -> Report:
        """Return this report, with the metrics that only the one before has.

        Of more than `MOST_METRICS`, which take long to merge, those that were reported last.
        """
        new = dict(itertools.islice(self.metrics.items(), MOST_METRICS))
        if room := MOST_METRICS - len(new):
            old = [item for item in before.metrics.items() if item[0] not in new]
            new = dict(old[-room:]) | new
        return Report(self.step, new)

    def value(self, name: str) -> float | None:
        """Return a metric, or None where it was not reported."""
        return float(self.metrics[name]) if name in self.metrics else None


class Reports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot passes on what its trial reported, in order.

    Attributes:
        slot: As in `Hello`.
        trial: That runs there.
        attempt: Which attempt at it.
        reports: What it said.
        output: What it printed, where the user wants to see that.
    """

    slot: _Slot
    trial: _Count
    attempt: _Count
    reports: tuple[Report, ...]
    output: str = ""


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's answer to `Reports`.

    Attributes:
        stop: Why the trial is to stop, for people; '' to go on.
    """

    stop: str = ""


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait"):
    """Nothing yet: ask again."""


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stop"):
    """No work is left for this slot."""


Answer = Work | Wait | Stop


class _Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: FailureKind
    message: str
    traceback: str


class _Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trial: int
    status: Status
    value: float | None
    objective: str | None
    metrics: dict[str, float | str]
    error: _Failure | None
    seconds: float
    reason: str = ""
    step: _Step | None = None
    values: dict[str, float] = {}


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return msgspec.json.encode(message)


def decode(data: bytes, kind: type[M], largest: int = LARGEST_MESSAGE) -> M:
    """Return the message in `data`, of at most `largest` bytes.

    Raises:
        ProtocolError: Too long, not JSON, nested too deeply, or not of this kind.
    """
    if len(data) > largest:
        raise ProtocolError(f"{len(data)} bytes, more than {largest}")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def decode_answer(data: bytes) -> Answer:
    """Return the driver's answer to `Next`; ProtocolError as `decode`."""
    return decode(data, Answer)  # type: ignore[arg-type]  # a union is not a type to mypy


def work_of(attempt: Attempt) -> Work:
    """Return an attempt as a message."""
    trial = attempt.trial
    params = {name: to_json(value) for name, value in trial.params.items()}
    return Work(trial.id, attempt.number, params, trial.generation, trial.parent)


def attempt_of(work: Work) -> Attempt:
    """Return the attempt in a message; ProtocolError where a value is none of ours."""
    try:
        params = {name: from_json(value) for name, value in work.params.items()}
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    return Attempt(Trial(work.trial, params, work.generation, work.parent), work.attempt)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON; metrics that JSON has no number for become text."""
    error = outcome.error
    data = {
        "trial": outcome.trial,
        "status": outcome.status,
        "value": outcome.value,
        "objective": outcome.objective,
        "metrics": _finite_or_text(outcome.metrics),
        "error": error
        and {"kind": error.kind, "message": error.message, "traceback": error.traceback},
        "seconds": outcome.seconds,
        "reason": outcome.reason,
        "step": outcome.step,
    }
    return data | {"values": dict(outcome.values)} if outcome.values else data


def outcome_of_json(data: Any) -> Outcome:
    """Return the outcome that `outcome_to_json` was given.

    Raises:
        ProtocolError: Not an outcome, or one that contradicts itself.
    """
    try:
        checked = msgspec.convert(data, _Outcome)
        metrics = {name: float(value) for name, value in checked.metrics.items()}
    except (msgspec.ValidationError, ValueError) as problem:
        raise ProtocolError(str(problem)) from None
    failed, valued = checked.error is not None, checked.value is not None or bool(checked.values)
    fits = checked.status == "stopped" or valued == (checked.status == "finished")
    one_and_several = checked.value is not None and checked.values
    if failed != (checked.status == "failed") or not fits or one_and_several:
        raise ProtocolError(f"status {checked.status!r} contradicts the rest of the outcome")
    error = checked.error
    failure = None if error is None else Failure(error.kind, error.message, error.traceback)
    return Outcome(
        checked.trial,
        checked.status,
        checked.value,
        checked.objective,
        metrics,
        failure,
        checked.seconds,
        checked.reason,
        checked.step,
        checked.values,
    )


def fit(outcome: Outcome) -> Outcome:
    """Return an outcome that fits into a message: long texts keep their two ends."""
    error, reason = outcome.error, _ends(outcome.reason, 500)
    if error is None:
        return replace(outcome, reason=reason)
    short = Failure(error.kind, _ends(error.message, 2_000), _ends(error.traceback, 40_000))
    return replace(outcome, error=short, reason=reason)


def _ends(text: str, limit: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is not JSON
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n... {len(text) - limit} characters ...\n{text[-limit // 2 :]}"


def _finite_or_text(metrics: Mapping[str, float]) -> dict[str, float | str]:
    return {name: v if math.isfinite(v) else repr(v) for name, v in metrics.items()}
