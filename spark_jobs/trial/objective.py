"""Reads the value that a train function returned as a score and metrics."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from search.direction import LONGEST_NAME, Direction, Directions, Goal
from search.errors import did_you_mean, prefixed, shown
from search.trial import UNNAMED_OBJECTIVE, Outcome
from search.values import is_unicode

_MOST_METRICS = 1_000
_NO_RETURN = "; the train function returned None, is there a `return`?"
_LIST = (
    "; return one number of it, or of model.evaluate(..., return_dict=True) the dict, and say "
    "which is the objective: optimization_key='accuracy'"
)
_NO_EPOCHS = (
    "got a History without epochs: fit() began after its last epoch, by its arguments or by the "
    "checkpoint that it restored; with keras_callbacks() it has those of the attempts before"
)
_CURVES = "; return the History that fit() returned, not its .history, or one number of it"


class UnusableReturn(Exception):
    """The returned value is not a score; the message says why."""


class AmbiguousObjective(UnusableReturn):
    """Several numbers were returned and none is named as the objective, or none of that name."""


class MissingObjective(AmbiguousObjective):
    """No number of the objective's name was returned."""


class EmptyHistory(UnusableReturn):
    """A Keras History without an epoch was returned, which does not say what metrics it has."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Which returned number is the objective.

    Attributes:
        key: The user's `optimization_key`, or None.
        direction: The direction, for a Keras History, whose best epoch counts.
        one_of_several: Whether `direction` names it, and not `optimization_key`.
    """

    key: str | None
    direction: Direction
    one_of_several: bool = False

    def outcome(self, trial: int, returned: Any) -> Outcome:
        """Return the outcome of a trial that finished and returned this; raises as `read`."""
        name, value, metrics = self.read(returned)
        return Outcome(trial, "finished", value, name, metrics)

    def read(self, returned: Any) -> tuple[str, float, dict[str, float]]:
        """Return the objective's name, its value, and all metrics by name.

        Args:
            returned: A number (int, float, numpy scalar, tensor without dimensions), a dict of
                names to such numbers, or a Keras History, of which the best epoch counts.

        Raises:
            AmbiguousObjective: Several keys, and no `optimization_key`.
            MissingObjective: No key of that name.
            EmptyHistory: A Keras History without an epoch.
            UnusableReturn: Anything that is not a finite number under the objective's name.
        """
        if _is_history(returned):
            return self._read_history(returned.history)
        if isinstance(returned, Mapping):
            return self._read_mapping(returned)
        name = self.key or UNNAMED_OBJECTIVE
        try:
            value = number(returned)
        except UnusableReturn as error:
            raise UnusableReturn(f"{error}{_meant(returned)}") from None
        return name, *_with_value(name, {name: value})

    def reported(self, metrics: Mapping[str, float | str]) -> str | None:
        """Return the name of the objective among reported metrics; None if it is not among them.

        Raises:
            AmbiguousObjective: Several metrics, and no `optimization_key`.
        """
        if self.key is not None:
            return self.key if self.key in metrics else None
        if len(metrics) > 1:
            got = ", ".join(shown(name, 40) for name in list(metrics)[:20])
            raise AmbiguousObjective(
                f"a trial reports several metrics ({got}); say which one stopping= goes by: "
                f"optimization_key={next(iter(metrics))!r}"
            )
        return next(iter(metrics), None)

    def _read_mapping(self, returned: Mapping[Any, Any]) -> tuple[str, float, dict[str, float]]:
        name = self._name(returned)
        if len(returned) > _MOST_METRICS:
            raise UnusableReturn(f"returned {len(returned)} metrics, more than {_MOST_METRICS}")
        metrics = {}
        for key, value in returned.items():
            if not isinstance(key, str) or len(key) > LONGEST_NAME or not is_unicode(key):
                wanted = f"strings of at most {LONGEST_NAME} characters that UTF-8 can hold"
                raise UnusableReturn(f"returned a dict with the key {shown(key)}, want {wanted}")
            try:
                metrics[key] = number(value)
            except UnusableReturn as error:
                hint = _CURVES if isinstance(value, list) else ""
                raise UnusableReturn(f"under the key {shown(key)}: {error}{hint}") from None
        return name, *_with_value(name, metrics)

    def _read_history(self, history: Mapping[str, Any]) -> tuple[str, float, dict[str, float]]:
        if not history:
            raise EmptyHistory(_NO_EPOCHS)
        name = self._name(history)
        epochs = range(len(history[name]))
        best = self.direction.best(epochs, lambda epoch: number(history[name][epoch]))
        if best is None:
            raise UnusableReturn(
                f"the History has no number under {name!r}: {shown(history[name])}"
            )
        known = len(history[name])  # curves of another length are of other epochs
        at_best = {key: values[best] for key, values in history.items() if len(values) == known}
        return Objective(name, self.direction)._read_mapping(numbers_in(at_best))

    def _name(self, keys: Mapping[Any, Any]) -> str:
        got = ", ".join(shown(key, 40) for key in list(keys)[:20]) or "none"
        if self.key is not None:
            if self.key not in keys:
                hint = prefixed(", ", did_you_mean(self.key, keys))
                if self.one_of_several:
                    said = f"no {self.key!r} among the keys {got}"
                    said += "; direction= names it as an objective"
                else:
                    said = f"want the key {self.key!r}, got the keys {got}"
                    said += "; optimization_key= names none of them"
                raise MissingObjective(said + hint)
            return self.key
        if len(keys) == 1:
            return str(next(iter(keys)))
        if not keys:
            raise UnusableReturn("got an empty dict, want a number")
        raise AmbiguousObjective(
            f"the train function returned several keys ({got}); say which is the objective: "
            f"optimization_key={next(iter(keys))!r}"
        )


