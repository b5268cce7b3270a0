"""Entering the strategy of a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.codistillation.codistillation import codistillation
from spark_jobs.strategies.downpour.downpour import downpour
from spark_jobs.strategies.mirrored.mirrored import mirrored
from spark_jobs.strategies.on_jax.on_jax import on_jax
from spark_jobs.strategies.settings import Codistillation, Downpour, Jax, Strategy


def entered(
    strategy: Strategy | None,
    *,
    members: Sequence[str],
    communicator: Communicator,
    repeat: Callable[[], int] = int,
) -> contextlib.AbstractContextManager[None]:
    """Let a block, which calls the train function, train with the other workers.

    Enter it in the trial's own process, before the train function is unpickled: frameworks must not
    have run an operation. It is left after the other workers have left, too.

    Args:
        strategy: The strategy; None leaves all to the train function.
        members: The addresses of the workers by rank, as "host:port", at which servers of a
            framework are to listen.
        communicator: The connections of this worker to the others.
        repeat: Returns the number of the trial's repeat that runs, from 0. Default: always 0.

    Raises:
        InvalidArgument: The framework of the strategy is not installed.
    """
    if strategy is None:
        return contextlib.nullcontext()
    if isinstance(strategy, Downpour):
        return downpour(strategy, communicator)
    if isinstance(strategy, Codistillation):
        return codistillation(strategy, communicator)
    if isinstance(strategy, Jax):
        return on_jax(strategy, communicator, members=members, repeat=repeat)
    return mirrored(strategy, communicator, members=members, repeat=repeat)
