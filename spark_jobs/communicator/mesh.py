"""Connecting the members of a gang: each connects to all others before any framework starts."""

from __future__ import annotations

import errno
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from spark_jobs.communicator.connection import (
    Connection,
    connected,
    is_silence,
    reason,
    tls_contexts,
)
from spark_jobs.communicator.listener import Listener
from spark_jobs.communicator.membership import (
    GangBroken,
    Membership,
    MemberSilent,
    host_and_port,
)

_HELLO = 10.0  # seconds for the first message of a connection, which follows the handshake at once
_AGAIN = 5.0  # seconds for a member that was reached before
_RETRY = 0.02  # seconds between two tries: a member may not listen yet
_ANSWER = 60.0  # seconds for a host to answer, though its member may not listen yet
_DELIVERY = 60.0  # seconds for a request to arrive, before its host counts as vanished

# Of this process, which can connect to nobody.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Purpose = Literal["ring", "requests", "check"]


class Hello(msgspec.Struct, frozen=True):
    """The first message on a connection.

    Attributes:
        rank: The sender's rank.
        purpose: What the connection is for; 'check' only tries it.
        ring: The number of the ring that it is for.
    """

    rank: int
    purpose: Purpose
    ring: int = 0


class Welcome(msgspec.Struct, frozen=True):
    """The answer to `Hello`: the rank of the member that accepted."""

    rank: int


class Ready(msgspec.Struct, frozen=True):
    """The answer to `Welcome`, without which the connection is not used: the sender gave it up."""


class Links(NamedTuple):
    """A member's connections in a ring: from the member before, and to the next one."""

    before: Connection
    after: Connection


