"""Requests to the other members, over connections that are opened at the first request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from spark_jobs.communicator.arrays import Array, ArrayType, as_bytes
from spark_jobs.communicator.connection import Connection
from spark_jobs.communicator.membership import GangBroken, Membership, MemberSilent
from spark_jobs.communicator.mesh import Mesh
from spark_jobs.communicator.requests import Fetch, Latest, Published, Push, Reply

LARGEST_ARRAY = 1 << 33
"""Maximum bytes of an array that is published, checked before it is allocated."""


class Remote:
    """What the other members keep. Thread safe: one request at a time.

    Args:
        membership: This member's place.
        mesh: Opens the connections.
    """

    def __init__(self, membership: Membership, mesh: Mesh) -> None:
        self._membership = membership
        self._mesh = mesh
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._gone: dict[int, GangBroken] = {}
        self._closed = False

    def latest(self, rank: int, name: str) -> Published | None:
        """Return what a member has last published under a name, if anything; raises GangBroken."""
        with self._requesting():
            connection = self._connection(rank)
            connection.send_message(Latest(name))
            reply = connection.receive_message(Reply)
            if reply.array is None:
                return None
            return Published(reply.version, self._receive(connection, reply.array))

    def fetch(self, vector: int, parts: dict[int, Array]) -> dict[int, int]:
        """Fill parts of a shared vector with the members' chunks; raises GangBroken.

        Patient, as `push` is, with members that answer nothing: without a chunk the whole vector is
        lost.

        Args:
            vector: The vector's number.
            parts: The part to fill by rank.

        Returns:
            The version of each chunk by rank.
        """
        versions = {}
        with self._requesting():
            for rank in parts:
                self._connection(rank, patient=True).send_message(Fetch(vector))
            for rank, part in parts.items():
                connection = self._connection(rank)
                reply = self._reply(connection)
                if reply.array != ArrayType(part.dtype.name, part.shape):
                    raise self._membership.broken(rank, f"sent {reply.array} for a chunk")
                connection.receive_into(as_bytes(part))
                versions[rank] = reply.version
        return versions

    def push(self, vector: int, parts: dict[int, Array]) -> dict[int, int]:
        """Apply changes to the members' chunks of a shared vector; raises GangBroken.

        Args:
            vector: The vector's number.
            parts: The change by rank.

        Returns:
            The version of each chunk before the change by rank.
        """
        with self._requesting():
            for rank, part in parts.items():
                connection = self._connection(rank, patient=True)
                connection.limit_delivery(0)  # a slow process has no room for a large part
                connection.send_message(Push(vector))
                connection.send(as_bytes(part))
            return {rank: self._reply(self._connection(rank)).version for rank in parts}

    def close(self) -> None:
        """End the connections, also under a thread that uses them; requests fail from now on."""
        self._closed = True
        for connection in tuple(self._connections.values()):
            connection.cut()
        with self._lock:
            self._end()

    def _end(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    @contextlib.contextmanager
    def _requesting(self) -> Iterator[None]:
        """Hold the connections; an error ends them, as an answer may still be on its way.

        A member that has ended is asked no more. One that is silent may be slow.
        """
        with self._lock:
            try:
                yield
            except BaseException as error:
                if isinstance(error, GangBroken) and not isinstance(error, MemberSilent):
                    self._gone[error.rank] = error
                self._end()
                raise

    def _connection(self, rank: int, *, patient: bool = False) -> Connection:
        if rank in self._gone:
            raise self._gone[rank]
        self._check_open()
        if rank not in self._connections:
            self._connections[rank] = self._mesh.open(rank, "requests", patient=patient)
            self._check_open()  # `close` may not have seen this connection
        return self._connections[rank]

    def _check_open(self) -> None:
        if self._closed:
            raise self._membership.broken(self._membership.rank, "has left the gang")

    def _reply(self, connection: Connection) -> Reply:
        reply = connection.receive_message(Reply)
        if reply.problem:
            what = f"could not apply the change: {reply.problem}"
            raise self._membership.broken(connection.rank, what)
        return reply

    def _receive(self, connection: Connection, array: ArrayType) -> Array:
        try:
            fits = array.nbytes <= LARGEST_ARRAY
        except ValueError:
            fits = False
        if not fits:
            what = f"sent {array}, not numbers of at most {LARGEST_ARRAY} bytes"
            raise self._membership.broken(connection.rank, what)
        values = np.empty(array.shape, array.dtype)
        connection.receive_into(as_bytes(values))
        return values
