"""The strategies that a search can name, and their settings: values that travel as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

import msgspec

from search.checks import check_flag, check_integer, check_number, plain
from search.errors import InvalidArgument, did_you_mean, shown

Communication = Literal["auto", "ring", "nccl"]
Rule = Literal["downpour", "easgd"]

STALENESS, WAITING = "downpour/staleness", "downpour/waiting"
"""The curves of `Downpour`: in what callbacks get of an epoch, not in Keras' History."""
Axes = tuple[Literal["model"] | None, ...]
StrategyName = Literal["auto", "mirrored", "jax", "downpour", "codistillation"]


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


class Jax(msgspec.Struct, frozen=True, kw_only=True, tag="jax"):
    """Train one model on all workers of a trial in step, with Keras 3 on JAX.

    Each worker has a copy of the model and computes its part of each batch, by
    `keras.distribution.DataParallel` over the processes of `jax.distributed`; the workers' GPUs
    exchange arrays by NVIDIA's library, processors by Gloo. `KERAS_BACKEND` is set before Keras is
    imported. The train function is the one that runs on a single worker: batch size and learning
    rate are those of the whole training, whatever the number of workers.

    With a `layout`, each worker has a part of the model instead, by `keras.distribution.
    ModelParallel`, and computes its part for all samples of each batch.

    Args:
        layout: The axis along which each weight is cut into one part per device: a dict of regular
            expressions, which match all of a weight's path, to the weight's axes as Keras'
            `LayoutMap` has them, such as `{".*dense.*kernel": (None, "model")}`: 'model' for the
            axis that is cut, which the number of devices must divide, and None for others. Each
            device has all of the other weights. Default: nothing is cut.
        unprotected: Whether to accept that the ports of JAX and Gloo have no password: who reaches
            them can read and change what the workers exchange, and end the training. Unless this is
            True, a warning says so, and the strategy is refused on a cluster with
            `spark.authenticate` or encrypted traffic.

    Raises:
        InvalidArgument: An argument is invalid.
    """

    divides_data: ClassVar[bool] = True

    layout: dict[str, Axes] | None = None
    unprotected: bool = False

    def __post_init__(self) -> None:
        if self.layout is not None:
            msgspec.structs.force_setattr(self, "layout", _read_layout(self.layout))
        check_flag("unprotected", self.unprotected)
        msgspec.structs.force_setattr(self, "unprotected", plain(self.unprotected))


def _read_layout(layout: object) -> dict[str, Axes]:
    """Return a layout that a user passed, with tuples of axes."""
    if not isinstance(layout, Mapping) or not layout:
        expected = "a dict such as {'.*dense.*kernel': (None, 'model')}, or None"
        raise InvalidArgument("layout", expected, shown(layout))
    found: dict[str, Axes] = {}
    for pattern, axes in layout.items():
        if not isinstance(pattern, str) or not _is_pattern(pattern):
            raise InvalidArgument("layout", "regular expressions as its keys", shown(pattern))
        given = tuple(axes) if isinstance(axes, list | tuple) else ()
        if [axis for axis in given if axis is not None] != ["model"]:
            expected = "one 'model' and None for each other axis, such as (None, 'model')"
            raise InvalidArgument(f"layout[{pattern!r}]", expected, shown(axes))
        found[pattern] = given
    return found


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


