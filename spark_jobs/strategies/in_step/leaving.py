"""The end of a training in step: all workers leave it together."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.communicator.membership import MembersDisagree

_PATIENCE = 10.0  # seconds for which rank 0 waits at its end


def leave_together(communicator: Communicator, then: Callable[[], object] = lambda: None) -> None:
    """Wait for the other workers, so that the end of a process is no error in another one.

    Frameworks take the end of one for a crash, and abort what the others still exchange. As rank
    0's result is the trial's, rank 0 waits for seconds only, and the others until it has ended.

    Args:
        communicator: The connections of this worker to the others.
        then: Called once all workers have come; it ends their connections by the framework.

    Raises:
        MembersDisagree: Another worker waits for this one in a step of `fit`.
    """
    found: list[MembersDisagree] = []

    def meet() -> None:
        try:
            communicator.meet()
            then()
        except MembersDisagree as error:
            found.append(error)
        except Exception:  # the others have ended, each for its own reason
            return

    meeting = threading.Thread(target=meet, daemon=True)
    meeting.start()
    meeting.join(_PATIENCE if communicator.rank == 0 else None)
    if found:
        raise found[0]
