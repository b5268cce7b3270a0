"""A vector that the members of a gang share out of step: each keeps a chunk of it.

A parameter server without servers: the chunks are cut by size, so none is larger than the others
(Dean et al.: Large scale distributed deep networks, NIPS 2012, section 4.1, has servers of their
own).
"""

from __future__ import annotations

import numpy as np

from search.errors import InvalidArgument
from spark_jobs.communicator.arrays import Array, read_array, type_of
from spark_jobs.communicator.remote import Remote
from spark_jobs.communicator.requests import Chunk, Home


class SharedVector:
    """A shared vector, as one member sees it. Made by `Communicator.share`. Thread safe.

    Args:
        number: The vector's number in each member.
        rank: This member's rank.
        chunk: This member's chunk.
        initial: The whole vector, as all members begin with it.
        home: Keeps this member's chunk for the others.
        remote: The others; None in a gang of one.
        size: The number of members.
    """

    def __init__(
        self,
        *,
        number: int,
        rank: int,
        size: int,
        chunk: Chunk,
        home: Home,
        initial: Array,
        remote: Remote | None,
    ) -> None:
        self._number = number
        self._rank = rank
        self._size = size
        self._chunk = chunk
        self._home = home
        self._type = type_of(initial)
        self._remote = remote
        self._versions = dict.fromkeys(range(size), 0)

    def fetch(self) -> Array:
        """Return the current values, which others change meanwhile: chunks may differ in age.

        Raises:
            GangBroken: A member is gone, and its chunk with it.
        """
        whole = np.empty(self._type.shape, self._type.dtype)
        parts = self._parts(whole)
        own = parts.pop(self._rank)
        own[:], version = self._chunk.read()
        versions = {self._rank: version}
        if self._remote is not None:
            versions |= self._remote.fetch(self._number, parts)
        self._versions = versions
        return whole

    def push(self, change: Array) -> int:
        """Let each member apply its part of a change to its chunk.

        Args:
            change: A vector of the shared vector's type and length.

        Returns:
            The staleness: how many changes were made since the last `fetch`, in the chunk with
            most.

        Raises:
            GangBroken: A member is gone, and its chunk with it.
            InvalidArgument: The change has another type or length.
        """
        change = np.asarray(read_array("change", change), order="C")
        if type_of(change) != self._type:
            raise InvalidArgument("change", str(self._type), str(type_of(change)))
        parts = self._parts(change)
        found = {self._rank: self._chunk.change(parts.pop(self._rank))}
        if self._remote is not None:
            found |= self._remote.push(self._number, parts)
        staleness = max(version - self._versions[rank] for rank, version in found.items())
        # A member's own changes make nothing stale.
        self._versions = {rank: version + 1 for rank, version in self._versions.items()}
        return staleness

    def close(self) -> None:
        """Free this member's chunk, once no member fetches or pushes any more."""
        self._home.drop(self._number)

    def _parts(self, whole: Array) -> dict[int, Array]:
        return dict(enumerate(np.array_split(whole, self._size)))
