"""When and where the trials of a result ran."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class TrialTime(NamedTuple):
    """The last attempt at a trial.

    Attributes:
        start: When it was given to its slots, in seconds since 1970.
        end: When its outcome arrived, or when it failed if the trial was to run again.
        slots: The names of its slots, by rank; empty for an outcome found in a trial folder.
        application: The number of the application that ran it, from 1. Slots of two applications
            may have the same name.
    """

    start: float
    end: float
    slots: tuple[str, ...]
    application: int = 0


@dataclass(slots=True, kw_only=True)
class TrialTimes:
    """The times of the last attempt at each trial; compact, as a search has many trials."""

    _starts: array[float] = field(default_factory=lambda: array("d"))  # by trial
    _ends: array[float] = field(default_factory=lambda: array("d"))  # 0 before the end
    _gangs: array[int] = field(default_factory=lambda: array("i"))  # places in `_slots`
    _slots: list[tuple[tuple[str, ...], int]] = field(default_factory=list)  # and their application
    _places: dict[tuple[tuple[str, ...], int], int] = field(default_factory=dict)
    _application: int = 0

    def begin_application(self) -> None:
        """Record that an application starts or resumes the run."""
        self._application += 1

    def begin(self, trial: int, at: float, slots: Sequence[str]) -> None:
        """Record that an attempt was given to its slots."""
        while len(self._starts) <= trial:
            self._starts.append(0.0)
            self._ends.append(0.0)
            self._gangs.append(0)
        gang = tuple(slots), self._application
        if gang not in self._places:
            self._places[gang] = len(self._slots)
            self._slots.append(gang)
        self._starts[trial], self._ends[trial] = at, 0.0
        self._gangs[trial] = self._places[gang]

    def end(self, trial: int, at: float) -> None:
        """Record that its last attempt has ended."""
        self._ends[trial] = at

    def of(self, trial: int) -> TrialTime | None:
        """Return the times of a trial; None if its last attempt has not ended."""
        if trial >= len(self._ends) or not self._ends[trial]:
            return None
        slots, application = self._slots[self._gangs[trial]]
        return TrialTime(self._starts[trial], self._ends[trial], slots, application)
