"""The records of a journal: what `Coordinator` writes and what is read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from experiment.run_files.format import FORMAT
from experiment.run_files.journal import JournalDamaged
from search.errors import shown
from search.searcher import Selection
from search.trial import Failure, FailureKind, Outcome, Trial
from spark_jobs.messages import Attempt, ProtocolError, Report, from_json

WaitReason = Literal["no trial yet", "nothing left", "gpu set aside", "host avoided"]
"""Why a slot waits.

'no trial yet' (the search has none until others have ended, as at the end of a generation, or until
an executor is given calls), 'nothing left' (but another attempt at the slot's task has a trial, and
Spark would kill it when this one ended), 'gpu set aside' (a GPU of the slot gets no more trials),
'host avoided' (the trials that are to run again have died on its host).
"""


class _Recorded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """What all records have.

    Attributes:
        at: When it was written, in seconds since 1970, by the driver's clock.
    """

    at: float


class Begun(_Recorded, frozen=True, kw_only=True, tag="begun"):
    """An application begins, or goes on with, the run; the first record of each segment.

    Attributes:
        records: How many there are before it, in all segments.
        application: Spark's name of the application.
        created: When the search was called, in UTC.
        function: As in the manifest.
        trials: How many there are in all, by now.
        format: Of the segment, as in the manifest.
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
        slot: Its name.
        host: As Spark calls it.
        gpus: Addresses of the GPUs that Spark gave it.
    """

    slot: str
    host: str
    gpus: tuple[str, ...]


class Left(_Recorded, frozen=True, tag="left"):
    """A slot gets no more trials. Those that are there when the search ends leave with it.

    Attributes:
        slot: Its name.
        why: In a few words.
    """

    slot: str
    why: str

    @classmethod
    def of(cls, slot: str, why: str, at: float) -> Left:
        """Return the record of a slot that is gone."""
        return cls(slot, _unicode(why), at=at)


class Waiting(_Recorded, frozen=True, tag="waiting"):
    """A slot has to wait, until it gets a trial or leaves; written once while the reason stays."""

    slot: str
    why: WaitReason


class Planned(_Recorded, frozen=True, tag="planned"):
    """An attempt was given to a slot; '' to none, for what a trial had left in its folder."""

    trial: Trial
    attempt: int
    slot: str

    @classmethod
    def of(cls, attempt: Attempt, slot: str, at: float) -> Planned:
        """Return the record of an attempt."""
        return cls(attempt.trial, attempt.number, slot, at=at)


class Lost(_Recorded, frozen=True, kw_only=True, tag="lost"):
    """An attempt whose outcome does not count: its trial runs again.

    Attributes:
        counts: Is it one of the trial's `retries`?
    """

    trial: int
    attempt: int
    slot: str
    kind: FailureKind
    message: str
    counts: bool

    @classmethod
    def of(cls, attempt: Attempt, slot: str, failure: Failure, *, counts: bool, at: float) -> Lost:
        """Return the record of an attempt that failed in a way that is tried again."""
        return cls(
            trial=attempt.trial.id,
            attempt=attempt.number,
            slot=slot,
            kind=failure.kind,
            message=_unicode(failure.message),
            counts=counts,
            at=at,
        )


class Reported(_Recorded, frozen=True, tag="reported"):
    """What a trial that is judged has reported of its objective."""

    trial: int
    attempt: int
    reports: list[Report]


class Finished(_Recorded, frozen=True, tag="finished"):
    """A trial came to an end."""

    attempt: int
    outcome: Outcome


class Selected(_Recorded, frozen=True, tag="selected"):
    """The searcher has decided which trials are in its population from now on."""

    selections: list[Selection]


Record = Begun | Joined | Left | Waiting | Planned | Lost | Reported | Finished | Selected

_KINDS: Mapping[Any, type[Record]] = {kind.__struct_config__.tag: kind for kind in get_args(Record)}


def _unicode(text: str) -> str:
    """Return a text that JSON can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _record_of(line: Mapping[str, Any]) -> Record:
    """Return the record that a line holds; ProtocolError where it is none."""
    event = line.get("event")
    kind = _KINDS.get(event) if isinstance(event, str) else None
    if kind is None:
        raise ProtocolError(f"no record is called {shown(event)}")
    return from_json(line, kind)  # of a union msgspec would learn the kinds at each record anew


class RecordReader:
    """Reads the lines of a journal as records, as they come.

    Args:
        where: What users call the journal.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0
        self._planned: set[int] = set()

    def read(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
        """Yield the records of lines.

        Args:
            lines: Those that follow the ones read before, as `JournalReader` yields them.

        Raises:
            JournalDamaged: A line is no record, or contradicts those before it.
        """
        for line in lines:
            self._count += 1
            try:
                record = _record_of(line)
                self._check(record)
            except ProtocolError as error:
                said = f"{self._where}, record {self._count}: {error}"
                raise JournalDamaged(said) from None
            yield record

    def _check(self, record: Record) -> None:
        match record:
            case Planned(trial=trial):
                self._planned.add(trial.id)
            case Lost(trial=ended) | Finished(outcome=Outcome(trial=ended)):
                if ended not in self._planned:
                    raise ProtocolError(f"trial {ended} was never planned")


def read_records(lines: Iterable[Mapping[str, Any]], where: str) -> Iterator[Record]:
    """Yield the records of a journal's lines; see `RecordReader`."""
    return RecordReader(where).read(lines)
