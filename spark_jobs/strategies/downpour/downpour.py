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
            if isinstance(callbacks, keras.callbacks.CallbackList):
                # Made anew, since it has decided from its callbacks whether it may call them late.
                given.arguments["callbacks"] = keras.callbacks.CallbackList(
                    [first, *callbacks.callbacks, last], model=model, **(callbacks.params or {})
                )
            else:
                own = [] if callbacks is None else keras.tree.flatten(callbacks)
                given.arguments["callbacks"] = [first, *own, last]
            return original(*given.args, **given.kwargs)

        return fit
