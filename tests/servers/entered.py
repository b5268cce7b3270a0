"""Servers that run within a `with` block."""

from __future__ import annotations

import abc
from typing import Self


class Entered(abc.ABC):
    """A server that starts at the beginning of a `with` block, and stops at its end."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start it, and wait until it serves."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End it and all that it started; do nothing if stopped already."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
