"""Outcomes found in trial folders when a run is resumed.

A slot writes `outcome.json` before it tells the driver, so a trial that ended while there was no
driver, or whose end the journal lacks, need not run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from search.trial import Outcome, Trial
from spark_jobs.messages import LARGEST_MESSAGE, Attempt, ProtocolError, as_json, decode
from spark_jobs.run_folder.paths import OUTCOME, TRIAL, TRIALS, attempt_name, parse_attempt_name
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location

_NOTHING_OF_OURS = (FileNotFoundError, ProtocolError)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What the attempts at a trial have left.

    Attributes:
        trial: Its id.
        attempts: The number of the newest attempt.
        end: The first attempt that came to an end, and what became of it; None where none did.
    """

    trial: int
    attempts: int
    end: tuple[Attempt, Outcome] | None = None

    def end_of(self, trial: Trial) -> tuple[Attempt, Outcome] | None:
        """Return `end`, if it is one of this trial with these hyperparameters."""
        same = self.end is not None and as_json(self.end[0].trial) == as_json(trial)
        return self.end if same else None


def look_for_outcomes(
    files: WritableFiles,
    root: Location,
    ended: Container[int],
    tried_again: Container[tuple[int, int]] = (),
) -> Iterator[LeftBehind]:
    """Yield what each trial that has a folder has left.

    Args:
        files: Of the run.
        root: The run's folder.
        ended: Trials that are known to have ended; they are passed over.
        tried_again: Trials and attempts after which they were to run again; that these failed
            is no end.

    Raises:
        OSError: The folder of the trials cannot be read.
    """
    for trial, numbers in _attempts(files, root).items():
        if trial not in ended:
            yield _look(files, root, trial, numbers, tried_again)


@dataclass(frozen=True, slots=True)
class Ignored:
    """An outcome in the folder of an attempt that does not count.

    Attributes:
        trial: The trial.
        attempt: The attempt's number.
        why: In a few words.
    """

    trial: int
    attempt: int
    why: str


def ignored_outcomes(
    files: WritableFiles,
    root: Location,
    counted: Mapping[int, int],
    known: Container[tuple[int, int]],
) -> Iterator[Ignored]:
    """Yield each outcome that a trial has left and that is not its end.

    What a trial without an end has left counts when the run is resumed, unless nobody can read it.

    Args:
        files: Of the run.
        root: The run's folder.
        counted: The attempt that each trial ended with.
        known: Trials and attempts of which it is known that they failed, to run again.

    Raises:
        OSError: The folder of the trials cannot be read.
    """
    for trial, numbers in _attempts(files, root).items():
        for number in numbers:
            if counted.get(trial) == number:
                continue
            try:
                folder = root.below(attempt_name(trial, number))
                outcome = decode(_read(files, folder.below(OUTCOME)), Outcome)
            except FileNotFoundError:
                continue
            except _NOTHING_OF_OURS:
                yield Ignored(trial, number, "it is no outcome that a slot has written")
                continue
            if outcome.trial != trial:
                yield Ignored(trial, number, f"it is that of trial {outcome.trial}")
            elif trial in counted and not (outcome.status == "failed" and (trial, number) in known):
                yield Ignored(trial, number, f"attempt {counted[trial]} counts")


def _attempts(files: WritableFiles, root: Location) -> dict[int, list[int]]:
    """Return the numbers of each trial's attempts that have a folder, in ascending order."""
    attempts: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in files.names(root.below(TRIALS)):
            trial, number = parse_attempt_name(name)
            if number:
                attempts.setdefault(trial, []).append(number)
    return {trial: sorted(numbers) for trial, numbers in attempts.items()}


def _look(
    files: WritableFiles,
    root: Location,
    trial: int,
    numbers: list[int],
    tried_again: Container[tuple[int, int]],
) -> LeftBehind:
    for number in numbers:  # the first finish wins
        folder = root.below(attempt_name(trial, number))
        try:
            attempt = decode(_read(files, folder.below(TRIAL)), Attempt)
            outcome = decode(_read(files, folder.below(OUTCOME)), Outcome)
        except _NOTHING_OF_OURS:
            continue
        was_tried_again = number < numbers[-1] or (trial, number) in tried_again
        if outcome.status == "failed" and was_tried_again:
            continue
        is_of_it = outcome.trial == trial and attempt.number == number
        if is_of_it and outcome.status != "cancelled":
            return LeftBehind(trial, numbers[-1], (attempt, outcome))
    return LeftBehind(trial, numbers[-1])


def _read(files: WritableFiles, location: Location) -> bytes:
    status, data = files.status(location), bytearray()
    if not 0 < status.length <= LARGEST_MESSAGE:  # a pipe, too, has no length
        raise ProtocolError(f"{location}: no message of ours")
    files.read(status, data.extend)
    return bytes(data)
