"""All file names of a run's folder.

Folders are named by numbers, never by hyperparameters or names of the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

OUTCOME = "outcome.json"
"""The outcome file in a trial's folder, written and uploaded last."""

TRIAL = "trial.json"
"""The file in a trial's folder with the trial."""

RETURNED = "returned.msgpack"
"""The file in a trial's folder with the value that a call returned."""

CALLS = "calls"
"""The folder in a run's folder with the functions of calls; removed when the run ends."""

STOP = "stop"
"""The file in a run's folder that ends the search when it appears."""

OWNERS = "owners"
"""The folder in a run's folder with the marks of its drivers."""

MAILBOX = "mailbox"
"""The folder in a run's folder for the mailbox of slots that cannot reach the driver."""

SECRETS = "secrets"
"""The folder in a run's folder with the secrets for slots; removed when the driver ends.

Each driver has a folder of its own in it.
"""

CHECKPOINT = "checkpoint"
"""The folder of a trial's checkpoints, in the trial's folder."""

REPEATS = f"{CHECKPOINT}/repeats.json"
"""The file in a trial's folder with the outcomes of its repeats, beside the checkpoints of each."""

EPOCHS = "keras-epochs.jsonl"
"""The file in a trial's folder with the epochs that `fit` of Keras has trained, a line each."""

MANIFEST = "manifest.json"
"""The file in a run's folder with the arguments of its search."""

RESULT = "result.json"
"""The file in a run's folder that is written at the end of the search."""

KNOWN = "known.json"
"""The file in a run's folder with the prior observations, from other runs."""

JOURNAL = "journal"
"""The folder in a run's folder with the segments of its journal."""

SEARCH = "search"
"""The folder in a run's folder that is the search's own TensorBoard run."""

TRIALS = "trials"
"""The folder in a run's folder that holds the trials' folders."""

WORKERS = "workers"
"""The folder in a trial's folder with the folders of its workers of ranks above 0."""


def attempt_name(trial: int, number: int = 1, rank: int = 0) -> str:
    """Return the path, below a run's folder, of attempt `number`, from 1, at a trial.

    Args:
        trial: The trial's id.
        number: The attempt's number.
        rank: The rank of the worker whose files are meant; the attempt's own are those of rank 0.
    """
    name = f"{TRIALS}/{trial:06d}" + (f"-{number}" if number > 1 else "")
    return f"{name}/{WORKERS}/{rank}" if rank else name


def is_ours(path: str) -> bool:
    """Return whether a file of a trial is written by us, not by the train function.

    Args:
        path: Its path in the trial's folder.
    """
    own = re.sub(rf"^{WORKERS}/\d+/", "", path)  # the folder of a worker is like the trial's
    ours = (TRIAL, OUTCOME, RETURNED, REPEATS, EPOCHS, "stdout.log", "stderr.log")
    return own in ours or ("/" not in own and own.startswith("events.out.tfevents.trial"))


def attempts_in(names: Iterable[str], trial: int) -> list[str]:
    """Return the names of the attempts at a trial among folders' names, the newest first."""
    numbers = {}
    for name in names:
        if match := re.fullmatch(rf"{trial:06d}(?:-(\d+))?", name):
            numbers[name] = int(match[1] or 1)
    return sorted(numbers, key=lambda name: -numbers[name])


def parse_attempt_name(name: str) -> tuple[int, int]:
    """Return trial and attempt of a folder's name; attempt 0 for any other name."""
    match = re.fullmatch(r"([0-9]{6,15})(?:-([1-9][0-9]{0,8}))?", name)
    return (int(match[1]), int(match[2] or 1)) if match else (0, 0)


def is_event_file(name: str) -> bool:
    """Return whether TensorBoard reads a file, by its name or path."""
    return "tfevents" in name.rpartition("/")[2]


def only_grows(name: str) -> bool:
    """Return whether a file of a run is append-only: a log, an event file or a journal.

    Checkpoints are not, whatever their names are: train functions may rewrite them in place.
    """
    grows = is_event_file(name) or name.endswith((".log", ".jsonl"))
    return grows and f"/{CHECKPOINT}/" not in f"/{name}"


def run_of_secret(path: str) -> str | None:
    """Return the run's folder for the path of a file in `SECRETS`; None for any other path."""
    folders = Path(path).parents
    return str(folders[2]) if len(folders) > 2 and folders[1].name == SECRETS else None


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The files of one attempt at a trial.

    Attributes:
        folder: Its folder.
        scratch: The folder for the files of the train function, which are not kept; None to keep
            them in `folder`.
    """

    folder: Path
    scratch: Path | None = None

    @property
    def logdir(self) -> Path:
        """The folder for the files of the train function, and for the curves of TensorBoard."""
        return self.scratch or self.folder

    @property
    def trial(self) -> Path:
        """The trial."""
        return self.folder / TRIAL

    @property
    def checkpoint(self) -> Path:
        """The checkpoint folder to resume from."""
        return self.logdir / CHECKPOINT

    @property
    def outcome(self) -> Path:
        """The outcome."""
        return self.folder / OUTCOME

    @property
    def stdout(self) -> Path:
        """The trial's standard output."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """The trial's standard error."""
        return self.folder / "stderr.log"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of a run, on this host.

    Attributes:
        root: The run's folder.
        kept_at: The run's location in its store, as users call it; '' for `root` itself.
    """

    root: Path
    kept_at: str = ""

    def shown(self, path: Path | None = None) -> str:
        """Return the users' name for the run's folder, or for a path below it."""
        parts = () if path is None else path.relative_to(self.root).parts
        return "/".join((self.kept_at or str(self.root), *parts))

    def shown_attempt(self, trial: int, number: int = 1) -> str:
        """Return the users' name for the folder of attempt `number`, from 1, at a trial."""
        return f"{self.shown()}/{attempt_name(trial, number)}"

    @property
    def manifest(self) -> Path:
        """The manifest: space, direction, algorithm, seed, versions."""
        return self.root / MANIFEST

    @property
    def known(self) -> Path:
        """The prior observations, from other runs; missing without any."""
        return self.root / KNOWN

    @property
    def result(self) -> Path:
        """The best trial and the summary, written at the end."""
        return self.root / RESULT

    @property
    def journal(self) -> Path:
        """The folder of the journal's segments."""
        return self.root / JOURNAL

    @property
    def owners(self) -> Path:
        """The folder of the drivers' marks."""
        return self.root / OWNERS

    @property
    def secrets(self) -> Path:
        """The folder of the secrets that the driver shares with its slots."""
        return self.root / SECRETS

    @property
    def search(self) -> Path:
        """The TensorBoard run of the search itself."""
        return self.root / SEARCH

    @property
    def trials(self) -> Path:
        """The folder of the trials' folders, each a TensorBoard run."""
        return self.root / TRIALS

    def attempt(self, trial: int, number: int = 1, rank: int = 0) -> AttemptPaths:
        """Return the files of attempt `number`, from 1, at a trial; `rank` as in `attempt_name`."""
        return AttemptPaths(self.root / attempt_name(trial, number, rank))
