"""Entering the strategy of a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from spark_jobs.strategies.collectives import Collectives
from spark_jobs.strategies.mirrored.mirrored import mirrored
from spark_jobs.strategies.settings import Mirrored


@contextlib.contextmanager
def entered(
    strategy: Mirrored | None, *, rank: int, members: Sequence[str], collectives: Collectives
) -> Iterator[None]:
    """Let the block, which calls the train function, train with the other workers.

    Enter it in the trial's own process, before the train function is unpickled: frameworks must not
    have run an operation. It returns after the other workers have left, too.

    Args:
        strategy: The strategy; None leaves all to the train function.
        rank: The worker's rank, from 0.
        members: The addresses of the workers by rank, as "host:port", at which servers of a
            framework are to listen.
        collectives: The collective calls of the workers.

    Raises:
        InvalidArgument: The framework of the strategy is not installed.
    """
    if strategy is None:
        yield
        return
    with mirrored(strategy, rank=rank, members=members, collectives=collectives):
        yield
