"""Downpour for the workers of a trial: `model.fit` with an exchange of weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from search.errors import InvalidArgument, shown
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.downpour.exchange import callbacks_of
from spark_jobs.strategies.fits import changed_fit
from spark_jobs.strategies.settings import Downpour


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
        keras: Any, model: Any, arguments: Mapping[str, Any]
    ) -> contextlib.AbstractContextManager[tuple[list[Any], list[Any]]]:
        _check_optimizer(getattr(model, "optimizer", None))
        first, last = callbacks_of(keras, settings, communicator)
        return contextlib.nullcontext(([first], [last]))

    return changed_fit("downpour", communicator, around)


def _check_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer that replaces the weights by their moving average at the end of `fit`.

    Keras calls its `finalize_variable_values` before `on_train_end`, where the last change is sent.
    """
    own = getattr(optimizer, "inner_optimizer", optimizer)  # that of a LossScaleOptimizer
    if not getattr(own, "use_ema", False):  # None, if the model is not compiled: Keras says so
        return
    raise InvalidArgument(
        "optimizer",
        "one with use_ema=False, for 'downpour'",
        f"{shown(type(own).__name__)} with use_ema=True",
        "leave use_ema out: at the end of fit Keras sets the weights to their moving average "
        "before a worker sends its last change, so the shared weights would go back by every "
        "worker's lag",
    )
