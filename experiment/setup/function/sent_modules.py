"""Modules that a pickle sends by value; see `cloudpickle.register_pickle_by_value`."""

from __future__ import annotations

import operator
import types
from collections.abc import Mapping
from typing import Any

import cloudpickle

_PLACE = ("__file__", "__package__", "__path__")  # for relative imports, as cloudpickle does


def is_sent(names: Mapping[str, Any]) -> bool:
    """Return whether a module is registered to be sent by value, or a package that contains it.

    Args:
        names: The globals of the module.
    """
    registered = cloudpickle.list_registry_pickle_by_value()
    return any(f"{names.get('__name__')}.".startswith(f"{sent}.") for sent in registered)


class SentModules:
    """The modules that one pickle sends by value.

    Each becomes a new, empty module. Its functions get the dict of that module as their globals,
    and put into it what they use. cloudpickle would give them another dict: they would not notice
    when an attribute of the module is set.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[_Call, _Call]] = {}

    def reduce(self, module: types.ModuleType) -> tuple[Any, ...]:
        """Reduce a module to the new one, whose contents are its state.

        cloudpickle passes the contents to the call that makes the module. Contents that refer to
        the module, as in modules that import each other, cannot be passed before it exists.
        """
        new, _ = self._make(vars(module))
        contents = vars(module).copy()
        contents.pop("__builtins__", None)  # each process has its own
        return operator.getitem, ((new,), 0), contents

    def globals_of(self, function: types.FunctionType) -> Any:
        """Return what is unpickled as the globals of a function of such a module."""
        _, names = self._make(function.__globals__)
        return names

    def _make(self, names: dict[str, Any]) -> tuple[_Call, _Call]:
        """Return what is unpickled as the new module with these globals, and as its dict."""
        if id(names) not in self._made:
            place = {name: names[name] for name in _PLACE if name in names}
            new = _Call(types.ModuleType, (names["__name__"],), place)
            self._made[id(names)] = new, _Call(vars, (new,))
        return self._made[id(names)]


class _Call:
    """What is unpickled as the value of a call.

    Args:
        reduced: What `__reduce__` returns.
    """

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced
