"""The messages of slots, driver and trial processes: JSON, checked on arrival.

Receivers never unpickle data. Each message is one JSON object; msgspec checks names and types while
it decodes. docs/internals/messages.md describes the messages for other clients.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec.structs import force_setattr

from search.errors import ExperimentError
from search.trial import Outcome, Step, Trial
from search.values import Metrics, MetricsLike, as_unicode, decode_hook, encode_hook

LARGEST_MESSAGE = 1 << 20
"""Maximum bytes of a message; outcomes have numbers and a truncated traceback."""

MOST_METRICS = 1_000
"""Maximum reported metrics of a trial that are kept."""

GIVEN_UP = "its slot was given up"
"""`Heard.stop` for an attempt that was given up, so that its outcome has this reason."""

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
SLOT_NAME = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
"""The pattern of a slot's name, see `SlotId`."""

M = TypeVar("M")
_LONGEST = 10_000  # maximum characters of a sentence
_LONGEST_NAME = 300  # maximum characters of a host's name or a GPU's address
_MOST_SAID = 1_000  # maximum sentences or GPUs
_Slot = Annotated[str, msgspec.Meta(pattern=rf"\A{SLOT_NAME}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Sentence = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
_HostAndPort = Annotated[str, msgspec.Meta(pattern=r"\A\S{1,300}:[1-9][0-9]{0,4}\Z")]
_Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)]


class ProtocolError(ExperimentError):
    """Bytes that are not a valid message of the expected kind."""


class SlotId(NamedTuple):
    """The id of a slot: Spark's attempt at a task of a slot job. `str` is its name in messages.

    Attributes:
        job: Number of the slot job, from 1.
        partition: Partition of the task, from 0.
        attempt: Number of Spark's attempt at the task, from 0.
    """

    job: int
    partition: int
    attempt: int

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the slot with this name; ProtocolError for an invalid name."""
        try:
            return cls(*map(int, name.split(".")))
        except (ValueError, TypeError):
            raise ProtocolError(f"{name!r} is no slot") from None

    @property
    def task(self) -> tuple[int, int]:
        """The task as (job, partition), of which Spark may make several attempts."""
        return self.job, self.partition

    def __str__(self) -> str:
        return f"{self.job}.{self.partition}.{self.attempt}"


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slot's first message.

    Attributes:
        slot: The slot's name "<job>.<partition>.<task attempt>", unique in a run.
        host: The name of its host.
        problem: Why it cannot run trials, in one sentence; '' if it can.
        warnings: Warnings for the user, each shown once.
        free_gpus: GPUs of the host if Spark does not assign any; 0 if it does.
        gpus: Addresses of the GPUs that Spark assigned to it.
        set_aside: Addresses of GPUs that are to get no more trials, with the reason of each.
        detour: Warning about a channel that is slower than necessary, shown for one slot only; ''.
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
        """Return this message with long texts cut to the driver's limits."""
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
        now: Time of the driver's clock, seconds since 1970.
    """

    now: float


class MemberAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a slot's trial can listen for other members of its gang, as "host:port".

    Attributes:
        links: The address for the links between members.
        server: The address for a server of the training framework, such as TensorFlow's.
    """

    links: _HostAndPort
    server: _HostAndPort


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `Next` that are clear by their order.

    Attributes:
        slot: The slot's name, as in `Hello`.
        attempt: The number of the attempt with the outcome; 0 without one.
        outcome: The outcome.
    """

    slot: _Slot
    attempt: _Count = 0
    outcome: Outcome | None = None


class Next(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slot's request for the next trial, with its last outcome, if any.

    Attributes:
        address: Where its next trial can listen; None if its trials run on one slot each.
        longer: Seconds by which the slot lets the driver wait longer for work than usually.
    """

    address: MemberAddress | None = None
    longer: _Seconds = 0.0


