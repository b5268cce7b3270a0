"""Run folders of searches of any size, written record by record without running any trial."""

from __future__ import annotations

import random
from pathlib import Path

from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import Begun, Finished, Joined, Planned
from experiment.run_files.manifest import Manifest, Summary, now, versions, write_manifest
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.messages import encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import make_folder, write_whole

SPACE = Space.of_bounds(
    {"learning_rate": [0.1, 0.0001], "units": [8, 512], "optimizer": ["adam", "sgd"]}
)
SLOTS = 16


class RecordedRun:
    """A run to which trials are added.

    Args:
        root: The run's folder.
        total: Number of trials of the whole search.
    """

    def __init__(self, root: Path, total: int) -> None:
        self.paths = RunPaths(root)
        make_folder(self.paths.trials)
        write_manifest(self.paths, _manifest(total))
        self._journal = Journal(self.paths.journal)
        self._random = random.Random(7)
        self._at = 1_800_000_000.0
        self._trials = 0
        start = {"records": 0, "application": "local-1", "created": now(), "function": "0" * 64}
        self._journal.append(Begun(at=self._at, trials=total, **start))
        for slot in range(SLOTS):
            self._journal.append(Joined(f"1.{slot}.0", f"host{slot // 4}", (), at=self._at))

    def add(self, trials: int) -> None:
        """Append the records of some trials that have ended."""
        for _ in range(trials):
            number, slot = self._trials, f"1.{self._trials % SLOTS}.0"
            trial = Trial(number, SPACE.decode([self._random.random() for _ in SPACE]))
            self._at += 0.25
            self._journal.append(Planned(trial, 1, slot, at=self._at))
            value = self._random.random()
            metrics = {"accuracy": value, "loss": 1 - value}
            outcome = Outcome(number, "finished", value, "accuracy", metrics, seconds=3.5)
            self._journal.append(Finished(1, outcome, at=self._at + 3.5))
            self._trials += 1

    def end(self) -> None:
        """Write what the end of a search writes."""
        self._journal.close()
        facts = {"problem": None, "target": None, "best": None, "ended": now()}
        summary = Summary(direction="max", trials=self._trials, failed=0, **facts)
        write_whole(self.paths.result, encode(summary))


def _manifest(total: int) -> Manifest:
    return Manifest(
        name="recorded",
        description="",
        call="random_search",
        train="train",
        function="0" * 64,
        algorithm={"type": "random", "samples": total},
        space=SPACE.to_json(),
        trials=total,
        known=0,
        slots=None,
        direction="max",
        optimization_key="accuracy",
        seed=7,
        isolation="process",
        timeout=None,
        constraint=None,
        stopping=[],
        application="local-1",
        master="local[16]",
        created=now(),
        versions=versions(),
    )