class Mesh:
    """This member's connections to and from all others. Thread safe.

    Args:
        membership: This member's place.
        plain: The socket bound to its address; closed at the end.
        serve: Called in a thread of its own with each connection for requests.
        limit: Seconds for all members to listen and to connect, from now on.
        patience: Seconds without any data after which a member counts as gone.
    """

    def __init__(
        self,
        membership: Membership,
        plain: socket.socket,
        serve: Callable[[Connection], None],
        *,
        limit: float,
        patience: float,
    ) -> None:
        self._membership = membership
        self._serve = serve
        self._limit = limit
        self._answer = min(limit, _ANSWER)
        self._patience = patience
        self._end = time.monotonic() + limit
        self._connecting, accepting = tls_contexts(membership)
        self._listener = Listener(plain, accepting, self._arrived)
        self._before: list[queue.SimpleQueue[Connection]] = [
            queue.SimpleQueue() for _ in membership.members
        ]
        self._lock = threading.Lock()
        self._accepted: dict[threading.Thread, Connection] = {}
        self._closed = False
        self._listener.start()

    def open(
        self, rank: int, purpose: Purpose, ring: int = 0, *, patient: bool = False
    ) -> Connection:
        """Connect to a member.

        Args:
            rank: The member's rank.
            purpose: What the connection is for.
            ring: The number of the ring that it is for.
            patient: Whether a member that answers nothing is waited for as long as on a connection
                that exists.

        Raises:
            GangBroken: It does not listen within the limit, or its host does not answer within a
                minute; for requests and further rings, it could not be reached within seconds, as
                it was reached before; MemberSilent if it did not answer in them, or within the
                patience. Or another member has its address. Or this process is out of descriptors
                or memory: then the error has the rank of this member.
        """
        again = purpose == "requests" or ring > 0
        allowed = self._patience if patient else _AGAIN  # seconds without an answer
        now = time.monotonic()
        end = now + _AGAIN if again else min(self._end, now + self._answer)
        end_of_silence = now + allowed if again else end
        why, silent, exhausted, limit = "", False, False, self._answer
        while True:
            try:
                connection, found = self._open(
                    Hello(self._membership.rank, purpose, ring),
                    rank,
                    max(_RETRY, end_of_silence - time.monotonic()),
                )
            except (OSError, GangBroken) as error:
                if not again and isinstance(error, ConnectionRefusedError):
                    # Before it listens, its slot may copy a checkpoint, or import anew.
                    end = end_of_silence = min(self._end, time.monotonic() + self._answer)
                    limit = self._limit
                # The last try ends with the limit, whatever is wrong.
                if not why or time.monotonic() < end_of_silence:
                    why = reason(error) if isinstance(error, OSError) else str(error)
                    silent = is_silence(error) or isinstance(error, MemberSilent)
                    exhausted = isinstance(error, OSError) and error.errno in _EXHAUSTED
            else:
                if found == rank:
                    return connection
                connection.close()
                raise self._membership.broken(rank, f"says that it is worker {found}")
            if time.monotonic() + _RETRY > (end_of_silence if silent else end):
                if exhausted:
                    own, other = self._membership.rank, self._membership.name(rank)
                    raise self._membership.broken(own, f"cannot connect to {other} ({why})")
                if again and silent:
                    raise self._membership.silent(rank, f"did not answer within {allowed:g} s")
                if again:
                    raise self._membership.broken(rank, f"has ended or left the gang ({why})")
                raise self._unreached(rank, why, limit)
            time.sleep(_RETRY)

    def _open(self, hello: Hello, rank: int, seconds: float) -> tuple[Connection, int]:
        """Return a connection to the address of a rank, and the rank that its member says."""
        members = self._membership
        tls = connected(self._connecting, host_and_port(members.members[rank]), seconds)
        connection = Connection(tls, members, rank, min(seconds, _HELLO))
        try:
            connection.send_message(hello)
            welcome = connection.receive_message(Welcome)
            if welcome.rank == rank:
                connection.send_message(Ready())
        except BaseException:
            connection.close()
            raise
        connection.be_patient(self._patience)
        if hello.purpose == "requests":
            connection.limit_delivery(_DELIVERY)
        return connection, welcome.rank

    def _unreached(self, rank: int, why: str, limit: float) -> GangBroken:
        own, address = self._membership.rank, self._membership.members[rank]
        host, _ = host_and_port(self._membership.members[own])
        return GangBroken(
            f"worker {own} on host {host} does not reach worker {rank} at {address} within "
            f"{limit:g} s ({why}); open the workers' ports between the executors, or set "
            "spark.experiment.workerPorts to ports that are open",
            rank,
            address,
        )

    def from_before(self) -> Connection:
        """Wait for the first ring's connection from the rank before.

        Raises:
            GangBroken: It has not connected within the limit.
        """
        before = (self._membership.rank - 1) % self._membership.size
        return self._from(before, 0, self._end, self._limit)

    def open_ring(self, number: int, order: Sequence[int]) -> Links:
        """Open a further ring, together with all members, which are in this call, too.

        Args:
            number: Its number, from 1.
            order: The ranks in the order in which it visits them.

        Raises:
            GangBroken: A member has ended.
        """
        end = time.monotonic() + self._answer
        place = order.index(self._membership.rank)
        after = self.open(order[(place + 1) % len(order)], "ring", number)
        try:
            return Links(self._from(order[place - 1], number, end, self._answer), after)
        except BaseException:
            after.close()
            raise

    def _from(self, rank: int, ring: int, end: float, limit: float) -> Connection:
        try:
            return self._before[ring].get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            members = self._membership
            what = f"has not connected to {members.name(members.rank)} within {limit:g} s"
            raise members.broken(rank, what) from None

    def close(self) -> None:
        """Stop listening, end the accepted connections, and wait for their threads."""
        self._listener.close()
        with self._lock:
            self._closed = True
            accepted = self._accepted
        for thread, connection in accepted.items():
            connection.cut()
            thread.join()
        for ring in self._before:
            while not ring.empty():
                ring.get().close()

    def _arrived(self, tls: ssl.SSLSocket) -> None:
        connection = Connection(tls, self._membership, self._membership.rank, _HELLO)
        thread = threading.Thread(
            target=self._welcome, args=(connection,), name="gang-member", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads for now: the other side tries again
            connection.close()
            return
        with self._lock:  # a thread that removed itself could not be waited for
            living = {t: c for t, c in self._accepted.items() if t.is_alive()}
            self._accepted = {**living, thread: connection}

    def _welcome(self, connection: Connection) -> None:
        kept = False
        try:
            hello = connection.receive_message(Hello)
            every = range(self._membership.size)
            if hello.rank not in every or hello.ring not in every:
                return
            connection.rank = hello.rank
            connection.send_message(Welcome(self._membership.rank))
            connection.receive_message(Ready)
            connection.be_patient(self._patience)
            kept = hello.purpose == "ring"
            if hello.purpose == "requests":
                self._serve(connection)
        except GangBroken:  # it has left; a call that needs it notices by itself
            pass
        finally:
            with self._lock:
                if kept := kept and not self._closed:
                    self._before[hello.ring].put(connection)
            if not kept:
                connection.close()
