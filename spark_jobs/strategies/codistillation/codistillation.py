"""Codistillation for the workers of a trial: `model.fit` with one more loss."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from search.errors import InvalidArgument, shown
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.codistillation.cross_entropy import cross_entropy_of
from spark_jobs.strategies.codistillation.teachers import Teachers
from spark_jobs.strategies.fits import changed_fit
from spark_jobs.strategies.replacing import replaced
from spark_jobs.strategies.settings import Codistillation
from spark_jobs.strategies.steps import Steps, is_due


def codistillation(
    settings: Codistillation, communicator: Communicator
) -> contextlib.AbstractContextManager[None]:
    """Let the model of each `fit` of a block, which may import Keras, learn from other workers'.

    Args:
        settings: The strategy.
        communicator: The connections of this worker. Without others nothing is exchanged.

    Raises:
        InvalidArgument: Keras is not installed.
    """
    numbers = itertools.count()

    @contextlib.contextmanager
    def around(
        keras: Any, model: Any, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        check_backend(keras.backend.backend())
        number = next(numbers)
        # What this worker published in its last fit goes on teaching workers that are still in it.
        communicator.withdraw(_name(number - 2))
        teachers = Teachers(
            keras,
            settings,
            communicator,
            name=_name(number),
            cross_entropy=cross_entropy_of(keras, model.loss),
        )
        with _with_loss_of(model, teachers):
            yield [_exchange(keras, settings, teachers)], []

    return changed_fit("codistillation", communicator, around)


def _name(number: int) -> str:
    """Return the name under which the workers publish their weights in a `fit`, counted from 0."""
    return f"codistillation {number}"


def check_backend(backend: str) -> None:
    """Refuse backends for which the teachers' weights are constants of the compiled loss.

    Args:
        backend: The name of Keras' backend.

    Raises:
        InvalidArgument: It is not 'tensorflow'.
    """
    if backend != "tensorflow":
        hint = (
            "set KERAS_BACKEND=tensorflow before Keras is imported: other backends compile the "
            "loss with the weights that the other workers' models have at first"
        )
        expected = "'tensorflow', for 'codistillation'"
        raise InvalidArgument("KERAS_BACKEND", expected, shown(backend), hint)


@contextlib.contextmanager
def _with_loss_of(model: Any, teachers: Teachers) -> Iterator[None]:
    """Add the loss towards the teachers' predictions to the model's, in training alone."""
    original = model.compute_loss
    _check_loss(original)

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **more: Any
    ) -> Any:
        loss = original(x, y, y_pred, sample_weight, **more)
        if not more.get("training", True):
            return loss
        if x is None:
            raise InvalidArgument(
                "compute_loss",
                "the arguments x, y and y_pred in training, for 'codistillation'",
                "no x",
                "in a train_step of your own call self.compute_loss(x, y, y_pred), and in a "
                "test_step the same with training=False",
            )
        return loss + teachers.loss(x, y_pred, loss.dtype.name)

    with replaced(model, "compute_loss", compute_loss):
        model.train_function = None  # it may have been traced with another loss
        try:
            yield
        finally:
            model.train_function = None


def _check_loss(compute_loss: Any) -> None:
    """Refuse a loss of the user's model to which Keras does not pass whether it is trained."""
    arguments = list(inspect.signature(compute_loss).parameters)
    if "training" not in arguments:
        raise InvalidArgument(
            "compute_loss",
            "one with an argument 'training', for 'codistillation'",
            f"({', '.join(arguments)})",
            "add training=True to it, with which Keras tells training, to which the loss towards "
            "the other models is added, from validation",
        )


def _exchange(keras: Any, settings: Codistillation, teachers: Teachers) -> Any:
    class Exchange(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            self._steps = Steps()
            self._made = 0
            teachers.begin(self.model)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._steps.begin_epoch()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            before, self._made = self._steps.count(batch)
            if is_due(settings.every, before, self._made):
                teachers.exchange(self.model, self._made)

        def on_train_end(self, logs: Any = None) -> None:
            teachers.end(self._made)

    return Exchange()
