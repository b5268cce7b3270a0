"""The records of a journal, which `Recorder` writes, and the reading of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from experiment.run_files.format import FORMAT
from experiment.run_files.journal import JournalDamaged
from search.errors import shown
from search.searcher import Selection
from search.trial import Failure, FailureKind, Outcome, Trial
from search.values import as_unicode
from spark_jobs.messages import Attempt, ProtocolError, Report, from_json, prepare

WaitReason = Literal[
    "no trial yet", "nothing left", "gpu set aside", "host avoided", "too few slots"
]
"""Why a slot waits.

'no trial yet' (the search has none until others have an outcome, as at the end of a generation, or
until an executor gets calls), 'nothing left' (for this slot; but Spark would kill another attempt
of its task, which has a trial or may get one, if this attempt ended), 'gpu set aside' (a GPU of the
slot gets no more trials), 'host avoided' (the trials that are waiting to run again have died on its
host), 'too few slots' (fewer are free than a trial needs).
"""


class _Recorded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """The base class of all records.

    Attributes:
        at: The time of writing, in seconds since 1970, by the driver's clock.
    """

    at: float


class Begun(_Recorded, frozen=True, kw_only=True, tag="begun"):
    """An application starts or resumes the run; the first record of each segment.

    Attributes:
        records: Number of records before it, in all segments.
        application: Spark's id of the application.
        created: The time of the call of the search, in UTC.
        function: The train function's hash, as in the manifest.
        trials: Number of trials of the search.
        format: The segment's format version.
    """

    records: int
    application: str
    created: str
    function: str
    trials: int
    format: int = FORMAT


class Joined(_Recorded, frozen=True, tag="joined"):
    """A slot may get trials from now on.

    Attributes:
        slot: The slot's name.
        host: Spark's name of its host.
        gpus: Addresses of the GPUs that Spark has assigned to it.
    """

    slot: str
    host: str
    gpus: tuple[str, ...]


class Left(_Recorded, frozen=True, tag="left"):
    """A slot gets no more trials. Slots that stay until the search ends have no such record.

    Attributes:
        slot: The slot's name.
        why: The reason, in a few words.
    """

    slot: str
    why: str

    @classmethod
    def of(cls, slot: str, why: str, at: float) -> Left:
        """Return the record of a slot that has left."""
        return cls(slot, as_unicode(why), at=at)


class Waiting(_Recorded, frozen=True, tag="waiting"):
    """A slot waits until it gets a trial or leaves; written once per reason."""

    slot: str
    why: WaitReason


class Planned(_Recorded, frozen=True, tag="planned", omit_defaults=True):
    """An attempt was given to its slots.

    Attributes:
        trial: The trial.
        attempt: The attempt's number.
        slot: The slot of rank 0; '' for an outcome found in a trial folder.
        slots: All slots by rank, if there are several.
        acquisition: The searcher's acquisition at the trial; None if no model has proposed it.
    """

    trial: Trial
    attempt: int
    slot: str
    slots: tuple[str, ...] = ()
    acquisition: float | None = None

    @classmethod
    def of(
        cls, attempt: Attempt, slots: tuple[str, ...], at: float, acquisition: float | None = None
    ) -> Planned:
        """Return the record of an attempt."""
        slot, several = slots[0] if slots else "", slots if len(slots) > 1 else ()
        return cls(attempt.trial, attempt.number, slot, several, acquisition, at=at)


class Lost(_Recorded, frozen=True, kw_only=True, tag="lost"):
    """An attempt has failed, and its trial is waiting to run again.

    Attributes:
        slot: The slot on which it has failed.
        counts: Whether it counts as one of the trial's `retries`.
    """

    trial: int
    attempt: int
    slot: str
    kind: FailureKind
    message: str
    counts: bool

    @classmethod
    def of(cls, attempt: Attempt, slot: str, failure: Failure, *, counts: bool, at: float) -> Lost:
        """Return the record of an attempt whose failure is retried."""
        return cls(
            trial=attempt.trial.id,
            attempt=attempt.number,
            slot=slot,
            kind=failure.kind,
            message=as_unicode(failure.message),
            counts=counts,
            at=at,
        )


class Reported(_Recorded, frozen=True, tag="reported"):
    """Reports of the objective by a trial that has stopping rules."""

    trial: int
    attempt: int
    reports: list[Report]


class Finished(_Recorded, frozen=True, tag="finished"):
    """A trial has ended, with an outcome."""

    attempt: int
    outcome: Outcome


class Selected(_Recorded, frozen=True, tag="selected"):
    """The searcher has selected the trials of its population."""

    selections: list[Selection]


Record = Begun | Joined | Left | Waiting | Planned | Lost | Reported | Finished | Selected

prepare(Record)

_KINDS: Mapping[Any, type[Record]] = {kind.__struct_config__.tag: kind for kind in get_args(Record)}


def _record_of(line: Mapping[str, Any]) -> Record:
    """Return the record of a line; ProtocolError if it is not one."""
    event = line.get("event")
    kind = _KINDS.get(event) if isinstance(event, str) else None
    if kind is None:
        raise ProtocolError(f"no record is called {shown(event)}")
    return from_json(line, kind)  # with a union, msgspec would inspect all kinds at each record


class RecordReader:
    """Reads the lines of a journal as records, in several parts.

    Args:
        where: The journal's name for users.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0
        self._planned: set[int] = set()
        self._ended: set[int] = set()  # trials that never run again

    def read(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
        """Yield the records of lines.

        Args:
            lines: The lines after those of the last call, as `JournalReader` yields them.

        Raises:
            JournalDamaged: A line is not a record, or contradicts earlier ones.
        """
        for line in lines:
            self._count += 1
            try:
                record = _record_of(line)
                self._check(record)
            except ProtocolError as error:
                damage = f"{self._where}, record {self._count}: {error}"
                raise JournalDamaged(damage) from None
            yield record

    def _check(self, record: Record) -> None:
        match record:
            case Planned(trial=trial):
                if not 0 <= trial.id < self._count:  # each trial before it has a record
                    raise ProtocolError(f"there can be no trial {trial.id} yet")
                self._planned.add(trial.id)
            case Lost(trial=ended) | Finished(outcome=Outcome(trial=ended)):
                if ended not in self._planned:
                    raise ProtocolError(f"trial {ended} was never planned")
                if isinstance(record, Lost) and ended in self._ended:
                    raise ProtocolError(f"trial {ended} was lost after its end")
                if isinstance(record, Finished) and record.outcome.status != "cancelled":
                    self._ended.add(ended)


def read_records(lines: Iterable[Mapping[str, Any]], where: str) -> Iterator[Record]:
    """Yield the records of a journal's lines; see `RecordReader`."""
    return RecordReader(where).read(lines)
