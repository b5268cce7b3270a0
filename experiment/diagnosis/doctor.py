"""`experiment.doctor`: it reads its arguments, `experiment.diagnosis.examiner` does the work."""

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
    """Examine every executor of a session: what would make a search fail, and what to do about it.

    All slots are asked at once, so it waits for those that other jobs hold, up to the time limit;
    slots that did not answer are told. The folder for copies of data is made on hosts that lack it,
    and `logdir` where it is missing; files that are written there are removed again.

    Args:
        spark: A running SparkSession.
        train: A train function: how large it is when it travels, what makes it so, and whether
            executors can load it.
        data: A path that executors are to read, as for `experiment.data.local_copy`. It is listed,
            and a mebibyte is read.
        gpus_per_trial: As the search is to get it, so that its slots are those that are examined.
        trials_per_gpu: As the search is to get it.
        logdir: The folder for runs; left out: the one of searches that name none.
        timeout: Seconds for all of it; a third of it for the checks of a slot, which are made at
            once.

    Returns:
        What was found, as a table where it is printed; `.ok`, `.findings`.

    Raises:
        InvalidArgument: Not a running SparkSession, a function, a path or such a number. GPUs that
            no executor can give are a finding.
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
