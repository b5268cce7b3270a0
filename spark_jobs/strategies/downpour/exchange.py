"""The callbacks by which a worker exchanges weights with the others during `model.fit`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.downpour.finish import Finish
from spark_jobs.strategies.downpour.measured import Measured
from spark_jobs.strategies.downpour.rules import add, rule_of
from spark_jobs.strategies.settings import Downpour
from spark_jobs.strategies.steps import Steps, is_due
from spark_jobs.strategies.vocabularies import different, number_of
from spark_jobs.strategies.weights import Vector, assign, flat, reals, renew_constants, sendable

Logs = MutableMapping[str, Any] | None


def callbacks_of(keras: Any, settings: Downpour, communicator: Communicator) -> tuple[Any, Any]:
    """Return the callbacks of one `fit`: one to put before the user's, and one to put after them.

    The first exchanges weights, and writes its figures into the logs of an epoch, where callbacks
    after it find them. The second begins the exchange after callbacks that restore a checkpoint,
    lets all workers end `fit` if another callback ends it on one, and gives all of them the weights
    that rank 0 has at the end. It takes the figures away again, so that the `History` that `fit`
    returns is the one of a single worker.

    Args:
        keras: The module `keras`.
        settings: The strategy.
        communicator: The connections of this worker.
    """
    first = _first(keras, settings, communicator)
    return first, _last(keras, communicator, first)


def _first(keras: Any, settings: Downpour, communicator: Communicator) -> Any:
    """Return the callback that exchanges weights, once `begin` was called."""

    class First(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def begin(self) -> None:
            communicator.meet()  # they may have read their data for longer than others
            model = self.model
            _check_vocabularies(keras, communicator, model)
            _take_from_rank_0(keras, communicator, model)
            initial = flat(keras, model.trainable_weights)
            self._vector = communicator.share(initial, add)
            self._shared = Measured(self._vector)
            self._rule = rule_of(settings, self._shared, initial, communicator.size)
            kind = initial.dtype.name
            self._rounds = any(str(each.dtype) != kind for each in model.trainable_weights)
            self._rounded_off: Vector | float = 0.0
            self._steps = Steps()
            self.figures: dict[str, float] = {}
            self.finish = Finish(communicator)

        def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
            self._steps.begin_epoch()
            self._shared.begin()

        def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
            before, now = self._steps.count(batch)
            push = is_due(settings.push_every, before, now)
            fetch = is_due(settings.fetch_every, before, now)
            if push or fetch:
                self._exchange(push=push, fetch=fetch)

        def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
            if logs is not None:
                self.figures = self._shared.figures()
                logs.update(self.figures)

        def on_train_end(self, logs: Logs = None) -> None:
            self._exchange(push=True, fetch=False)
            self.finish.wait()
            model = self.model
            assign(model.trainable_weights, self._vector.fetch())
            statistics = reals(keras, model.non_trainable_weights)
            # In 64 bits, so that the mean of equal numbers, as of frozen layers, is that number.
            own = flat(keras, statistics).astype(np.float64)
            assign(statistics, communicator.all_reduce([own])[0])
            communicator.barrier()  # nobody fetches any more
            self._vector.close()
            self.finish.close()

        def _exchange(self, *, push: bool, fetch: bool) -> None:
            weights = self.model.trainable_weights  # not kept: JAX takes their values away
            own = flat(keras, weights)
            if self._rounds:  # else each worker would send what its variables have rounded
                own += self._rounded_off
            changed = self._rule.exchange(own, push=push, fetch=fetch)
            if changed is not own:
                assign(weights, changed)
                if self._rounds:
                    self._rounded_off = changed - flat(keras, weights)

    return First()


def _last(keras: Any, communicator: Communicator, first: Any) -> Any:
    """Return the callback that begins and ends the exchange of the first one."""

    class Last(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Logs = None) -> None:
            first.begin()

        def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
            if logs is not None:
                for name in first.figures:
                    logs.pop(name, None)
            if self.model.stop_training:
                first.finish.end_after(epoch)
            elif first.finish.is_last(epoch):
                self.model.stop_training = True

        def on_train_end(self, logs: Logs = None) -> None:
            communicator.meet()  # the user's callbacks may take longer on one of them
            _take_from_rank_0(keras, communicator, self.model)

    return Last()


def _check_vocabularies(keras: Any, communicator: Communicator, model: Any) -> None:
    """Refuse, in all workers, vocabularies that differ between them."""
    own = number_of(keras, model)
    most, least = communicator.all_reduce([own, -own], "max")
    if most != -least:
        raise different("downpour")


def _take_from_rank_0(keras: Any, communicator: Communicator, model: Any) -> None:
    own = [sendable(keras, variable) for variable in model.weights]
    for variable, array in zip(model.weights, communicator.broadcast(own), strict=True):
        variable.assign(array)
    renew_constants(keras, model)
