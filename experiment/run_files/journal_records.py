"""The records of a journal: what `Coordinator` writes and what is read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from experiment.run_files.journal import JournalDamaged
from search.trial import UNNAMED_OBJECTIVE, Failure, FailureKind, Outcome
from search.values import to_json
from spark_jobs.messages import (
    Attempt,
    ProtocolError,
    Work,
    attempt_of,
    outcome_of_json,
    outcome_to_json,
)


class Planned(msgspec.Struct, frozen=True, tag="planned", tag_field="event"):
    """An attempt was given to a slot; '' to none, for what a trial had left in its folder."""

    trial: int
    attempt: int
    params: dict[str, Any]
    generation: int | None = None
    parent: int | None = None
    slot: str = ""

    @classmethod
    def of(cls, attempt: Attempt, slot: str = "") -> Planned:
        """Return the record of an attempt."""
        trial = attempt.trial
        params = {name: to_json(value) for name, value in trial.params.items()}
        return cls(trial.id, attempt.number, params, trial.generation, trial.parent, slot)

    def read(self) -> Attempt:
        """Return the attempt; ProtocolError where a value is none of ours."""
        work = Work(self.trial, self.attempt, self.params, self.generation, self.parent)
        return attempt_of(work)


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
    """Steps of a trial that is judged, with the values of its objective, and what it called it."""

    trial: int
    attempt: int
    values: list[tuple[int, float | str]]
    objective: str = UNNAMED_OBJECTIVE


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="event"):
    """A trial came to an end."""

    attempt: int
    outcome: dict[str, Any]

    @classmethod
    def of(cls, attempt: Attempt, outcome: Outcome) -> Finished:
        """Return the record of an outcome."""
        return cls(attempt.number, outcome_to_json(outcome))

    def read(self) -> Outcome:
        """Return the outcome; ProtocolError where it is none."""
        return outcome_of_json(self.outcome)


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


def read_records(
    lines: Iterable[Mapping[str, Any]], where: str
) -> Iterator[tuple[Record, Attempt | Outcome | None]]:
    """Yield the records of a journal's lines, each with what it holds: an attempt or an outcome.

    Args:
        lines: As `read_journal` yields them.
        where: What users call the journal.

    Raises:
        JournalDamaged: A line is no record, or contradicts those before it.
    """
    planned: set[int] = set()
    for number, line in enumerate(lines, start=1):
        held: Attempt | Outcome | None = None
        try:
            record: Record = msgspec.convert(line, Record)
            if isinstance(record, Planned):
                held = record.read()
                planned.add(record.trial)
            elif isinstance(record, Finished):
                held = record.read()
                if held.trial not in planned:
                    raise ProtocolError(f"trial {held.trial} was never planned")
            elif isinstance(record, Lost) and record.trial not in planned:
                raise ProtocolError(f"trial {record.trial} was never planned")
        except (msgspec.ValidationError, ProtocolError) as error:
            raise JournalDamaged(f"{where}, record {number}: {error}") from None
        yield record, held