@dataclass(frozen=True, slots=True)
class Objectives:
    """The returned numbers that are the objectives, where there are several.

    Attributes:
        directions: The objectives' names, with their directions.
    """

    directions: Directions

    def outcome(self, trial: int, returned: Any) -> Outcome:
        """Return the outcome of a trial that finished and returned this.

        Args:
            trial: The trial's id.
            returned: A dict of names to numbers, as for `Objective.read`. No Keras History: its
                best epoch differs between objectives.

        Raises:
            UnusableReturn: Anything without a finite number under the name of each objective.
        """
        if not isinstance(returned, Mapping):
            wanted = ", ".join(map(repr, self.directions.names))
            got = f"{type(returned).__name__} ({shown(returned, 80)})"
            hint = _NO_RETURN if returned is None else ""
            raise UnusableReturn(f"got {got}, want a dict with the keys {wanted}{hint}")
        values: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for name, direction in self.directions.by_name.items():
            try:
                _, values[name], metrics = Objective(name, direction, True).read(returned)
            except MissingObjective as error:  # another objective may have it
                raise UnusableReturn(str(error)) from None
        return Outcome(trial, "finished", metrics=metrics, values=values)

    def reported(self, metrics: Mapping[str, float | str]) -> str | None:
        """Return None: there is no single objective to report."""
        return None


def objective_of(key: str | None, direction: Goal) -> Objective | Objectives:
    """Return the reader of the values that a search's train function returns.

    Args:
        key: The user's `optimization_key`, or None.
        direction: Direction of the objective, or of each of several.
    """
    if isinstance(direction, Directions):
        return Objectives(direction)
    return Objective(key, direction)


def _meant(returned: Any) -> str:
    """Return what to do about a returned value that is no number; '' if unknown."""
    if returned is None:
        return _NO_RETURN
    if isinstance(returned, str):
        return "; return the number itself, as by float()"
    if isinstance(returned, list | tuple | np.ndarray):
        return _LIST
    return ""


def number(value: Any) -> float:
    """Return a numeric scalar as a float; it may be NaN or infinite.

    Raises:
        UnusableReturn: Not a number, not a single one, a bool, or masked by numpy.
    """
    plain = value
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):  # `item` returns 0.0
        raise UnusableReturn("got a masked value of numpy, want float")
    if getattr(value, "shape", None) is not None and tuple(value.shape) == ():
        plain = _item(value)
    if not isinstance(plain, bool | str | bytes | complex) and (
        isinstance(plain, numbers.Real) or (plain is not value and hasattr(plain, "__float__"))
    ):
        try:
            return float(plain)
        except (OverflowError, TypeError, ValueError):
            pass
    raise UnusableReturn(f"got {type(value).__name__} ({shown(value, 80)}), want float")


def numbers_in(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are single numbers, by name."""
    found = {}
    for name, value in logs.items():
        with contextlib.suppress(UnusableReturn):
            found[name] = number(value)
    return found


def _item(scalar: Any) -> Any:
    """Return the Python number in a numpy scalar or a tensor without dimensions."""
    try:
        if not hasattr(scalar, "item"):  # TensorFlow; np.asarray fails for its bfloat16
            scalar = scalar.numpy() if hasattr(scalar, "numpy") else np.asarray(scalar)
        return scalar.item() if hasattr(scalar, "item") else scalar
    except Exception:  # such as a tensor inside a graph: frameworks have their own errors
        return None


def _with_value(name: str, metrics: dict[str, float]) -> tuple[float, dict[str, float]]:
    value = metrics[name]
    if not math.isfinite(value):
        raise UnusableReturn(f"the objective {name!r} is {value!r}")
    return value, metrics


def _is_history(returned: Any) -> bool:
    """Recognise keras.callbacks.History without importing Keras."""
    return isinstance(getattr(returned, "history", None), dict) and hasattr(returned, "epoch")
