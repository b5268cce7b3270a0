"""A worker's connections to the other workers of its trial, and how it trains with them.

Both are made before the train function runs.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from search.errors import ExperimentError
from spark_jobs.addresses import bound
from spark_jobs.messages import Gang
from spark_jobs.strategies.in_step.ports import port_taken

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator
    from spark_jobs.communicator.membership import Membership
    from spark_jobs.strategies.settings import Strategy

_OF_ADDRESS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)

NEEDED = ("spark_jobs.communicator.communicator", "spark_jobs.strategies.entering")
"""The modules that trials on several slots need, and others do not."""


class NotConnected(ExperimentError):
    """The workers of a trial could not connect to each other; the train function has not run.

    Attributes:
        unreached: Whether another worker was not reached; else this one cannot connect.
    """

    def __init__(self, message: str, *, unreached: bool) -> None:
        self.unreached = unreached
        super().__init__(message)


def connected(
    gang: Gang | None, limit: float
) -> contextlib.AbstractContextManager[Communicator | None]:
    """Connect this worker to the others of its gang; leaving the context ends the connections.

    Args:
        gang: The gang; None for a trial on one slot, which has no connections and imports nothing.
        limit: Seconds for all to listen and to connect, and then again for all to have done so.

    Raises:
        NotConnected: A worker was not reached in time, or has ended, or this one cannot connect.
        PortTaken: This one cannot listen at its address.
    """
    if gang is None:
        return contextlib.nullcontext()
    # Late: trials on one slot need none of it.
    from spark_jobs.communicator.communicator import connect
    from spark_jobs.communicator.membership import GangBroken, Membership

    membership = Membership(
        rank=gang.rank, members=gang.members, key=gang.key, certificate=gang.certificate
    )
    try:
        return connect(membership, bound(membership.members[gang.rank]), limit=limit)
    except GangBroken as error:
        raise NotConnected(str(error), unreached=error.rank != gang.rank) from None
    except OSError as error:
        if error.errno in _OF_ADDRESS:
            address = membership.members[gang.rank]
            raise port_taken(f"worker {gang.rank}", address, error) from None
        raise _unable(membership, error.strerror or error) from None  # as without file descriptors
    except RuntimeError as error:  # this host is at its limit of processes, which counts threads
        raise _unable(membership, error) from None


def _unable(membership: Membership, why: object) -> NotConnected:
    return NotConnected(
        f"{membership.name(membership.rank)} cannot connect ({why})", unreached=False
    )


def training_with(
    strategy: Strategy | None,
    gang: Gang | None,
    communicator: Communicator | None,
    repeat: Callable[[], int],
) -> contextlib.AbstractContextManager[None]:
    """Let a block, which calls the train function, train with the other workers.

    Args:
        strategy: How they train together; None leaves it to the train function.
        gang: The gang; None for a trial on one slot, which needs no strategy.
        communicator: The connections to the other workers.
        repeat: Returns the number of the repeat that runs, from 0.

    Raises:
        InvalidArgument: The framework of the strategy is not installed.
        PortTaken: Another program has the port for the framework's server.
    """
    if strategy is None or gang is None or communicator is None:
        return contextlib.nullcontext()
    # Late: it needs numpy, and trials on one slot need none of it.
    from spark_jobs.strategies.entering import entered

    return entered(strategy, members=gang.servers, communicator=communicator, repeat=repeat)
