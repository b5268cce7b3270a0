"""Modules that pickles send by value; see `cloudpickle.register_pickle_by_value`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import cloudpickle


def is_sent(names: Mapping[str, Any]) -> bool:
    """Return whether the module with these globals is sent by value, or a package that has it."""
    registered = cloudpickle.list_registry_pickle_by_value()
    return any(f"{names.get('__name__')}.".startswith(f"{sent}.") for sent in registered)


def reduce_module(module: types.ModuleType) -> tuple[Any, ...]:
    """Reduce a module to an empty one, whose contents are its state.

    cloudpickle makes them arguments, which cannot refer to the module itself, as those of modules
    that import each other do.
    """
    contents = vars(module).copy()
    contents.pop("__builtins__", None)  # each process has its own
    return types.ModuleType, (module.__name__,), contents
