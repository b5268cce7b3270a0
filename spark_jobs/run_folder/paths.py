"""Every file name of a run's folder, in one place.

Folders carry numbers, never parameter text or names of the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

OUTCOME = "outcome.json"
"""The file of a trial's folder that is written, and uploaded, last."""

TRIAL = "trial.json"
"""The file of a trial's folder that says what was asked for."""

RETURNED = "returned.msgpack"
"""The file of a trial's folder with what a call returned."""

CALLS = "calls"
"""The folder of a run's folder with what the processes of calls need; gone when the run ends."""

STOP = "stop"
"""The file of a run's folder that ends the search."""

OWNERS = "owners"
"""The folder of a run's folder with a mark of each driver that ran it."""

MAILBOX = "mailbox"
"""The folder of a run's folder with messages of slots that do not reach the driver, and answers."""

SECRETS = "secrets"
"""The folder of a run's folder with what slots must know and nobody else may; gone with the driver.

Each driver has a folder of its own in it.
"""

CHECKPOINT = "checkpoint"
"""The folder of a trial's checkpoints, in the trial's folder."""

RESULT = "result.json"
"""The file of a run's folder that is written at the end of the search."""

KNOWN = "known.json"
"""The file of a run's folder with the trials of other runs that the search has learnt from."""

JOURNAL = "journal"
"""The folder of a run with the segments of its journal."""

SEARCH = "search"
"""The folder of a run that is the search's own TensorBoard run."""

TRIALS = "trials"
"""The folder of a run that holds the trials' folders."""


def attempt_name(trial: int, number: int = 1) -> str:
    """Return the path, below a run's folder, of attempt `number`, from 1, at a trial."""
    return f"{TRIALS}/{trial:06d}" + (f"-{number}" if number > 1 else "")


def is_ours(name: str) -> bool:
    """Is a file of this name in every trial's folder, whatever its train function writes?"""
    ours = (TRIAL, OUTCOME, RETURNED, "stdout.log", "stderr.log")
    return name in ours or name.startswith("events.out.tfevents.trial")


def attempts_in(names: Iterable[str], trial: int) -> list[str]:
    """Return those of the folders' names that are attempts at a trial, the newest first."""
    numbers = {}
    for name in names:
        if match := re.fullmatch(rf"{trial:06d}(?:-(\d+))?", name):
            numbers[name] = int(match[1] or 1)
    return sorted(numbers, key=lambda name: -numbers[name])


def parse_attempt_name(name: str) -> tuple[int, int]:
    """Return trial and attempt of a folder's name; attempt 0 where it is no attempt's."""
    match = re.fullmatch(r"([0-9]{6,15})(?:-([1-9][0-9]{0,8}))?", name)
    return (int(match[1]), int(match[2] or 1)) if match else (0, 0)


def only_grows(name: str) -> bool:
    """Is a file of this name only ever added to, such as a log, an event file or a journal?"""
    return "tfevents" in name or name.endswith((".log", ".jsonl"))


def run_of_secret(path: str) -> str | None:
    """Return the run's folder of a file that a driver has below `SECRETS`; None for any other."""
    folders = Path(path).parents
    return str(folders[2]) if len(folders) > 2 and folders[1].name == SECRETS else None


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The files of one attempt at a trial."""

    folder: Path

    @property
    def trial(self) -> Path:
        """What was asked for."""
        return self.folder / TRIAL

    @property
    def checkpoint(self) -> Path:
        """The checkpoint folder to resume from."""
        return self.folder / CHECKPOINT

    @property
    def outcome(self) -> Path:
        """What became of it."""
        return self.folder / OUTCOME

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
    """The files of a run, on this host.

    Attributes:
        root: The run's folder.
        kept_at: Where the run is kept, as users call it; '' for `root` itself.
    """

    root: Path
    kept_at: str = ""

    def shown(self, path: Path | None = None) -> str:
        """Return what users call the run's folder, or a path below it."""
        parts = () if path is None else path.relative_to(self.root).parts
        return "/".join((self.kept_at or str(self.root), *parts))

    def shown_attempt(self, trial: int, number: int = 1) -> str:
        """Return what users call the folder of attempt `number`, from 1, at a trial."""
        return f"{self.shown()}/{attempt_name(trial, number)}"

    @property
    def manifest(self) -> Path:
        """What the run is: space, direction, algorithm, seed, versions."""
        return self.root / "manifest.json"

    @property
    def known(self) -> Path:
        """Prior observations, from other runs; not there without any."""
        return self.root / KNOWN

    @property
    def result(self) -> Path:
        """The best trial and the summary, written at the end."""
        return self.root / RESULT

    @property
    def stop(self) -> Path:
        """There once somebody wants the search to end."""
        return self.root / STOP

    @property
    def journal(self) -> Path:
        """Folder of the journal's segments."""
        return self.root / JOURNAL

    @property
    def owners(self) -> Path:
        """Folder of the marks of the drivers that ran it."""
        return self.root / OWNERS

    @property
    def secrets(self) -> Path:
        """Folder of the secrets that the driver shares with its slots."""
        return self.root / SECRETS

    @property
    def search(self) -> Path:
        """TensorBoard run of the search itself."""
        return self.root / SEARCH

    @property
    def trials(self) -> Path:
        """Folder of the trials' folders, each a TensorBoard run."""
        return self.root / TRIALS

    def attempt(self, trial: int, number: int = 1) -> AttemptPaths:
        """Return the files of attempt `number`, from 1, at a trial."""
        return AttemptPaths(self.root / attempt_name(trial, number))
