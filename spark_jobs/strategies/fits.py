"""Changing each `model.fit` of a train function, whatever Keras' backend is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from search.errors import InvalidArgument
from spark_jobs.import_hooks import when_imported
from spark_jobs.installed import is_installed
from spark_jobs.strategies.replacing import replaced

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator

Around = Callable[[Any, Any], AbstractContextManager[tuple[list[Any], list[Any]]]]
"""Called with the module `keras` and a model; `fit` of the model runs within what it returns, with
callbacks put before those of the user, and others put after them."""


@contextlib.contextmanager
def changed_fit(strategy: str, communicator: Communicator, around: Around) -> Iterator[None]:
    """Change each `model.fit` of the block, which may import Keras.

    Args:
        strategy: The name of the strategy.
        communicator: The connections of this worker. Without others nothing is changed.
        around: What runs around each `fit`.

    Raises:
        InvalidArgument: Keras is not installed.
    """
    if not is_installed("keras"):
        got = f"none on the host of worker {communicator.rank}"
        raise InvalidArgument(
            "strategy", f"Keras, for {strategy!r}", got, "install it, or use None"
        )
    if communicator.size == 1:
        yield
        return
    fits = _Fits(around)
    with contextlib.ExitStack() as entered:

        def correct(keras: ModuleType) -> None:
            entered.enter_context(replaced(keras.Model, "fit", fits.changed(keras)))

        with when_imported("keras", correct):
            yield
    if not fits.begun:
        warnings.warn(
            f"strategy {strategy!r}: the workers have exchanged no weights, since the train "
            "function has not called model.fit of Keras 3; call it, or exchange arrays yourself "
            "with strategy=None",
            stacklevel=2,
        )


class _Fits:
    """Changes `fit`.

    Args:
        around: What runs around each call.

    Attributes:
        begun: Whether one was called.
    """

    def __init__(self, around: Around) -> None:
        self._around = around
        self.begun = False

    def changed(self, keras: Any) -> Callable[..., Any]:
        """Return the function to put in the place of `keras.Model.fit`."""
        original = keras.Model.fit
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            self.begun = True
            given = signature.bind(model, *args, **kwargs)
            callbacks = given.arguments.get("callbacks")
            with self._around(keras, model) as (before, after):
                given.arguments["callbacks"] = _with_ours(keras, model, callbacks, before, after)
                return original(*given.args, **given.kwargs)

        return fit


def _with_ours(keras: Any, model: Any, callbacks: Any, before: list[Any], after: list[Any]) -> Any:
    """Return the callbacks of a `fit` with ours around them, but before those of Keras itself."""
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        own = [] if callbacks is None else keras.tree.flatten(callbacks)
        return [*before, *own, *after]
    kinds = (keras.callbacks.History, keras.callbacks.ProgbarLogger)
    own = [each for each in callbacks.callbacks if not isinstance(each, kinds)]
    of_keras = [each for each in callbacks.callbacks if isinstance(each, kinds)]
    # Made anew, since it has decided from its callbacks whether it may call them late.
    return keras.callbacks.CallbackList(
        [*before, *own, *after, *of_keras], model=model, **(callbacks.params or {})
    )
