"""The loss towards the predictions of other models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from search.errors import InvalidArgument, shown


class CrossEntropy(NamedTuple):
    """The cross-entropy that a model was compiled with.

    Attributes:
        kind: 'categorical', over the last axis, or 'binary', of each number by itself.
        from_logits: Whether the model returns logits rather than probabilities.
    """

    kind: Literal["categorical", "binary"]
    from_logits: bool

    def towards(self, keras: Any, others: Sequence[Any], counted: Any, own: Any) -> Any:
        """Return the mean cross-entropy of a model's predictions towards the mean of others'.

        Args:
            keras: The module `keras`.
            others: The predictions of the other models.
            counted: A tensor with 1 for each of these that counts, and 0 for others.
            own: Those of the model, through which alone the gradient flows.
        """
        ops = keras.ops
        # As Keras does before a loss: in 16 bits a probability near 1 has an infinite one.
        own = ops.cast(own, keras.config.floatx())
        found = [self._probabilities(ops, ops.cast(each, own.dtype)) for each in others]
        # `where` rather than a product: a model that does not count may predict NaN.
        total = sum(ops.where(counted[at] > 0, each, 0.0) for at, each in enumerate(found))
        mean = total / ops.cast(ops.sum(counted), own.dtype)
        losses = {
            "categorical": keras.losses.categorical_crossentropy,
            "binary": keras.losses.binary_crossentropy,
        }
        target = ops.stop_gradient(mean)
        return ops.mean(losses[self.kind](target, own, from_logits=self.from_logits))

    def _probabilities(self, ops: Any, predicted: Any) -> Any:
        if not self.from_logits:
            return predicted
        return ops.softmax(predicted) if self.kind == "categorical" else ops.sigmoid(predicted)


def cross_entropy_of(keras: Any, loss: Any) -> CrossEntropy:
    """Return the cross-entropy that a model was compiled with.

    Args:
        keras: The module `keras`.
        loss: The argument of `compile`.

    Raises:
        InvalidArgument: It is another loss, or one over another axis than the last, or without a
            class, or there are several.
    """
    known = keras.losses
    given = known.get(loss) if isinstance(loss, str) else loss
    kinds: list[tuple[Literal["categorical", "binary"], Any, Any]] = [
        ("categorical", known.categorical_crossentropy, known.CategoricalCrossentropy),
        ("categorical", known.sparse_categorical_crossentropy, known.SparseCategoricalCrossentropy),
        ("binary", known.binary_crossentropy, known.BinaryCrossentropy),
    ]
    for kind, function, made in kinds:
        if given is function:
            return CrossEntropy(kind, from_logits=False)
        if isinstance(given, made):
            if kind == "categorical":  # that of each number by itself is the same over any axis
                _check_classes(given)
            return CrossEntropy(kind, bool(given.get_config().get("from_logits")))
    expected = "one categorical or binary cross-entropy of keras.losses, for 'codistillation'"
    raise InvalidArgument("loss", expected, shown(loss), "compile the model with one")


def _check_classes(loss: Any) -> None:
    """Refuse a categorical cross-entropy that differs from the one of `CrossEntropy.towards`."""
    axis, ignored = getattr(loss, "axis", -1), getattr(loss, "ignore_class", None)
    if axis != -1 or ignored is not None:
        raise InvalidArgument(
            "loss",
            "a cross-entropy over the last axis and all classes, for 'codistillation'",
            f"axis={axis}, ignore_class={ignored}",
            "leave axis and ignore_class out: the loss towards the other models has neither",
        )
