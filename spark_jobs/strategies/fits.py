"""Changing each `model.fit` of a train function, whatever Keras' backend is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spark_jobs.import_hooks import when_imported
from spark_jobs.strategies.frameworks import check_installed
from spark_jobs.strategies.replacing import replaced

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator

Around = Callable[
    [Any, Any, Mapping[str, Any]], AbstractContextManager[tuple[list[Any], list[Any]]]
]
"""Called with the module `keras`, a model, and the arguments of its `fit` by name; `fit` runs
within what it returns, with callbacks put before those of the user, and others put after them."""


@contextlib.contextmanager
def around_fits(around: Around) -> Iterator[None]:
    """Change each `model.fit` of the block, which may import Keras.

    Args:
        around: What runs around each `fit`.
    """
    with contextlib.ExitStack() as entered:

        def change(keras: ModuleType) -> None:
            entered.enter_context(replaced(keras.Model, "fit", _changed(keras, around)))

        with when_imported("keras", change):
            yield


@contextlib.contextmanager
def changed_fit(strategy: str, communicator: Communicator, around: Around) -> Iterator[None]:
    """Change each `model.fit` of the block for a strategy, and warn if there is none.

    Args:
        strategy: The name of the strategy.
        communicator: The connections of this worker. Without others nothing is changed.
        around: What runs around each `fit`.

    Raises:
        InvalidArgument: Keras is not installed.
    """
    check_installed("keras", "Keras", strategy, communicator.rank)
    if communicator.size == 1:
        yield
        return
    begun = False

    def noted(
        keras: Any, model: Any, arguments: Mapping[str, Any]
    ) -> AbstractContextManager[tuple[list[Any], list[Any]]]:
        nonlocal begun
        begun = True
        return around(keras, model, arguments)

    with around_fits(noted):
        yield
    if not begun:
        warnings.warn(
            f"strategy {strategy!r}: the workers have exchanged no weights, since the train "
            "function has not called model.fit of Keras 3; call it, or exchange arrays yourself "
            "with strategy=None",
            stacklevel=2,
        )


def _changed(keras: Any, around: Around) -> Callable[..., Any]:
    original = keras.Model.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(model, *args, **kwargs)
        callbacks = given.arguments.get("callbacks")
        with around(keras, model, given.arguments) as (before, after):
            given.arguments["callbacks"] = with_ours(keras, model, callbacks, before, after)
            return original(*given.args, **given.kwargs)

    return fit


def with_ours(
    keras: Any,
    model: Any,
    callbacks: Any,
    before: Sequence[Any] = (),
    after: Sequence[Any] = (),
) -> Any:
    """Return the callbacks of a `fit` with ours around them, but before those of Keras itself.

    Args:
        keras: The module `keras`.
        model: The model that is fitted.
        callbacks: The argument `callbacks` of `fit`, which stays as it is.
        before: Our callbacks that come before those of the user. Default: none.
        after: Our callbacks that come after those of the user. Default: none.
    """
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
