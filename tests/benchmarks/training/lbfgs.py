"""L-BFGS of two workers against that of one: the train function of the example, without Spark.

The workers are threads, whose links are those of a trial's workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from examples import lbfgs_on_a_gang
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.trial.context import TrialContext, entered
from tests.spark_jobs.communicator.gangs import results

_PENALTY = 1.0  # the default of the example


class Fitted(NamedTuple):
    """What a worker has fitted.

    Attributes:
        weights: The weights.
        accuracy: The share of the unseen digits that are recognised.
    """

    weights: np.ndarray
    accuracy: float


def fitted(workers: int, split: int) -> list[Fitted]:
    """Return what each of some workers has fitted together with the others.

    Args:
        workers: The number of workers, each with its part of the digits.
        split: The seed by which the unseen digits are drawn.
    """

    def worker(communicator: Communicator) -> Fitted:
        with tempfile.TemporaryDirectory() as folder:
            trial = TrialContext(
                params={},
                folder=Path(folder),
                rank=communicator.rank,
                workers=workers,
                communicator=communicator,
            )
            with entered(trial):
                metrics = lbfgs_on_a_gang.train(_PENALTY, split)
            return Fitted(np.load(Path(folder, "weights.npy")), metrics["accuracy"])

    with threadpool_limits(1, "blas"):  # more threads make such small products slower
        return results(workers, worker)


def difference(splits: Iterable[int]) -> float:
    """Return the greatest difference of a weight of two workers from that of one, over splits.

    Args:
        splits: The seeds by which the unseen digits are drawn.
    """
    apart = 0.0
    for split in splits:
        (one,) = fitted(1, split)
        for each in fitted(2, split):
            apart = max(apart, float(np.abs(each.weights - one.weights).max()))
    return apart
