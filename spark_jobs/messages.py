"""The messages of slots, driver and trial processes: JSON, checked on arrival.

Nothing that a process sent is unpickled by its receiver. Each message is one JSON object; msgspec
checks names and types while it decodes. ARCHITECTURE.md describes the messages for other clients.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec.structs import force_setattr

from search.errors import ExperimentError
from search.trial import Failure, Outcome, Step, Trial
from search.values import Metrics, MetricsLike, decode_hook, encode_hook

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
    outcome: Outcome | None = None


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="attempt"):
    """One try at a trial, for a slot to run; a trial whose executor was lost is tried again.

    Attributes:
        trial: The trial.
        number: From 1.
    """

    trial: Trial
    number: int = 1


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a trial says of itself on its way: a step, and metrics."""

    step: Step
    metrics: MetricsLike

    def __post_init__(self) -> None:
        force_setattr(self, "metrics", Metrics.of(self.metrics))

    def after(self, before: Report) -> Report:
        """Return this report, with the metrics that only the one before has.

        Of more than `MOST_METRICS`, which take long to merge, those that were reported last.
        """
        new = dict(itertools.islice(self.metrics.items(), MOST_METRICS))
        if room := MOST_METRICS - len(new):
            old = [item for item in before.metrics.items() if item[0] not in new]
            new = dict(old[-room:]) | new
        return Report(self.step, new)


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


Answer = Attempt | Wait | Stop


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return msgspec.json.encode(message, enc_hook=encode_hook)


def as_json(message: Any) -> Any:
    """Return a message as what JSON has: unlike the message itself, it equals itself with NaN."""
    return msgspec.to_builtins(message, enc_hook=encode_hook)


def decode(data: bytes, kind: type[M], largest: int | None = LARGEST_MESSAGE) -> M:
    """Return the message in `data`, of at most `largest` bytes, or of any length.

    Raises:
        ProtocolError: Too long, not JSON, nested too deeply, or not of this kind.
    """
    if largest is not None and len(data) > largest:
        raise ProtocolError(f"{len(data)} bytes, more than {largest}")
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=decode_hook)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def from_json(data: Any, kind: type[M]) -> M:
    """Return the message that JSON has as `data`; ProtocolError where it is not of this kind."""
    try:
        return msgspec.convert(data, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise ProtocolError(str(error)) from None


def decode_answer(data: bytes) -> Answer:
    """Return the driver's answer to `Next`; ProtocolError as `decode`."""
    return decode(data, Answer)  # type: ignore[arg-type]  # a union is not a type to mypy


def fit(outcome: Outcome) -> Outcome:
    """Return an outcome that fits into a message: long texts keep their two ends."""
    error, reason = outcome.error, _ends(outcome.reason, 500)
    if error is None:
        return msgspec.structs.replace(outcome, reason=reason)
    short = Failure(error.kind, _ends(error.message, 2_000), _ends(error.traceback, 40_000))
    return msgspec.structs.replace(outcome, error=short, reason=reason)


def _ends(text: str, limit: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is not JSON
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n... {len(text) - limit} characters ...\n{text[-limit // 2 :]}"
