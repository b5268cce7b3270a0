"""What a member calls: collectives in step, and vectors out of step."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from search.errors import InvalidArgument
from spark_jobs.communicator.arrays import Array, read_array
from spark_jobs.communicator.in_step.collectives import Collectives, Compression, Operation
from spark_jobs.communicator.in_step.rings import Rings
from spark_jobs.communicator.meeting import Meeting
from spark_jobs.communicator.membership import GangBroken, Membership
from spark_jobs.communicator.mesh import Links, Mesh
from spark_jobs.communicator.remote import Remote
from spark_jobs.communicator.requests import Apply, Chunk, Home, Published
from spark_jobs.communicator.shared_vector import SharedVector

PATIENCE = 600.0
"""Default seconds without any data after which a member counts as gone: longer than the members of
a training are apart, as while one saves a checkpoint."""


def connect(
    membership: Membership,
    plain: socket.socket,
    *,
    limit: float,
    patience: float = PATIENCE,
) -> Communicator:
    """Connect this member to all others, and return when all members have done so.

    Call it after the fork, in the member's process, and before a framework starts its own servers:
    so members that do not reach each other fail with a sentence. Importing this package starts no
    thread, and loads neither gRPC nor a framework.

    Args:
        membership: This member's place.
        plain: A socket bound to the member's address, not listening; it is taken over.
        limit: Seconds for all to listen and to connect, and then again for all to have done so; a
            host that does not answer at all is given a minute of them.
        patience: Seconds without any data after which a member counts as gone.

    Raises:
        GangBroken: A member was not reached in time, or has ended.
    """
    home = Home()
    if membership.size == 1:
        plain.close()
        return Communicator(membership, home)
    with contextlib.ExitStack() as undo:
        mesh = Mesh(membership, plain, home.serve, limit=limit, patience=patience)
        undo.callback(mesh.close)
        following, *others = (
            (membership.rank + step) % membership.size for step in range(1, membership.size)
        )
        after = mesh.open(following, "ring")
        undo.callback(after.close)
        for rank in others:
            mesh.open(rank, "check").close()
        links = Links(mesh.from_before(), after)
        communicator = Communicator(membership, home, mesh, links, patience)
        undo.pop_all()  # it closes all of these itself
        undo.callback(communicator.close)
        for link in links:
            link.be_patient(limit)
        communicator.barrier()
        for link in links:
            link.be_patient(patience)
        undo.pop_all()
    return communicator


class Communicator:
    """A member's calls to the others. A context manager; leaving it ends its connections.

    `all_reduce`, `broadcast`, `barrier`, `meet` and `share` are collective: all members make the
    same calls in the same order, and wait for each other. The other calls wait for single members.
    Thread safe; but collective calls of several threads have no order, so make them in one thread.

    Calls raise GangBroken if a member has ended, cannot be reached, or has sent nothing for the
    patience, and MembersDisagree if another member makes another call. After either, no collective
    call can succeed, and each raises the same.

    Args:
        membership: This member's place.
        home: What it keeps for the others.
        mesh: Its connections; None in a gang of one.
        links: Its connections in the ring; None in a gang of one.
        patience: Seconds without any data after which a member counts as gone.

    Attributes:
        rank: This member's rank, from 0.
        size: The number of members.
    """

    def __init__(
        self,
        membership: Membership,
        home: Home,
        mesh: Mesh | None = None,
        links: Links | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.rank = membership.rank
        self.size = membership.size
        self._home = home
        self._mesh = mesh
        rings = None if mesh is None or links is None else Rings(membership, links, mesh.open_ring)
        self._collectives = Collectives(membership, rings)
        self._remote: Remote | None = None
        self._meeting: Meeting | None = None
        if mesh is not None:
            self._remote = Remote(membership, mesh)
            self._meeting = Meeting(membership, home, self._remote, self._collectives, patience)
        self._process = os.getpid()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and threads; the others still get what was sent."""
        self._check_process()
        if self._closed:
            return
        self._closed = True
        self._collectives.close()
        if self._remote is not None:
            self._remote.close()
        if self._mesh is not None:
            self._mesh.close()

    def all_reduce(
        self,
        arrays: Sequence[npt.ArrayLike],
        op: Operation = "mean",
        *,
        rings: int = 1,
        compress: Compression | None = None,
    ) -> list[Array]:
        """Return the mean, sum, minimum or maximum of each array over all members.

        All members get the same bits. The order of the additions depends on the number of members
        and of rings, so sums differ from NumPy's by rounding.

        The idea of several rings is that of the multi-colour all-reduce of IBM (Kumar et al.:
        Efficient training of convolutional neural nets on large distributed systems, 2017, section
        on all-reduce), whose colours are trees rather than rings.

        Args:
            arrays: Arrays of numbers; as many in each member, of the same types and shapes.
            op: 'mean' (of floating-point or complex numbers), 'sum', 'min' or 'max' (of real
                numbers). A mean of float16 is summed, and sent, in 32 bits.
            rings: The number of parts in which the arrays go round at once, each in another order
                of the members; up to the number of members - 1.
            compress: 'float16' sends floating-point numbers in 16 bits, and sums them in 32, or in
                64 if they have 64. Each sum on the way is rounded, so magnitudes below 3e-8 become
                0. None sends numbers in their own type.

        Raises:
            InvalidArgument: The arrays are not of such numbers, there are fewer members than rings
                need, or 16 bits do not hold a number or a sum; all members raise the latter.
        """
        self._check_process()
        return self._collectives.all_reduce(arrays, op, rings, compress)

    def broadcast(self, arrays: Sequence[npt.ArrayLike], root: int = 0) -> list[Array]:
        """Return one member's arrays in all members.

        Args:
            arrays: Arrays of numbers; as many in each member, of the same types and shapes.
            root: The rank of the member whose arrays are returned.

        Raises:
            InvalidArgument: They are not arrays of numbers, or no member has this rank.
        """
        self._check_process()
        return self._collectives.broadcast(arrays, root)

    def barrier(self) -> None:
        """Wait until all members have made this call."""
        self._check_process()
        self._collectives.barrier()

    def meet(self) -> None:
        """Wait until all members have made this call, however late they come.

        Unlike in the other calls, a member that is slow never counts as gone. Raises GangBroken
        soon after one has ended, and MembersDisagree if one has begun a step (`begin_step`) that
        this member has not: it waits for this one there, and never comes.
        """
        self._check_process()
        if self._meeting is not None:
            self._meeting.wait()

    def begin_step(self) -> None:
        """Note that this member begins a step that ends when all members have made it."""
        if self._meeting is not None:
            self._meeting.begin_step()

    def publish(self, name: str, values: npt.ArrayLike) -> None:
        """Keep a copy of an array for the others under a name, in place of the one before."""
        self._check_process()
        self._home.publish(name, read_array(name, values))

    def withdraw(self, name: str) -> None:
        """Free what this member has published under a name, if anything; others find None then."""
        self._check_process()
        self._home.withdraw(name)

    def latest(self, rank: int, name: str) -> Published | None:
        """Return what a member has last published under a name.

        Returns:
            The array and its version; None if nothing was published, or the member has ended, or
            does not answer now.
        """
        self._check_process()
        if rank not in range(self.size):
            raise InvalidArgument("rank", f"a rank from 0 to {self.size - 1}", repr(rank))
        if self._remote is None or rank == self.rank:
            return self._home.latest(name)
        try:
            return self._remote.latest(rank, name)
        except GangBroken:
            return None

    def share(self, vector: npt.ArrayLike, apply: Apply) -> SharedVector:
        """Let the members share a vector, of which each keeps a chunk. A collective call.

        Args:
            vector: The initial vector, of one dimension; that of rank 0 counts.
            apply: Called as `apply(values, change)` in the member that keeps a chunk, with the
                chunk's values and a change that a member has pushed; updates the values in place.
        """
        self._check_process()
        read = read_array("vector", vector)
        if read.ndim != 1:
            raise InvalidArgument("vector", "one dimension", f"shape {read.shape}")
        (initial,) = self._collectives.broadcast([read], 0)
        chunk = Chunk(np.array_split(initial, self.size)[self.rank].copy(), apply)
        number = self._home.keep(chunk)
        self._collectives.barrier()  # from now on each has its chunk
        return SharedVector(
            number=number,
            rank=self.rank,
            size=self.size,
            chunk=chunk,
            home=self._home,
            initial=initial,
            remote=self._remote,
        )

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            expected = f"the process of the worker ({self._process})"
            hint = "a process that it has forked is no member"
            raise InvalidArgument("process", expected, str(os.getpid()), hint)
