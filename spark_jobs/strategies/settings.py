"""The strategies that a search can name, and their settings: values that travel as JSON."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import msgspec

from search.checks import check_flag, plain
from search.errors import InvalidArgument, did_you_mean, shown

Communication = Literal["auto", "ring", "nccl"]
StrategyName = Literal["auto", "mirrored"]


class Mirrored(msgspec.Struct, frozen=True, kw_only=True, tag="mirrored"):
    """Train one model on all workers of a trial in step: synchronous data parallelism.

    Each worker has a copy of the model and takes its part of each batch; their gradients are
    averaged, so that all copies stay equal. TensorFlow's `MultiWorkerMirroredStrategy` does it. The
    train function runs in the strategy's scope, and is the one that runs on a single worker: batch
    size and learning rate are those of the whole training, whatever the number of workers.

    Args:
        communication: 'auto', 'ring' (over gRPC), or 'nccl', NVIDIA's library for GPUs.
        unprotected: Whether to accept that TensorFlow's port of each worker has no password: who
            reaches it can run operations, and read and write files, as the user of Spark. Unless
            this is True, a warning says so, and the strategy is refused on a cluster with
            `spark.authenticate` or encrypted traffic.

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


def name_of(strategy: Mirrored) -> str:
    """Return the name that is short for a strategy, such as 'mirrored'."""
    return str(strategy.__struct_config__.tag)


def read_strategy(name: str, value: object) -> Mirrored | Literal["auto"] | None:
    """Return the strategy that a user passed; a string is short for its default settings.

    Args:
        name: The argument's name for the error.
        value: A strategy, its name, 'auto', which is returned as it is, or None.

    Raises:
        InvalidArgument: There is no such strategy.
    """
    if value is None or isinstance(value, Mirrored):
        return value
    if isinstance(value, str):
        if value == "auto":
            return "auto"
        if value in _BY_NAME:
            return _BY_NAME[value]()
    expected = "'auto', 'mirrored', experiment.Mirrored(...) or None"
    names = ("auto", *_BY_NAME)
    hint = "call it: experiment.Mirrored()" if value is Mirrored else did_you_mean(value, names)
    raise InvalidArgument(name, expected, shown(value), hint)
