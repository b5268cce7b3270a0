"""Replacing attributes of other packages for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module, a class or an object during the block."""
    inherited = name not in vars(target)
    original = vars(target).get(name)  # as it is there, such as a static method
    setattr(target, name, value)
    try:
        yield
    finally:
        if inherited:
            delattr(target, name)
        else:
            setattr(target, name, original)
