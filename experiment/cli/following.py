"""Following a trial's output to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from experiment.cli.activity import may_run
from experiment.run_files.loading import Run, RunReader
from experiment.run_files.ownership import owner_of
from search.errors import ExperimentError
from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.messages import decode
from spark_jobs.run_folder.marks import Silence
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import open_regular


class Followed:
    """Tells from the files of a run whether a trial, whose output is followed, has ended.

    Args:
        paths: The run's paths.
        trial: The trial's id.
        clock: Returns the time in seconds, by any clock.
    """

    def __init__(
        self, paths: RunPaths, trial: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = RunReader(paths)
        self._trial = trial
        self._clock = clock
        self._silence = Silence(time_limits.DRIVER_SILENCE, 2 * time_limits.DRIVER_BEAT, clock())
        self._seen: float | None = None

    def has_ended(self, attempt: int, outcome: Path) -> bool:
        """Return whether the trial has ended, or its driver is gone.

        The slot of a lost executor writes no outcome; the driver records one. After a failure the
        trial may run again, which the driver decides.

        Args:
            attempt: The number of the trial's newest attempt.
            outcome: The outcome file of that attempt.
        """
        try:
            run = self._reader.read()
        except ExperimentError:  # a damaged journal hides no logs
            return outcome.exists()
        if self._is_driver_gone(run) or any(r.id == self._trial for r in run.result.trials):
            return True
        return _is_last(outcome) and (self._trial, attempt) not in run.lost

    def _is_driver_gone(self, run: Run) -> bool:
        owner, now = owner_of(run.paths), self._clock()
        if owner is None or owner.alive is not None or owner.seen != self._seen:
            self._silence.restart(now)
        self._seen = None if owner is None else owner.seen
        return not may_run(run) or self._silence.is_over(now)


def _is_last(outcome: Path) -> bool:
    """Return whether there is an outcome after which a trial does not run again."""
    try:
        with open_regular(outcome) as file:
            return decode(file.read(), Outcome).status != "failed"
    except FileNotFoundError:
        return False
    except (OSError, ExperimentError):  # no outcome that a slot has written
        return True
