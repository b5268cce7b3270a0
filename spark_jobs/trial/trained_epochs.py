"""The epochs that the attempts of a trial have trained in Keras.

After a lost attempt Keras resumes from its checkpoint, and its History lacks the epochs before. So
`keras_callbacks()` keeps the logs of each epoch in a file, which the next attempt gets with the
checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from spark_jobs.messages import ProtocolError, Report, decode, encode
from spark_jobs.run_folder.paths import CHECKPOINT, EPOCHS
from spark_jobs.storage.local_files import open_appending
from spark_jobs.strategies.settings import STALENESS, WAITING


class _Line(msgspec.Struct, frozen=True):
    """An epoch that was trained.

    Attributes:
        repeat: The number of the call of the train function, from 0.
        fit: The number of the `fit` in this call, from 0.
        epoch: The number of the epoch in this `fit`, as Keras has it, and its logs.
    """

    repeat: int
    fit: int
    epoch: Report


class TrainedEpochs:
    """The epochs of each `fit` of a trial, kept in a file.

    Args:
        folder: The trial's folder, whose file has the epochs of the attempts before.
        writes: Whether to add those of this attempt, once there is a folder for checkpoints: the
            next attempt begins with the first epoch if there is none.
    """

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self._file = folder / EPOCHS
        self._checkpoints = folder / CHECKPOINT
        self._resumes = False  # whether there was a folder for checkpoints
        self._writes = writes
        self._begun: Counter[int] = Counter()  # fits, by repeat
        self._before: dict[int, dict[int, dict[int, Report]]] = {}  # by repeat, fit and epoch
        with contextlib.suppress(OSError):
            for text in self._file.read_bytes().splitlines():
                with contextlib.suppress(ProtocolError):  # a part of a line
                    line = decode(text, _Line)
                    fits = self._before.setdefault(line.repeat, {})
                    # The last one, if it was trained twice.
                    fits.setdefault(line.fit, {})[line.epoch.step] = line.epoch

    def begin(self, repeat: int) -> EpochsOfFit:
        """Return the epochs of a `fit` that begins in a call of the train function."""
        self._resumes = self._resumes or self._checkpoints.is_dir()  # Keras may remove it
        fit = self._begun[repeat]
        self._begun[repeat] += 1
        fits = self._before.get(repeat, {})
        # Of several, a later attempt may skip some, so their numbers would tell nothing.
        before = fits[0] if fit == 0 and list(fits) == [0] else {}
        return EpochsOfFit(self, repeat, fit, before)

    def add(self, line: _Line) -> None:
        """Add an epoch to the file; without room for it, the next attempt lacks it."""
        if self._writes and self._resumes:
            with (
                contextlib.suppress(OSError),
                os.fdopen(open_appending(self._file), "ab", buffering=0) as file,
            ):
                file.write(b"\n" + encode(line))  # a part of a line ends here


class EpochsOfFit:
    """The epochs of one `fit`, also those that the attempts before have trained.

    Args:
        trained: The epochs of the trial.
        repeat: The number of the call of the train function.
        fit: The number of the `fit` in this call.
        before: The epochs that the attempts before have trained in it, by number; empty if the
            function calls `fit` several times.
    """

    def __init__(
        self, trained: TrainedEpochs, repeat: int, fit: int, before: dict[int, Report]
    ) -> None:
        self._trained = trained
        self._repeat = repeat
        self._fit = fit
        self._before = before
        self._first = min(before, default=0)  # later in a trial that resumes from another one

    def add(self, epoch: int, logs: dict[str, float]) -> None:
        """Add an epoch of this attempt, with what Keras' History has of its logs."""
        own = {name: value for name, value in logs.items() if name not in (STALENESS, WAITING)}
        self._trained.add(_Line(self._repeat, self._fit, Report(epoch, own)))

    def has_all_before(self, epoch: int) -> bool:
        """Return whether the attempts before have all epochs from their first one to this one."""
        return all(earlier in self._before for earlier in range(self._first, epoch))

    def complete(self, history: Any) -> None:
        """Put the epochs of the attempts before into the History of this one, before its own."""
        first = min(history.epoch, default=self._first + len(self._before))
        if not self.has_all_before(first):  # it began later, without a checkpoint
            return
        earlier = [self._before[epoch] for epoch in range(self._first, first)]
        history.epoch[:0] = [report.step for report in earlier]
        for name in {name: None for report in earlier for name in report.metrics}:
            values = [report.metrics[name] for report in earlier if name in report.metrics]
            history.history.setdefault(name, [])[:0] = values
