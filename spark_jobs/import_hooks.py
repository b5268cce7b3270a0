"""Hooks that run when a module is imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import wrapt


@contextlib.contextmanager
def when_imported(name: str, function: Callable[[ModuleType], None]) -> Iterator[None]:
    """Call a function with a module: now if it is imported, or when the block imports it."""
    if name in sys.modules:
        function(sys.modules[name])
        yield
        return
    hook = _Once(function)
    wrapt.register_post_import_hook(hook, name)
    try:
        yield
    finally:
        hook.cancel()


class _Once:
    """An import hook that can be cancelled; wrapt keeps hooks until the module is imported."""

    def __init__(self, function: Callable[[ModuleType], None]) -> None:
        self._function: Callable[[ModuleType], None] | None = function

    def cancel(self) -> None:
        self._function = None

    def __call__(self, module: ModuleType) -> None:
        if self._function is not None:
            self._function(module)
