"""The agreement of all workers to leave `model.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.in_step.slow_worker import Lags


def agreement(
    keras: Any, communicator: Communicator, lags: Lags | None = None, *, counts: bool = True
) -> Any:
    """Return a Keras callback that ends `fit` on all workers if another callback does on one.

    A worker that left alone would not take part in the operations of the next step, for which the
    others wait. So all leave at the end of the epoch, also where a callback asks within an epoch;
    only then do they exchange the number that says so, and how long their steps take.

    Args:
        keras: The module `keras`.
        communicator: The connections of this worker to the others.
        lags: Measures the steps, and warns of a slow worker; None to measure nothing.
        counts: Whether Keras begins a step only if there is a batch for it. Else the caller counts
            the steps (`Communicator.begin_step`): Keras begins one more to find the data's end.
    """

    class Agreement(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def __init__(self) -> None:
            super().__init__()
            self._asked = False

        def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
            self._asked = False
            if lags is not None:
                lags.begin()

        def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
            if counts:
                communicator.begin_step()
            if lags is not None and batch == 0:
                lags.begin_epoch()

        def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
            if lags is not None:
                lags.end_step()
            if self.model.stop_training:
                self._asked = True
                self.model.stop_training = False

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            asked = self._asked or bool(self.model.stop_training)
            communicator.meet()  # one may come late, by other callbacks, or wait in a step for ever
            figures = [] if lags is None else [lags.figures()]
            any_asked, *figures = communicator.all_reduce(
                [np.array([int(asked)]), *figures], op="max"
            )
            self.model.stop_training = bool(any_asked[0])
            if lags is not None:
                lags.judge(*figures)

    return Agreement()
