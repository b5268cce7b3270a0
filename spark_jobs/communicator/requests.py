"""Requests of members that are not in step: published vectors, and chunks of shared vectors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from spark_jobs.communicator.arrays import Array, ArrayType, as_bytes, type_of
from spark_jobs.communicator.connection import Connection
from spark_jobs.messages import prepare

Apply = Callable[[Array, Array], object]


class Latest(msgspec.Struct, frozen=True, tag="latest"):
    """The request for a published vector."""

    name: str


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """The request for a chunk of the shared vector with this number."""

    vector: int


class Push(msgspec.Struct, frozen=True, tag="push"):
    """The request to apply a change to a chunk of the shared vector; the change follows."""

    vector: int


Request = Latest | Fetch | Push


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request; the array follows.

    Attributes:
        version: How often the vector was published, or the chunk changed, before the request.
        array: Type and shape of the array; None without one.
        problem: The error of the function that applies changes; '' without one.
    """

    version: int
    array: ArrayType | None = None
    problem: str = ""


prepare(Reply)


class Published(msgspec.Struct, frozen=True):
    """A vector that a member has published.

    Attributes:
        version: How often it has published under this name, from 1.
        values: The vector.
    """

    version: int
    values: Array


class Chunk:
    """A member's chunk of a shared vector. Thread safe.

    Args:
        values: The initial values, which it takes over.
        apply: Called with the values and a change; updates the values in place.
    """

    def __init__(self, values: Array, apply: Apply) -> None:
        self._values = values
        self._apply = apply
        self._version = 0
        self._lock = threading.Lock()
        self.type = type_of(values)

    def read(self) -> tuple[Array, int]:
        """Return a copy of the values, and their version."""
        with self._lock:
            return self._values.copy(), self._version

    def change(self, change: Array) -> int:
        """Apply a change; return the version before it."""
        with self._lock:
            self._apply(self._values, change)
            self._version += 1
            return self._version - 1


class Home:
    """What this member keeps for the others. Thread safe."""

    def __init__(self) -> None:
        self._published: dict[str, Published] = {}
        self._chunks: dict[int, Chunk] = {}
        self._numbers = itertools.count()

    def keep(self, chunk: Chunk) -> int:
        """Keep a chunk of a shared vector; return the vector's number."""
        number = next(self._numbers)
        self._chunks[number] = chunk
        return number

    def drop(self, number: int) -> None:
        """Free the chunk of a shared vector, if it has not been freed."""
        self._chunks.pop(number, None)

    def publish(self, name: str, values: Array) -> None:
        """Keep a copy of a vector under a name, in place of the one before."""
        before = self._published.get(name)
        version = 1 if before is None else before.version + 1
        self._published[name] = Published(version, values.copy("C"))

    def withdraw(self, name: str) -> None:
        """Free what was published under a name, if anything was."""
        self._published.pop(name, None)

    def latest(self, name: str) -> Published | None:
        """Return what was last published under a name."""
        return self._published.get(name)

    def serve(self, connection: Connection) -> None:
        """Answer a member's requests until its connection ends, which raises GangBroken."""
        while True:
            request: Any = connection.receive_message(Request, idle=True)  # type: ignore[arg-type]  # a union
            self._answer(connection, request)

    def _answer(self, connection: Connection, request: Request) -> None:
        match request:
            case Latest(name):
                published = self.latest(name)
                if published is None:
                    connection.send_message(Reply(0))
                else:
                    _send(connection, published.version, published.values)
            case Fetch(vector):
                values, version = self._chunks[vector].read()
                _send(connection, version, values)
            case Push(vector):
                chunk = self._chunks[vector]
                change = np.empty(chunk.type.shape, chunk.type.dtype)
                connection.receive_into(as_bytes(change))
                try:
                    reply = Reply(chunk.change(change))
                except Exception as error:  # of the user's function
                    reply = Reply(0, problem=f"{type(error).__name__}: {error}")
                connection.send_message(reply)


def _send(connection: Connection, version: int, values: Array) -> None:
    connection.send_message(Reply(version, type_of(values)))
    connection.send(as_bytes(values))
