"""Outcomes found in trial folders when a run is resumed.

A slot writes `outcome.json` before it sends the outcome to the driver, so a trial that ended
without a driver, or whose outcome the journal lacks, need not run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from search.trial import Outcome, Trial
from spark_jobs.messages import (
    GIVEN_UP,
    LARGEST_MESSAGE,
    Attempt,
    ProtocolError,
    as_json,
    decode,
)
from spark_jobs.run_folder.paths import OUTCOME, TRIAL, TRIALS, attempt_name, parse_attempt_name
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The outcomes found in a trial's folders.

    Attributes:
        trial: The trial's id.
        attempts: The number of the newest attempt.
        ends: The attempts whose outcomes may count, in ascending order, and their outcomes.
    """

    trial: int
    attempts: int
    ends: tuple[tuple[Attempt, Outcome], ...] = ()

    def end_of(self, trial: Trial) -> tuple[Attempt, Outcome] | None:
        """Return the first one of this trial with these hyperparameters; None without any."""
        wanted = as_json(trial)
        return next((end for end in self.ends if as_json(end[0].trial) == wanted), None)


def look_for_outcomes(
    files: WritableFiles,
    root: Location,
    ended: Container[int],
    retried: Container[tuple[int, int]] = (),
) -> Iterator[LeftBehind]:
    """Yield the outcomes, if there are any, of each trial that has a folder.

    Args:
        files: The run's store.
        root: The run's folder.
        ended: Trials whose outcomes are known; they are skipped.
        retried: Trial and number of attempts whose failure is not the trial's outcome, since a
            retry followed or the attempt ran on several slots.

    Raises:
        OSError: The trial folders cannot be listed.
    """
    for trial, numbers in _attempts(files, root).items():
        if trial not in ended:
            yield _look(files, root, trial, numbers, retried)


@dataclass(frozen=True, slots=True)
class Ignored:
    """An outcome in a trial folder that does not count.

    Attributes:
        trial: The trial's id.
        attempt: The attempt's number.
        why: The reason, in a few words.
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
    """Yield each outcome in a trial folder that is not the trial's outcome.

    The outcome of a trial that has none yet may count when the run is resumed, see
    `look_for_outcomes`, unless it cannot be read or the attempt was given up.

    Args:
        files: The run's store.
        root: The run's folder.
        counted: The number of each trial's last attempt, by trial.
        known: Trial and number of attempts that are known to have failed and were retried.

    Raises:
        OSError: The trial folders cannot be listed.
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
            except ProtocolError:
                yield Ignored(trial, number, "it is no outcome that a slot has written")
                continue
            if outcome.trial != trial:
                yield Ignored(trial, number, f"it is that of trial {outcome.trial}")
            elif trial in counted:
                if outcome.status not in ("failed", "cancelled") or (trial, number) not in known:
                    yield Ignored(trial, number, f"attempt {counted[trial]} counts")
            elif outcome.reason == GIVEN_UP:
                yield Ignored(trial, number, GIVEN_UP)


def _attempts(files: WritableFiles, root: Location) -> dict[int, list[int]]:
    """Return the numbers of the attempts that have a folder, by trial, in ascending order."""
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
    retried: Container[tuple[int, int]],
) -> LeftBehind:
    ends = []
    for number in numbers:
        folder = root.below(attempt_name(trial, number))
        try:
            attempt = decode(_read(files, folder.below(TRIAL)), Attempt)
            outcome = decode(_read(files, folder.below(OUTCOME)), Outcome)
        except (FileNotFoundError, ProtocolError):
            continue
        was_retried = number < numbers[-1] or (trial, number) in retried
        if outcome.status == "failed" and was_retried:
            continue
        is_of_it = outcome.trial == trial and attempt.number == number
        was_broken_off = outcome.status == "cancelled" or outcome.reason == GIVEN_UP
        if is_of_it and not was_broken_off:
            ends.append((attempt, outcome))
    return LeftBehind(trial, numbers[-1], tuple(ends))


def _read(files: WritableFiles, location: Location) -> bytes:
    status, data = files.status(location), bytearray()
    if not 0 < status.length <= LARGEST_MESSAGE:  # a pipe has length 0
        raise ProtocolError(f"{location}: no message of ours")
    files.read(status, data.extend)
    return bytes(data)
