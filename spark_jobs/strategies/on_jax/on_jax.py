"""Keras on JAX for the workers of a trial, as processes of `jax.distributed`."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from search.errors import InvalidArgument, shown
from spark_jobs.addresses import split_address
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.import_hooks import when_imported
from spark_jobs.strategies.fits import around_fits
from spark_jobs.strategies.frameworks import check_installed
from spark_jobs.strategies.in_step.agreement import agreement
from spark_jobs.strategies.in_step.leaving import leave_together
from spark_jobs.strategies.in_step.ports import check_free
from spark_jobs.strategies.in_step.random_numbers import drawn_alike, share_random_numbers
from spark_jobs.strategies.on_jax.keras_data import data_of_all, results_for_all, steps_counted
from spark_jobs.strategies.replacing import replaced
from spark_jobs.strategies.settings import Jax

_SILENCE = 600  # seconds without a sign of life after which JAX takes a worker for dead
_JOINING = 60  # seconds for connecting to rank 0, which the workers have reached before


@contextlib.contextmanager
def on_jax(
    settings: Jax,
    communicator: Communicator,
    *,
    members: Sequence[str],
    repeat: Callable[[], int] = int,
) -> Iterator[None]:
    """Let Keras distribute the models of a block over the devices of all workers.

    JAX must not have run an operation in this process. All workers enter, and wait for each other.

    Args:
        settings: The strategy's settings.
        communicator: The connections of this worker to the others.
        members: Addresses of all workers by rank, as "host:port"; JAX listens at that of rank 0.
        repeat: Returns the number of the trial's repeat that runs, from 0. Default: always 0.

    Raises:
        InvalidArgument: JAX or Keras is not installed, Keras has been imported with another
            backend, or JAX has run an operation in this process.
        PortTaken: Another program has the port.
    """
    rank = communicator.rank
    for module, framework in (("jax", "JAX"), ("keras", "Keras")):
        check_installed(module, framework, "jax", rank)
    import spark_jobs.strategies.on_jax.selected  # noqa: F401, I001  # before Keras
    import jax
    import keras

    check_backend(keras.backend.backend())
    numbers = share_random_numbers(communicator, repeat)
    if rank == 0:
        check_free("JAX", members[0])
    _join(jax, rank, members)
    with contextlib.ExitStack() as entered:

        def draw_alike(tf: ModuleType) -> None:
            entered.enter_context(drawn_alike(tf, numbers))

        def around(
            keras: Any, model: Any, arguments: Mapping[str, Any]
        ) -> contextlib.AbstractContextManager[tuple[list[Any], list[Any]]]:
            first = [] if settings.layout is None else [_check_layout(keras, settings.layout)]
            last = agreement(keras, communicator, counts=False)
            return contextlib.nullcontext((first, [last]))

        entered.enter_context(when_imported("tensorflow", draw_alike))
        entered.enter_context(around_fits(around))
        entered.enter_context(data_of_all(jax))
        entered.enter_context(steps_counted(keras, communicator.begin_step))
        entered.enter_context(results_for_all(jax, keras))
        entered.enter_context(distribution_of(keras, settings).scope())
        yield
        leave_together(communicator, jax.distributed.shutdown)


def check_backend(backend: str) -> None:
    """Refuse a backend with which Keras was imported before the trial, or by a setting.

    Args:
        backend: The name of Keras' backend.

    Raises:
        InvalidArgument: It is not 'jax'.
    """
    if backend != "jax":
        raise InvalidArgument(
            "KERAS_BACKEND",
            "'jax', for strategy 'jax'",
            shown(backend),
            "leave it to the strategy: let no module of preload= set it, or import Keras before",
        )


def _join(jax: Any, rank: int, members: Sequence[str]) -> None:
    """Connect this process to those of the other workers.

    By default JAX's server, at rank 0, listens on all interfaces; and Gloo, by which processors
    exchange arrays, where the name of the host leads, which often is a loopback address.
    """
    from jax._src import xla_bridge  # no public function passes the address on

    if xla_bridge.backends_are_initialized():
        raise InvalidArgument(
            "preload",
            "modules that run no operation of JAX when they are imported, for 'jax'",
            "one that has",
            "let the train function run it, or pass preload= without that module",
        )
    own, _ = split_address(members[rank])
    library: Any = vars(xla_bridge)["_jax"]
    gloo = functools.partial(library.make_gloo_tcp_collectives, hostname=own)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        members[0],
        len(members),
        rank,
        cluster_detection_method="deactivate",
        initialization_timeout=_JOINING,
        heartbeat_timeout_seconds=_SILENCE,
        coordinator_bind_address=members[0],
    )
    with replaced(library, "make_gloo_tcp_collectives", gloo):
        jax.devices()  # makes the connections


def distribution_of(keras: Any, settings: Jax) -> Any:
    """Return how Keras distributes models and data over the devices of all workers.

    Args:
        keras: The module `keras`.
        settings: The strategy's settings.
    """
    distribution = keras.distribution
    devices = distribution.list_devices()
    if settings.layout is None:
        return distribution.DataParallel(devices=devices, auto_shard_dataset=False)
    mesh = distribution.DeviceMesh((1, len(devices)), ("batch", "model"), devices)
    layouts = distribution.LayoutMap(mesh)
    layouts.update(settings.layout)
    return distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
    )


def _check_layout(keras: Any, layout: Mapping[str, Any]) -> Any:
    """Return a callback that refuses a model of which a layout cuts no weight."""

    class Check(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            paths = [variable.path for variable in self.model.weights]
            if not any(re.fullmatch(pattern, path) for pattern in layout for path in paths):
                raise InvalidArgument(
                    "layout",
                    f"an expression that matches one of {', '.join(paths[:10])}",
                    ", ".join(map(repr, layout)),
                    "print the path of each of model.weights",
                )

    return Check()
