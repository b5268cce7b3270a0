"""How many trials at once a search is made for, where its algorithm works otherwise by it."""

from __future__ import annotations

from typing import Any

from experiment.setup.resuming import manifest_of
from experiment.setup.settings import Settings


class SlotsAsked:
    """Says, when called, how many trials of a search may be out at once.

    That is how many slots it asks for at first. Where a run is resumed, it is what it was then: the
    algorithm has to make the same trials, whatever the cluster is now.

    Args:
        spark: The user's SparkSession.
        trials: Of the search; None where the algorithm knows.
        settings: What all searches share.

    Attributes:
        number: What it has said; None where nobody has asked.
    """

    def __init__(self, spark: Any, trials: int | None, settings: Settings) -> None:
        self._spark, self._trials, self._settings = spark, trials, settings
        self.number: int | None = None

    def __call__(self) -> int:
        """Return the number, the same each time; it may take seconds.

        Raises:
            InvalidArgument: This is no session, or nothing limits its slots.
        """
        if self.number is None and self._settings.resume is not None:
            self.number = manifest_of(self._settings.resume).slots
        if self.number is None:
            self.number = self._of_session()
        return self.number

    def _of_session(self) -> int:
        from experiment.driver.slot_jobs import slot_count  # late: it loads grpc
        from spark_jobs.session.session import session_of

        settings = self._settings
        session = session_of(self._spark).asking(settings.gpus_per_trial, settings.trials_per_gpu)
        # What is to be said of slots is said when they are asked for.
        return slot_count(self._trials, settings, session, warn=lambda warning: None)
