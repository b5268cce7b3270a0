"""Whether slots reach each other, as the workers of a trial have to."""

from __future__ import annotations

import contextlib
import time

from spark_jobs.addresses import OwnAddress
from spark_jobs.doctor.facts import Met
from spark_jobs.messages import Gang
from spark_jobs.slot.gang.held_ports import HeldPorts, Ports
from spark_jobs.trial.gang_connections import connected


def held_ports(
    ports: Ports | None, own: OwnAddress
) -> contextlib.AbstractContextManager[HeldPorts | None]:
    """Hold the ports at which other slots may connect to this one; None without a range.

    Args:
        ports: The range.
        own: This host's address.

    Raises:
        NoPort: No ports of the range are free.
    """
    return contextlib.nullcontext() if ports is None else contextlib.closing(HeldPorts(own, ports))


def meet(gang: Gang, held: HeldPorts, limit: float) -> Met:
    """Connect to the other slots of a gang, as its workers do.

    Raises:
        NotConnected: They do not reach each other; the message names addresses and ports.
    """
    start = time.monotonic()
    held.lend()
    with connected(gang, limit):
        return Met(others=len(gang.members) - 1, seconds=time.monotonic() - start)
