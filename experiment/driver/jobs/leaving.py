"""The slots of a driver that was killed, which may still hold the cluster's cores."""

from __future__ import annotations

import time
from typing import NamedTuple, Self

from experiment.run_files.ownership import Owned
from spark_jobs.session.session import Session


class Leaving(NamedTuple):
    """Slots of a driver that was killed, which may still run.

    Attributes:
        whose: The driver, in words.
        until: The time by which they will have left, by `time.monotonic`.
    """

    whose: str
    until: float

    @classmethod
    def of(cls, owned: Owned, session: Session) -> Self | None:
        """Return the slots of a run's last driver; None if there are none.

        In local mode they have ended with their driver.
        """
        seconds = owned.leaving(time.time())
        ended = session.on_this_host and session.tells_lost_tasks
        if owned.killed is None or not seconds or ended:
            return None
        return cls(f"the driver that was killed ({owned.killed})", time.monotonic() + seconds)

    def __str__(self) -> str:
        left = self.until - time.monotonic()
        if left <= 0:
            return ""
        return f"slots of {self.whose} leave within {left:.0f} s"
