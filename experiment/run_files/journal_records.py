"""The records of a journal: what `Coordinator` writes and what is read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from experiment.run_files.journal import JournalDamaged
from search.trial import Failure, FailureKind, Outcome, Trial
from spark_jobs.messages import Attempt, ProtocolError, Report, from_json


class Planned(msgspec.Struct, frozen=True, tag="planned", tag_field="event"):
    """An attempt was given to a slot; '' to none, for what a trial had left in its folder."""

    trial: Trial
    attempt: int
    slot: str = ""

    @classmethod
    def of(cls, attempt: Attempt, slot: str = "") -> Planned:
        """Return the record of an attempt."""
        return cls(attempt.trial, attempt.number, slot)


class Lost(msgspec.Struct, frozen=True, tag="lost", tag_field="event"):
    """An attempt whose outcome does not count: its trial runs again.

    Attributes:
        counts: Is it one of the trial's `retries`?
    """

    trial: int
    attempt: int
    slot: str = ""
    kind: FailureKind = "lost executor"
    message: str = ""
    counts: bool = True

    @classmethod
    def of(cls, attempt: Attempt, slot: str, failure: Failure, *, counts: bool) -> Lost:
        """Return the record of an attempt that failed in a way that is tried again."""
        message = failure.message.encode("utf-8", "backslashreplace").decode()
        return cls(attempt.trial.id, attempt.number, slot, failure.kind, message, counts)


class Reported(msgspec.Struct, frozen=True, tag="reported", tag_field="event"):
    """What a trial that is judged has reported of its objective."""

    trial: int
    attempt: int
    reports: list[Report]


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="event"):
    """A trial came to an end."""

    attempt: int
    outcome: Outcome


class Resumed(msgspec.Struct, frozen=True, tag="resumed", tag_field="event"):
    """A new application goes on with the run; first in each segment but the first.

    Attributes:
        records: How many there are before it, in all segments.
        application: Spark's name of the application.
        created: When, in UTC.
        function: As in the manifest.
        trials: How many there are in all, by now.
    """

    records: int
    application: str
    created: str
    function: str
    trials: int


Record = Planned | Lost | Reported | Finished | Resumed


def read_records(lines: Iterable[Mapping[str, Any]], where: str) -> Iterator[Record]:
    """Yield the records of a journal's lines.

    Args:
        lines: As `read_journal` yields them.
        where: What users call the journal.

    Raises:
        JournalDamaged: A line is no record, or contradicts those before it.
    """
    planned: set[int] = set()
    for number, line in enumerate(lines, start=1):
        try:
            record: Record = from_json(line, Record)  # type: ignore[arg-type]  # a union
            match record:
                case Planned(trial=trial):
                    planned.add(trial.id)
                case Lost(trial=ended) | Finished(outcome=Outcome(trial=ended)):
                    if ended not in planned:
                        raise ProtocolError(f"trial {ended} was never planned")
        except ProtocolError as error:
            raise JournalDamaged(f"{where}, record {number}: {error}") from None
        yield record
