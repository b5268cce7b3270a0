"""Every file name of a run's folder, in one place.

Folders carry numbers, never parameter text or names of the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The files of one attempt at a trial."""

    folder: Path

    @property
    def trial(self) -> Path:
        """What was asked for."""
        return self.folder / "trial.json"

    @property
    def outcome(self) -> Path:
        """What became of it."""
        return self.folder / "outcome.json"

    @property
    def stdout(self) -> Path:
        """Everything that the trial printed."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Everything that the trial printed as an error."""
        return self.folder / "stderr.log"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of a run."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What the run is: space, direction, algorithm, seed, versions."""
        return self.root / "manifest.json"

    @property
    def result(self) -> Path:
        """The best trial and the summary, written at the end."""
        return self.root / "result.json"

    @property
    def journal(self) -> Path:
        """Folder of the journal's segments."""
        return self.root / "journal"

    @property
    def search(self) -> Path:
        """TensorBoard run of the search itself."""
        return self.root / "search"

    @property
    def trials(self) -> Path:
        """Folder of the trials' folders, each a TensorBoard run."""
        return self.root / "trials"

    def probe(self, nonce: str) -> Path:
        """The file by which an executor recognises the driver's folder."""
        return self.root / f".probe-{nonce}"

    def attempt(self, trial: int, number: int = 1) -> AttemptPaths:
        """Return the files of attempt `number`, from 1, at a trial."""
        name = f"{trial:06d}" if number == 1 else f"{trial:06d}-{number}"
        return AttemptPaths(self.trials / name)
