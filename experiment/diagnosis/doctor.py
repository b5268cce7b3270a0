"""`experiment.doctor`: checks its arguments, and lets an `Examiner` do the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiment.diagnosis.diagnosis import Diagnosis
from experiment.setup.settings import check_gpus, check_logdir
from search.checks import plain
from search.errors import InvalidArgument, shown
from spark_jobs.session import session_of
from spark_jobs.storage.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doctor(
    spark: SparkSession,
    train: Callable[..., Any] | None = None,
    data: str | os.PathLike[str] | None = None,
    *,
    gpus_per_trial: int | None = None,
    trials_per_gpu: int = 1,
    logdir: str | os.PathLike[str] | None = None,
    timeout: float = 180.0,
) -> Diagnosis:
    """Check the slots of a session for what would make a search fail, with advice.

    At most 256 slots are checked, all at once, so it waits for slots that other jobs hold, up to
    the time limit; slots that did not answer are a finding. It creates `logdir`, and on each host
    the folder for copies of data, if they are missing; files that it writes there are removed
    again.

    Args:
        spark: A running SparkSession.
        train: A train function: the checks show its pickled size, its large variables, and whether
            executors can load it.
        data: A path for executors to read, as for `experiment.data.local_copy`. It is listed, and a
            mebibyte is read.
        gpus_per_trial: The search's `gpus_per_trial`, so that the same slots are checked.
        trials_per_gpu: The search's `trials_per_gpu`.
        logdir: The folder for runs; None for the default of searches.
        timeout: Maximum seconds for the checks of slots. The checks of one slot, which run at the
            same time as those of others, and each check of the storage may take a third of it.

    Returns:
        The findings, printed as a table; `.ok`, `.findings`.

    Raises:
        InvalidArgument: An argument is invalid, such as a stopped SparkSession. GPUs that no
            executor has are a finding instead.
    """
    if train is not None and not callable(train):
        raise InvalidArgument("train", "a function, or None", shown(train))
    place = None if data is None else Location.parse(data, "data")
    gpus_per_trial, trials_per_gpu = plain(gpus_per_trial), plain(trials_per_gpu)
    check_gpus(gpus_per_trial, trials_per_gpu)
    timeout = plain(timeout)
    if logdir is not None:
        check_logdir(logdir)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e6:
        raise InvalidArgument("timeout", "seconds above zero", shown(timeout))
    from experiment.diagnosis.examiner import Examiner  # late: `import experiment` needs no gRPC

    examiner = Examiner(
        session=session_of(spark),
        timeout=timeout,
        gpus_per_trial=gpus_per_trial,
        trials_per_gpu=trials_per_gpu,
    )
    return examiner.examine(train, place, logdir)
