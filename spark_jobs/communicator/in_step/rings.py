"""A member's places in several rings, over which parts of an array go round at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spark_jobs.communicator.arrays import Array
from spark_jobs.communicator.connection import Connection
from spark_jobs.communicator.in_step.halves import Halves
from spark_jobs.communicator.in_step.ring import Ring, Sender
from spark_jobs.communicator.in_step.ring_orders import ring_orders
from spark_jobs.communicator.membership import GangBroken, Membership
from spark_jobs.communicator.mesh import Links

OpenRing = Callable[[int, tuple[int, ...]], Links]
"""Opens the connections of a further ring: called with its number, and its order of the ranks."""


class Reduction(NamedTuple):
    """How to reduce an array.

    Attributes:
        add: The operation, such as `np.add`.
        divisor: Divides the result.
        rings: The number of rings.
        compress: Whether to send numbers in 16 bits.
    """

    add: np.ufunc
    divisor: int = 1
    rings: int = 1
    compress: bool = False


class Rings:
    """A member's places in the rings of its gang. Not thread safe, but for `cut`.

    Args:
        membership: The member's place.
        links: Its connections in the first ring, of which the order is that of the ranks.
        open_ring: Opens further rings.
    """

    def __init__(self, membership: Membership, links: Links, open_ring: OpenRing) -> None:
        self._membership = membership
        self._open_ring = open_ring
        self._links: list[Links] = []
        self._senders: list[Sender] = []
        self._rings: list[Ring] = []
        self._error: BaseException | None = None
        self._add(links, membership.rank)

    @property
    def first(self) -> Ring:
        """The first ring."""
        return self._rings[0]

    @property
    def before(self) -> Connection:
        """The first ring's connection from the rank before."""
        return self._links[0].before

    @property
    def sender(self) -> Sender:
        """The sender to the next rank in the first ring."""
        return self._senders[0]

    def __len__(self) -> int:
        return len(self._rings)

    def open(self, rings: int) -> None:
        """Open further rings, together with all members, until there are so many.

        Raises:
            GangBroken: A member was not reached, or did not connect.
        """
        orders = ring_orders(self._membership.size, rings)
        for number in range(len(self), rings):
            order = orders[number]
            self._add(self._open_ring(number, order), order.index(self._membership.rank))

    def all_reduce(self, flat: Array, reduction: Reduction) -> float:
        """Reduce an array as `Ring.all_reduce` does, each part of it in a ring of its own.

        Args:
            flat: The array.
            reduction: How to reduce it; its rings must be open.

        Returns:
            The largest magnitude that was too large for 16 bits in this member; 0 without one.

        Raises:
            GangBroken: A member is gone. The rings are cut then.
        """
        add, divisor, rings, compress = reduction
        rounded = [Halves() if compress else None for _ in range(rings)]

        def go_round(number: int, part: Array) -> None:
            try:
                self._rings[number].all_reduce(part, add, divisor, rounded[number])
                self._senders[number].flush()
            except BaseException as error:
                sender = self._senders[number]
                self._error = self._error or sender.error or error
                self.cut()  # so that the other rings, which may wait for this one's members, end

        first, *others = enumerate(np.array_split(flat, rings))
        threads = [
            threading.Thread(target=go_round, args=other, name="gang-ring", daemon=True)
            for other in others
        ]
        try:
            for thread in threads:
                thread.start()
            go_round(*first)
        except BaseException as error:  # a thread cannot be started
            self._error = self._error or error
            self.cut()
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        if self._error is not None:
            raise self._error
        return max((each.overflow for each in rounded if each is not None), default=0.0)

    def cause(self, error: BaseException) -> BaseException:
        """Return the first error of the rings, of which an error may be a consequence."""
        if not isinstance(error, GangBroken):  # such as an interrupt, which itself ends the rings
            return error
        # A sender that fails cuts the other connection.
        return self._error or self.sender.error or error

    def cut(self) -> None:
        """End all connections under threads that use them."""
        for links in self._links:
            for link in links:
                link.cut()

    def close(self) -> None:
        """End the connections, and the threads that send."""
        for sender in self._senders:
            sender.close()
        for links in self._links:
            for link in links:
                link.close()

    def _add(self, links: Links, place: int) -> None:
        sender = Sender(links.after, links.before.cut)
        self._links.append(links)
        self._senders.append(sender)
        self._rings.append(Ring(place, self._membership.size, sender, links.before))