class Gang(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slots that run an attempt together, as one of them sees it. Secret: it has their key.

    Attributes:
        rank: The rank of this member, from 0; the outcome of rank 0 is the trial's.
        members: Each member's address for links, by rank.
        servers: Each member's address for a server of the training framework, by rank.
        key: The private key of this gang, PEM; all members have the same.
        certificate: Its certificate, PEM.
    """

    rank: _Count
    members: tuple[_HostAndPort, ...]
    servers: tuple[_HostAndPort, ...]
    key: str
    certificate: str

    def __repr__(self) -> str:
        return f"Gang(rank={self.rank}, members={self.members})"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="attempt"):
    """One attempt at a trial, for a slot to run; a trial whose executor was lost is retried.

    Attributes:
        trial: The trial.
        number: The attempt's number, from 1.
        gang: The slots that run it together; None for a single slot, and wherever it is stored.
    """

    trial: Trial
    number: int = 1
    gang: Gang | None = None

    @property
    def rank(self) -> int:
        """The rank of the slot that runs it, from 0."""
        return 0 if self.gang is None else self.gang.rank

    @property
    def workers(self) -> int:
        """The number of slots that run it."""
        return 1 if self.gang is None else len(self.gang.members)

    def without_gang(self) -> Attempt:
        """Return this attempt for files, which must not have the gang's key."""
        return Attempt(self.trial, self.number)


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report of a running trial: a step, and metrics."""

    step: Step
    metrics: MetricsLike

    def __post_init__(self) -> None:
        force_setattr(self, "metrics", Metrics.of(self.metrics))

    def after(self, before: Report) -> Report:
        """Return this report, with the metrics that only the one before has.

        Beyond `MOST_METRICS`, which take long to merge, the last reported ones are kept.
        """
        new = dict(itertools.islice(self.metrics.items(), MOST_METRICS))
        if room := MOST_METRICS - len(new):
            old = [item for item in before.metrics.items() if item[0] not in new]
            new = dict(old[-room:]) | new
        return Report(self.step, new)


class Reports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial's reports, in order, sent by its slot.

    Attributes:
        slot: The slot's name, as in `Hello`.
        trial: The id of the trial that runs there.
        attempt: The attempt's number.
        reports: The reports.
        output: The trial's output, if the user wants to see it.
    """

    slot: _Slot
    trial: _Count
    attempt: _Count
    reports: tuple[Report, ...]
    output: str = ""


class Heard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver's answer to `Reports`.

    Attributes:
        stop: Why the trial is to stop, for people; '' to continue. It returns, or raises.
        end: Why its process is to be ended at once, with its gang; '' to continue.
        pause: Minimum seconds between this message and the slot's next one.
        last_only: Whether the driver needs only the last value of each metric, while a trial runs.
    """

    stop: str = ""
    end: str = ""
    pause: float = 0.0
    last_only: bool = False


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait"):
    """The answer that there is no work yet: the slot asks again.

    Attributes:
        longer: The slot's next `Next.longer`, at most.
    """

    longer: float = 0.0


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stop"):
    """The answer that no work is left for this slot."""


Answer = Attempt | Wait | Stop


def prepare(*kinds: Any) -> None:
    """Let msgspec inspect kinds of messages; call it in the module that defines them.

    Otherwise msgspec inspects a kind when it reads the first message, and crashes the process if
    two threads do so at once and the message has others in it.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind, dec_hook=decode_hook)


prepare(Answer, Next, Reports)


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return msgspec.json.encode(message, enc_hook=encode_hook)


def as_json(message: Any) -> Any:
    """Return a message as a JSON-serialisable object; unlike the message, it equals itself."""
    return msgspec.to_builtins(message, enc_hook=encode_hook)


def decode(data: bytes, kind: type[M], largest: int | None = LARGEST_MESSAGE) -> M:
    """Return the message in `data`, of at most `largest` bytes; None for any length.

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
    """Return the message of a decoded JSON object; ProtocolError if it is not of this kind."""
    try:
        return msgspec.convert(data, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise ProtocolError(str(error)) from None


def decode_answer(data: bytes) -> Answer:
    """Return the driver's answer to `Next`; raises as `decode` does."""
    return decode(data, Answer)  # type: ignore[arg-type]  # a union is not a type to mypy


def fit(outcome: Outcome) -> Outcome:
    """Return an outcome that fits into a message: the middle of long texts is cut out."""
    error, reason = outcome.error, _ends(outcome.reason, 500)
    if error is None:
        return msgspec.structs.replace(outcome, reason=reason)
    short = msgspec.structs.replace(
        error, message=_ends(error.message, 2_000), traceback=_ends(error.traceback, 40_000)
    )
    return msgspec.structs.replace(outcome, error=short, reason=reason)


def _ends(text: str, limit: int) -> str:
    text = as_unicode(text)
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n... {len(text) - limit} characters ...\n{text[-limit // 2 :]}"
