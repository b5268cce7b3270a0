"""Downpour for the workers of a trial: `model.fit` with an exchange of weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from search.errors import InvalidArgument, shown
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.downpour.exchange import callbacks_of
from spark_jobs.strategies.first_batch import first_batch
from spark_jobs.strategies.fits import changed_fit
from spark_jobs.strategies.replacing import replaced
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

    @contextlib.contextmanager
    def around(
        keras: Any, model: Any, arguments: Mapping[str, Any]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        _check_optimizer(getattr(model, "optimizer", None))
        first, last = callbacks_of(keras, settings, communicator)
        with _built_at_first(keras):
            yield [first], [last]

    return changed_fit("downpour", communicator, around)


def _built_at_first(keras: Any) -> contextlib.AbstractContextManager[None]:
    """Let Keras build a model before the callbacks exchange its weights, as it does elsewhere.

    With TensorFlow and without a strategy of its own it builds a model in the first step.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
    from keras.src.utils.python_utils import is_default

    name = "_maybe_symbolic_build"
    original = getattr(TensorFlowTrainer, name)

    @functools.wraps(original)
    def build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        # Not the model itself, unless it makes weights of its own: with a step of its own it may
        # have no `call`, by which Keras builds it.
        layers = model._flatten_layers(include_self=not is_default(model.build))
        if iterator is not None and not all(layer.built for layer in layers):
            model._symbolic_build(data_batch=first_batch(iterator))
        return original(model, iterator=iterator, data_batch=data_batch)

    return replaced(TensorFlowTrainer, name, build)


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
