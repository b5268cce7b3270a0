"""Whether slots reach each other, as the workers of a trial have to."""

from __future__ import annotations

import time

from spark_jobs.doctor.facts import Met
from spark_jobs.messages import Gang
from spark_jobs.slot.gang.held_ports import HeldPorts
from spark_jobs.trial.gang_connections import connected


def meet(gang: Gang, held: HeldPorts, limit: float) -> Met:
    """Connect to the other slots of a gang, as its workers do.

    Raises:
        NotConnected: They do not reach each other; the message names addresses and ports.
    """
    start = time.monotonic()
    held.lend()
    with connected(gang, limit):
        return Met(others=len(gang.members) - 1, seconds=time.monotonic() - start)
