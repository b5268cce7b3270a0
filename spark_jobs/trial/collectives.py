"""The calls by which the workers of a trial exchange arrays, in step.

Outside a trial, and in a trial on one slot, they check their arguments and return copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.trial import context

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_jobs.communicator.arrays import Array
    from spark_jobs.communicator.communicator import Communicator
    from spark_jobs.communicator.in_step.collectives import Compression, Operation


def all_reduce(
    arrays: Sequence[npt.ArrayLike],
    op: Operation = "mean",
    *,
    rings: int = 1,
    compress: Compression | None = None,
) -> list[Array]:
    """Return the mean, sum, minimum or maximum of each array over all workers of the trial.

    All workers get the same bits. They make the same calls in the same order, each in the thread
    that runs the train function, and wait for each other. With one worker, and outside a trial, it
    returns copies.

    Args:
        arrays: A list of arrays of numbers, or of tensors; as many in each worker, of the same
            types and shapes.
        op: 'mean' (of floating-point or complex numbers), 'sum', 'min' or 'max' (of real numbers).
            A mean of float16 is summed, and sent, in 32 bits. Default 'mean'.
        rings: The number of parts in which the arrays go round the workers at once, each in another
            order of them (the idea is that of IBM's multi-colour all-reduce: Kumar et al.,
            Efficient training of convolutional neural nets on large distributed systems, 2017); up
            to `world_size() - 1`, and any number with one worker. It pays where hosts have
            several links, not behind one switch. Default 1.
        compress: 'float16' sends floating-point numbers in 16 bits, half of the bytes of float32,
            and sums them in 32 bits (float64 in 64). Each worker rounds the sum that it sends on to
            11 significant bits, and magnitudes below 3e-8 to 0. With one worker nothing is rounded.
            Default None: numbers are sent in their own type.

    Returns:
        NumPy arrays of the same types and shapes.

    Raises:
        InvalidArgument: The arrays are not of such numbers, there are fewer workers than `rings`
            needs, or a number or a sum exceeds 65504 with `compress='float16'`; in the latter case
            in all workers, which may go on.
        ExperimentError: Another worker has ended, has sent nothing for ten minutes, makes another
            call, or passes other shapes.
    """
    return _communicator().all_reduce(arrays, op, rings=rings, compress=compress)


def broadcast(arrays: Sequence[npt.ArrayLike], root: int = 0) -> list[Array]:
    """Return one worker's arrays in all workers of the trial, such as initial weights.

    All workers make the call, as for `all_reduce`.

    Args:
        arrays: A list of arrays of numbers, or of tensors; as many in each worker, of the same
            types and shapes.
        root: The rank of the worker whose arrays are returned.

    Returns:
        NumPy arrays of the same types and shapes.

    Raises:
        InvalidArgument: They are not arrays of numbers, or no worker has this rank.
        ExperimentError: As for `all_reduce`.
    """
    return _communicator().broadcast(arrays, root)


def barrier() -> None:
    """Wait until all workers of the trial have made this call; return at once with one worker.

    Raises:
        ExperimentError: As for `all_reduce`.
    """
    _communicator().barrier()


def _communicator() -> Communicator:
    """Return the trial's communicator; without one, that of a gang of one."""
    running = context.current()
    if running is not None and running.communicator is not None:
        return running.communicator
    # Late: trials that exchange nothing do not import it.
    from spark_jobs.communicator.communicator import Communicator
    from spark_jobs.communicator.membership import Membership
    from spark_jobs.communicator.requests import Home

    alone = Membership(rank=0, members=("localhost:0",), key="", certificate="")
    return Communicator(alone, Home())