class Downpour(msgspec.Struct, frozen=True, kw_only=True, tag="downpour"):
    """Train one model on all workers of a trial out of step: asynchronous data parallelism.

    Each worker trains in its own time, with its own optimizer, on its own part of the data
    (`experiment.shard`). The weights that all share are kept in parts of one size by the workers
    themselves. During `model.fit`, which needs Keras 3 with any backend and stays as it is, a
    worker sends every `push_every` steps what its weights have changed by, and takes the shared
    weights every `fetch_every` steps (Dean et al.: Large scale distributed deep networks, 2012). So
    a slow worker delays no other one before the end of `fit`, where they wait for each other; then
    all have the same weights.

    Batch size and number of epochs are those of each worker.

    Args:
        fetch_every: Number of a worker's steps after which it takes the shared weights.
        push_every: Number of a worker's steps after which it sends.
        rule: 'downpour': the shared weights are the sum of all changes. 'easgd', elastic averaging
            (Zhang et al.: Deep learning with elastic averaging SGD, 2015): a worker's weights and
            the shared ones move towards each other, every `fetch_every` steps, which `push_every`
            must equal.
        moving_rate: For 'easgd', the part of their difference by which both move, between 0 and 1.
            Default: 0.9 divided by the number of workers.

    Raises:
        InvalidArgument: An argument is invalid.
    """

    divides_data: ClassVar[bool] = False

    fetch_every: int = 10
    push_every: int = 10
    rule: Rule = "downpour"
    moving_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("fetch_every", "push_every", "moving_rate"):
            msgspec.structs.force_setattr(self, name, plain(getattr(self, name)))
        check_integer("fetch_every", self.fetch_every, 1)
        check_integer("push_every", self.push_every, 1)
        if self.rule not in get_args(Rule):
            raise InvalidArgument("rule", "'downpour' or 'easgd'", shown(self.rule))
        if self.rule == "easgd" and self.push_every != self.fetch_every:
            expected = f"{self.fetch_every}, as fetch_every, for rule='easgd'"
            hint = "a worker takes the shared weights and moves them in one exchange"
            raise InvalidArgument("push_every", expected, shown(self.push_every), hint)
        if self.moving_rate is None:
            return
        if self.rule != "easgd":
            expected, hint = f"None for rule={self.rule!r}", "pass rule='easgd', or leave it out"
            raise InvalidArgument("moving_rate", expected, shown(self.moving_rate), hint)
        expected = "a number between 0 and 1"
        check_number("moving_rate", self.moving_rate, expected, lambda rate: 0 < rate < 1)


class Codistillation(msgspec.Struct, frozen=True, kw_only=True, tag="codistillation"):
    """Train one model on each worker of a trial, which learn from each other's predictions.

    Each worker trains a model of its own on its own part of the data (`experiment.shard`), during a
    `model.fit` that stays as it is. To its loss it adds the cross-entropy of its predictions
    towards the mean of those of the other workers' models, on its own batches (Anil et al.: Large
    scale distributed neural network training through online distillation, 2018). The weights of
    these models are some steps old: every `every` steps a worker publishes its own, and takes those
    that the others have published, without waiting for any. The trial's value is that of rank 0's
    model.

    It needs Keras 3 with TensorFlow, a Sequential or functional model, or one of a class of your
    own with `get_config`, and one categorical or binary cross-entropy as its loss, of logits or of
    probabilities.

    Args:
        every: Number of a worker's steps after which it publishes and takes weights.
        weight: Factor of the added loss.
        burn_in: Number of a worker's steps in each `fit` before the others' predictions count.

    Raises:
        InvalidArgument: An argument is invalid.
    """

    divides_data: ClassVar[bool] = False

    every: int = 50
    weight: float = 1.0
    burn_in: int = 200

    def __post_init__(self) -> None:
        for name in ("every", "weight", "burn_in"):
            msgspec.structs.force_setattr(self, name, plain(getattr(self, name)))
        check_integer("every", self.every, 1)
        check_number(
            "weight", self.weight, "a number above 0", lambda weight: 0 < weight < math.inf
        )
        check_integer("burn_in", self.burn_in, 0)


Strategy = Mirrored | Jax | Downpour | Codistillation
"""How the workers of a trial train together."""

_BY_NAME: dict[str, type[Strategy]] = {
    "mirrored": Mirrored,
    "jax": Jax,
    "downpour": Downpour,
    "codistillation": Codistillation,
}


def name_of(strategy: Strategy) -> str:
    """Return the name that is short for a strategy, such as 'mirrored'."""
    return str(strategy.__struct_config__.tag)


def read_strategy(name: str, value: object) -> Strategy | Literal["auto"] | None:
    """Return the strategy that a user passed; a string is short for its default settings.

    Args:
        name: The argument's name for the error.
        value: A strategy, its name, 'auto', which is returned as it is, or None.

    Raises:
        InvalidArgument: There is no such strategy.
    """
    if value is None or isinstance(value, Strategy):
        return value
    if isinstance(value, str):
        if value == "auto":
            return "auto"
        if value in _BY_NAME:
            return _BY_NAME[value]()
    names = ("auto", *_BY_NAME)
    kinds = [f"experiment.{kind.__name__}(...)" for kind in _BY_NAME.values()]
    expected = f"{', '.join([*map(repr, names), *kinds])} or None"
    raise InvalidArgument(name, expected, shown(value), _hint(value) or did_you_mean(value, names))


def _hint(value: object) -> str:
    kinds = [kind for kind in _BY_NAME.values() if kind is value]
    return f"call it: experiment.{kinds[0].__name__}()" if kinds else ""
