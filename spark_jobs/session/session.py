"""The user's SparkSession: what the framework needs of it, whatever its kind."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from spark_jobs.cluster.cluster import Cluster
from spark_jobs.cluster.exposure import Exposure
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.cluster.task_needs import TaskNeeds
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.trial.context import DataSettings

SLOTS = "nothing byte"
"""Of what the slots of a search yield, as Spark writes it: no row, but Spark wants a column."""


class SharedBytes(Protocol):
    """Bytes that the driver lends to its executors; part of a closure, it is only a number."""

    @property
    def value(self) -> bytes:
        """The bytes."""


class Session(Protocol):
    """The user's SparkSession, classic or of Spark Connect. `session_of` makes the right one.

    Attributes:
        master: Spark's name of the cluster.
        tells_lost_tasks: Do its jobs know which tasks Spark has lost, and which run on executors
            that are being decommissioned? Those of Spark Connect know neither: a slot there takes
            trials until its executor is gone.
    """

    master: str
    tells_lost_tasks: bool

    @property
    def on_this_host(self) -> bool:
        """Do all executors run on the driver's host, as its children?"""

    @property
    def application_id(self) -> str:
        """Spark's name of the application."""

    @property
    def stopped(self) -> bool:
        """Is the session of no use any more?"""

    @property
    def driver_host(self) -> str:
        """The name by which executors reach the driver."""

    @property
    def bind_host(self) -> str:
        """The driver's address to listen on."""

    @property
    def assigns_gpus(self) -> bool:
        """Is it Spark that says which GPUs a slot has, if any?"""

    @property
    def task_needs(self) -> TaskNeeds:
        """What a slot asks of an executor."""

    def asking(self, gpus_per_trial: int | None, trials_per_gpu: int) -> Self:
        """Return this session for slots that ask for these GPUs, see `experiment.Settings`.

        Raises:
            InvalidArgument: No executor can have that many.
        """

    def tell_idle_gpus(self, warn: Callable[[str], None]) -> None:
        """Warn where an executor has too few cores for the slots that its GPUs are enough for."""

    def check_worker_timeouts(self) -> None:
        """Refuse settings with which Spark ends slots that run long trials.

        Raises:
            InvalidArgument: Python workers are to be killed when they are idle for a time.
        """

    def tell_risk(self, warn: Callable[[str], None]) -> None:
        """Warn, once in a session, where strangers can do something through Spark's own ports."""

    @property
    def exposure(self) -> Exposure | None:
        """What strangers can do through Spark's own ports; None where they are shut out."""

    def setting(self, name: str) -> str | None:
        """Return a Spark setting, or None where it is not set."""

    def hide_console_progress(self) -> None:
        """Stop the bar that Spark draws on the terminal; it has only slots to show."""

    def task_slots(self, tick: Callable[[], None] | None = None) -> int:
        """Return how many tasks the cluster can run at once, dynamic allocation at its most.

        Args:
            tick: Called each second in which executors are waited for; left out, none are.
        """

    def cluster(self) -> Cluster:
        """Return the executors that are there now; None in it for what nobody can know."""

    def failing_hosts(self) -> Sequence[FailingHost]:
        """Return the hosts on which executors cannot start, as far as the cluster's pages tell.

        Asks other hosts, so it may take some seconds.
        """

    def shared(self, data: bytes) -> AbstractContextManager[SharedBytes]:
        """Lend bytes to executors while the block lasts."""

    def job(
        self,
        slot: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        tag: str,
        schema: str = SLOTS,
    ) -> SlotJob:
        """Return a job of slots.

        Args:
            slot: Runs in each of them.
            count: How many there are.
            tag: Names the job for cancelling; unique among all jobs.
            schema: Of what a slot yields, as Spark writes it.
        """

    def map_in_arrow(
        self, frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str
    ) -> Any:
        """Run a function on each partition of a DataFrame, in executors.

        Args:
            frame: Of this session.
            function: Takes a partition's Arrow batches and yields batches; it can be pickled.
            schema: Of what it yields, as Spark writes it.

        Returns:
            An Arrow table of all that it yielded.
        """

    def data_settings(self) -> DataSettings:
        """Return how trials get at their data, out of Spark's and Hadoop's settings."""

    def renewed_tokens(self, data: DataSettings) -> AbstractContextManager[None]:
        """Renew the delegation tokens of a search as long as the block lasts."""

    def default_logdir(self) -> str:
        """Return the folder of runs of a user who names none."""

    def shared_folder(self) -> str:
        """Return a folder for data that all executors see.

        Raises:
            InvalidArgument: None is known, and executors run on other hosts.
        """

    def search_path(self) -> list[str]:
        """Return the folders from which executors may import what the driver imports."""


def importing(
    function: Callable[[Iterable[Any]], Iterator[Any]], search_path: list[str]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that is unpickled once its modules can be imported.

    Args:
        function: To call; it can be pickled.
        search_path: Folders to import from beside the executor's own.
    """
    data = pickle.dumps(function)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pickle

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        yield from pickle.loads(data)(batches)

    return run
