"""Data and results of Keras on JAX, whose arrays are spread over several processes.

Keras leaves it to the user to give each process its part of each batch, and to bring results
together. Here all workers have the whole data, as under `Mirrored`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from search.errors import ExperimentError, InvalidArgument, shown
from spark_jobs.strategies.replacing import replaced

_ARGUMENTS = ["per_process_batch", "layout", "batch_dim_name"]


class UnknownKeras(ExperimentError):
    """A version of Keras whose data cannot be divided over the workers."""


@contextlib.contextmanager
def data_of_all(jax: Any) -> Iterator[None]:
    """Let Keras take each batch of the block for that of all workers, who have the same ones.

    A batch that the devices do not divide is not cut: each device computes all of it, as the one of
    a single worker would. So the results are those of one worker, whatever the batches.

    Args:
        jax: The module `jax`.

    Raises:
        UnknownKeras: Keras distributes data by another function than the one that is known.
    """
    import keras
    from keras.src.backend.jax import distribution_lib

    arguments = list(inspect.signature(distribution_lib.distribute_data_input).parameters)
    if arguments != _ARGUMENTS:
        raise UnknownKeras(
            "strategy 'jax': expected keras.src.backend.jax.distribution_lib.distribute_data_input"
            f"({', '.join(_ARGUMENTS)}), as in Keras 3.15, got ({', '.join(arguments)}) in "
            f"{keras.__version__}; install that version, or use None"
        )

    def distribute(per_process_batch: Any, layout: Any, batch_dim_name: str) -> Any:
        if per_process_batch is None:
            return None
        if not hasattr(per_process_batch, "__array__"):
            raise InvalidArgument("data set", "dense arrays, for 'jax'", shown(per_process_batch))
        batch = np.asarray(per_process_batch)
        sharding = getattr(layout, "backend_layout", layout)
        if len(batch) % sharding.mesh.shape[batch_dim_name]:
            sharding = _for_all(jax, sharding)
        return jax.make_array_from_process_local_data(sharding, batch, global_shape=batch.shape)

    with replaced(distribution_lib, "distribute_data_input", distribute):
        yield


@contextlib.contextmanager
def steps_counted(keras: Any, begin_step: Callable[[], None]) -> Iterator[None]:
    """Call a function before each training step of the block, once there is a batch for it.

    Args:
        keras: The module `keras`.
        begin_step: The function.
    """
    make = keras.Model.make_train_function

    @functools.wraps(make)
    def make_train_function(model: Any, force: bool = False) -> Any:
        if model.train_function is not None and not force:
            return
        make(model, force=force)
        function = model.train_function

        def counted(batches: Any) -> Iterator[Any]:
            for batch in batches:
                begin_step()
                yield batch

        model.train_function = lambda state, batches: function(state, counted(batches))

    with replaced(keras.Model, "make_train_function", make_train_function):
        yield


def _for_all(jax: Any, sharding: Any) -> Any:
    """Return a sharding by which each device has all of an array."""
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())


@contextlib.contextmanager
def results_for_all(jax: Any, keras: Any) -> Iterator[None]:
    """Let each worker have all of what a model predicts, and of its weights, within the block.

    Args:
        jax: The module `jax`.
        keras: The module `keras`.
    """
    make = keras.Model.make_predict_function
    array = keras.Variable.__array__

    @functools.wraps(make)
    def make_predict_function(model: Any, force: bool = False) -> Any:
        if model.predict_function is not None and not force:
            return model.predict_function
        make(model, force=force)
        function = model.predict_function

        def predict(state: Any, iterator: Any) -> Any:
            outputs, state = function(state, iterator)
            return keras.tree.map_structure(functools.partial(whole, jax), outputs), state

        model.predict_function = predict
        return predict

    @functools.wraps(array)
    def as_array(variable: Any, dtype: Any = None) -> npt.NDArray[Any]:
        value = variable.value
        if getattr(value, "is_fully_replicated", True):  # also of NumPy, of a metric for example
            found: npt.NDArray[Any] = array(variable, dtype)
            return found
        return whole(jax, value).astype(dtype or value.dtype)

    with (
        replaced(keras.Model, "make_predict_function", make_predict_function),
        replaced(keras.Variable, "__array__", as_array),
    ):
        yield


def whole(jax: Any, value: Any) -> npt.NDArray[Any]:
    """Return all of an array, of which this process may have a part; a call of all workers then."""
    if value.is_fully_replicated or value.is_fully_addressable:
        return np.asarray(value)
    from jax.experimental import multihost_utils

    found: npt.NDArray[Any] = multihost_utils.process_allgather(value, tiled=True)
    return found
