"""The strategies that a search can name, and their settings: values that travel as JSON."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import msgspec

from search.checks import check_flag, plain
from search.errors import InvalidArgument, did_you_mean, shown

Communication = Literal["auto", "ring", "nccl"]


class Mirrored(msgspec.Struct, frozen=True, kw_only=True, tag="mirrored"):
    """Train one model on all workers of a trial in step: synchronous data parallelism.

    Each worker has a copy of the model and takes its part of each batch; their gradients are
    averaged, so that all copies stay equal. TensorFlow's `MultiWorkerMirroredStrategy` does it. The
    train function runs in the strategy's scope, and is the one that runs on a single worker: batch
    size and learning rate are those of the whole training, whatever the number of workers.

    Args:
        communication: 'auto', 'ring' (over gRPC), or 'nccl', NVIDIA's library for GPUs.
        unprotected: Whether to train although TensorFlow's port of each worker has no password: who
            reaches it can run operations, and read and write files, as the user of Spark. A cluster
            with `spark.authenticate` or encrypted traffic refuses this, unless it is True.

    Raises:
        InvalidArgument: An argument is invalid.
    """

    divides_data: ClassVar[bool] = True

    communication: Communication = "auto"
    unprotected: bool = False

    def __post_init__(self) -> None:
        if self.communication not in get_args(Communication):
            expected = "'auto', 'ring' or 'nccl'"
            raise InvalidArgument("communication", expected, shown(self.communication))
        check_flag("unprotected", self.unprotected)
        msgspec.structs.force_setattr(self, "unprotected", plain(self.unprotected))


_BY_NAME = {"mirrored": Mirrored}


def read_strategy(name: str, value: object) -> Mirrored | None:
    """Return the strategy that a user passed; a string is short for its default settings.

    Args:
        name: The argument's name for the error.
        value: A strategy, its name, or None.

    Raises:
        InvalidArgument: There is no such strategy.
    """
    if value is None or isinstance(value, Mirrored):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]()
    expected = "'mirrored', experiment.Mirrored(...) or None"
    hint = "call it: experiment.Mirrored()" if value is Mirrored else did_you_mean(value, _BY_NAME)
    raise InvalidArgument(name, expected, shown(value), hint)
