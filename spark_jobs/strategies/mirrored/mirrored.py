"""TensorFlow's MultiWorkerMirroredStrategy for the workers of a trial."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.frameworks import check_installed
from spark_jobs.strategies.in_step.leaving import leave_together
from spark_jobs.strategies.in_step.random_numbers import drawn_alike, share_random_numbers
from spark_jobs.strategies.in_step.slow_worker import Lags
from spark_jobs.strategies.mirrored.batches import Parts
from spark_jobs.strategies.mirrored.keras_arrays import arrays_alike
from spark_jobs.strategies.mirrored.keras_fit import corrected_fit
from spark_jobs.strategies.mirrored.one_address import answer_only_at
from spark_jobs.strategies.mirrored.waited import Waited
from spark_jobs.strategies.replacing import replaced
from spark_jobs.strategies.settings import Mirrored

_SILENCE = 600.0  # seconds without a sign of life after which TensorFlow takes a worker for dead


@contextlib.contextmanager
def mirrored(
    settings: Mirrored,
    communicator: Communicator,
    *,
    members: Sequence[str],
    repeat: Callable[[], int] = int,
) -> Iterator[None]:
    """Run the block in the scope of the strategy, as one of several workers.

    TensorFlow must not have run an operation in this process, and its server stays until the
    process ends. All workers enter; the first operation waits for them.

    Args:
        settings: The strategy's settings.
        communicator: The connections of this worker to the others.
        members: TensorFlow's addresses of all workers by rank, as "host:port".
        repeat: Returns the number of the trial's repeat that runs, from 0. Default: always 0.
    """
    rank = communicator.rank
    check_installed("tensorflow", "TensorFlow", "mirrored", rank)
    import tensorflow as tf

    numbers = share_random_numbers(communicator, repeat)
    answer_only_at(members[rank])
    with contextlib.ExitStack() as entered:
        with _patient():
            strategy = make_strategy(tf, settings, rank, members)
        waited = Waited(tf, strategy)
        entered.enter_context(waited.measured())
        entered.enter_context(corrected_fit(strategy, communicator, Lags(rank, members, waited)))
        entered.enter_context(arrays_alike(numbers))
        entered.enter_context(drawn_alike(tf, numbers))
        entered.enter_context(strategy.scope())
        yield
        leave_together(communicator)


def _patient() -> contextlib.AbstractContextManager[None]:
    """Let strategies made in the block wait longer for signs of life than TensorFlow's ten seconds.

    Workers of a busy host are silent for longer. The end of a process shows at once by its
    connections, and the driver ends the workers of a trial whose host is lost.
    """
    from tensorflow.python.eager import context  # no public function sets it

    running = context.context()
    original, name = running.configure_coordination_service, "configure_coordination_service"
    longer = functools.partial(original, heartbeat_timeout_in_ms=int(1000 * _SILENCE))
    return replaced(running, name, longer)


def make_strategy(tf: Any, settings: Mirrored, rank: int, members: Sequence[str]) -> Any:
    """Return the strategy of a worker; see `mirrored`."""
    implementations = tf.distribute.experimental.CommunicationImplementation
    return _strategy_class(tf)(
        cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(members)}),
            task_type="worker",
            task_id=rank,
            # Listing logical devices would start TensorFlow before the strategy is made.
            num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
            rpc_layer="grpc",
        ),
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=getattr(implementations, settings.communication.upper())
        ),
    )


def _strategy_class(tf: Any) -> Any:
    """Return the class of strategies that cut each batch into the replicas' parts."""
    unbuffered = tf.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
    )

    class Strategy(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]  # no types
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self._trains = False
            self._warned = False

        @contextlib.contextmanager
        def training(self, data: Any) -> Iterator[None]:
            """Take the first data set of the block for the one that a model is trained on.

            Args:
                data: The data that it is made of, unless the user has distributed them.
            """
            self._trains = not isinstance(data, tf.distribute.DistributedDataset)
            try:
                yield
            finally:
                self._trains = False

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            trains, self._trains = self._trains, False
            if options is not None:
                return super().experimental_distribute_dataset(dataset, options)
            if not _is_cut(tf, dataset):
                return self._unbuffered(super().experimental_distribute_dataset(dataset))
            parts = Parts(tf, self.num_replicas_in_sync, self._uneven if trains else None)
            count = len(self.extended.worker_devices)
            # If the number of batches is known, all workers end at the same step, and need not ask
            # in each step whether anybody has a batch left.
            unknown = int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY
            self.extended.experimental_enable_get_next_as_optional = unknown
            try:
                return self.distribute_datasets_from_function(
                    lambda context: parts.of(dataset, context.input_pipeline_id * count, count)
                )
            finally:
                self.extended.experimental_enable_get_next_as_optional = True

        def distribute_datasets_from_function(self, dataset_fn: Any, options: Any = None) -> Any:
            distributed = super().distribute_datasets_from_function(dataset_fn, options)
            return distributed if options is not None else self._unbuffered(distributed)

        def _unbuffered(self, distributed: Any) -> Any:
            """Return a data set that is read without TensorFlow's buffers of several devices.

            Their thread crashes the process if an iterator is deleted before its end (seen in
            TensorFlow 2.21: `MultiDeviceBuffer::BackgroundThread` reads a deleted iterator), as
            Keras does in each `fit`. A worker with one device needs no such buffers.
            """
            if len(self.extended.worker_devices) == 1:
                distributed._options = unbuffered  # public functions refuse it for several workers
            return distributed

        def _uneven(self, samples: int) -> None:
            if not self._warned:
                self._warned = True
                devices = "workers" if len(self.extended.worker_devices) == 1 else "GPUs"
                warnings.warn(
                    f"a batch of {samples} samples is not divided by {self.num_replicas_in_sync} "
                    f"{devices}: the mean of each one's part counts the same, so this step differs "
                    f"from that of a single one; choose a batch size that the number of {devices} "
                    "divides, and dataset.batch(size, drop_remainder=True)",
                    stacklevel=2,
                )

    return Strategy


def _is_cut(tf: Any, dataset: Any) -> bool:
    """Return whether each worker cuts its parts out of each batch: a user may want otherwise."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    policies = tf.data.experimental.AutoShardPolicy
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return policy in (policies.AUTO, policies.DATA)
