"""Downpour for the workers of a trial: `model.fit` with an exchange of weights."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from search.errors import InvalidArgument
from spark_jobs.import_hooks import when_imported
from spark_jobs.installed import is_installed
from spark_jobs.strategies.downpour.exchange import callbacks_of
from spark_jobs.strategies.replacing import replaced
from spark_jobs.strategies.settings import Downpour

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator

_UNUSED = (
    "strategy 'downpour': the workers have exchanged no weights, since the train function has not "
    "called model.fit of Keras 3; call it, or exchange arrays yourself with strategy=None"
)


@contextlib.contextmanager
def downpour(settings: Downpour, communicator: Communicator) -> Iterator[None]:
    """Let each `model.fit` of the block, which may import Keras, exchange weights with the others.

    Args:
        settings: The strategy.
        communicator: The connections of this worker. Without others nothing is exchanged.

    Raises:
        InvalidArgument: Keras is not installed.
    """
    if not is_installed("keras"):
        got = f"none on the host of worker {communicator.rank}"
        raise InvalidArgument("strategy", "Keras, for 'downpour'", got, "install it, or use None")
    if communicator.size == 1:
        yield
        return
    fits = _Fits(settings, communicator)
    with contextlib.ExitStack() as entered:

        def correct(keras: ModuleType) -> None:
            entered.enter_context(replaced(keras.Model, "fit", fits.exchanging(keras)))

        with when_imported("keras", correct):
            yield
    if not fits.begun:
        warnings.warn(_UNUSED, stacklevel=2)


class _Fits:
    """Makes `fit` one that exchanges weights.

    Args:
        settings: The strategy.
        communicator: The connections of this worker.

    Attributes:
        begun: Whether one was called.
    """

    def __init__(self, settings: Downpour, communicator: Communicator) -> None:
        self._settings = settings
        self._communicator = communicator
        self.begun = False

    def exchanging(self, keras: Any) -> Callable[..., Any]:
        """Return the function to put in the place of `keras.Model.fit`."""
        original = keras.Model.fit
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            self.begun = True
            given = signature.bind(model, *args, **kwargs)
            first, last = callbacks_of(keras, self._settings, self._communicator)
            callbacks = given.arguments.get("callbacks")
            given.arguments["callbacks"] = _with_ours(keras, model, callbacks, first, last)
            return original(*given.args, **given.kwargs)

        return fit


def _with_ours(keras: Any, model: Any, callbacks: Any, first: Any, last: Any) -> Any:
    """Return the callbacks of a `fit` with ours around them, but before those of Keras itself."""
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        own = [] if callbacks is None else keras.tree.flatten(callbacks)
        return [first, *own, last]
    kinds = (keras.callbacks.History, keras.callbacks.ProgbarLogger)
    own = [each for each in callbacks.callbacks if not isinstance(each, kinds)]
    of_keras = [each for each in callbacks.callbacks if isinstance(each, kinds)]
    # Made anew, since it has decided from its callbacks whether it may call them late.
    return keras.callbacks.CallbackList(
        [first, *own, last, *of_keras], model=model, **(callbacks.params or {})
    )
