"""Downpour for the workers of a trial: `model.fit` with an exchange of weights."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from spark_jobs.strategies.downpour.exchange import callbacks_of
from spark_jobs.strategies.fits import changed_fit
from spark_jobs.strategies.settings import Downpour

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator


def downpour(
    settings: Downpour, communicator: Communicator
) -> contextlib.AbstractContextManager[None]:
    """Let each `model.fit` of a block, which may import Keras, exchange weights with the others.

    Args:
        settings: The strategy.
        communicator: The connections of this worker. Without others nothing is exchanged.

    Raises:
        InvalidArgument: Keras is not installed.
    """

    def around(
        keras: Any, model: Any
    ) -> contextlib.AbstractContextManager[tuple[list[Any], list[Any]]]:
        first, last = callbacks_of(keras, settings, communicator)
        return contextlib.nullcontext(([first], [last]))

    return changed_fit("downpour", communicator, around)
