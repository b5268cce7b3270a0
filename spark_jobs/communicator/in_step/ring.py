"""Collectives over a ring: each member sends to the next rank and receives from the one before.

The all-reduce of Patarasuk and Yuan (Bandwidth optimal all-reduce algorithms for clusters of
workstations, 2009): n - 1 steps that reduce parts, n - 1 steps that gather them, each member sends
2 (n - 1) / n of the data. Parts are cut into chunks, and a chunk is sent on when it has arrived,
while the next one arrives: so encryption, decryption, network and addition overlap.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from spark_jobs.communicator.arrays import Array, as_bytes
from spark_jobs.communicator.in_step.halves import Halves
from spark_jobs.communicator.membership import GangBroken

CHUNK = 1 << 18
"""Bytes of a chunk. The two that are added stay in the processor's cache."""

_SMALL = 1 << 14  # bytes


class Sending(Protocol):
    """What the ring needs of the connection to the next rank."""

    def send(self, data: memoryview) -> None:
        """Send bytes; may block until the other side has received some of them."""


class Receiving(Protocol):
    """What the ring needs of the connection from the rank before."""

    def receive_into(self, data: memoryview) -> None:
        """Fill a buffer."""

    def cut(self) -> None:
        """End the connection under a thread that waits for its data."""


class Sender:
    """Sends buffers in order, in a thread of its own, so that sending and receiving overlap.

    A small buffer that no other one precedes is sent at once, since the kernel has room for it. A
    buffer must not change before `flush` returns, or before its content has gone round the ring.

    Args:
        connection: The connection to send on.
        failed: Called in the thread after an error, to wake whoever waits for other data.
    """

    def __init__(self, connection: Sending, failed: Callable[[], None]) -> None:
        self._connection = connection
        self._failed = failed
        self._waiting: queue.SimpleQueue[memoryview | threading.Event | None] = queue.SimpleQueue()
        self._idle = True
        self.error: GangBroken | None = None
        self._thread = threading.Thread(target=self._run, name="gang-sender", daemon=True)
        self._thread.start()

    def send(self, data: memoryview) -> None:
        """Send a buffer, now or later; may raise GangBroken."""
        if self._idle and len(data) <= _SMALL:
            self._connection.send(data)
            return
        self._idle = False
        self._waiting.put(data)

    def flush(self) -> None:
        """Wait until all buffers are sent; raises GangBroken."""
        if self._idle:
            return
        sent = threading.Event()
        self._waiting.put(sent)
        sent.wait()
        if self.error is not None:
            raise self.error
        self._idle = True

    def close(self) -> None:
        """End the thread, after the waiting buffers."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            elif self.error is None:
                try:
                    self._connection.send(item)
                except GangBroken as error:
                    self.error = error
                    self._failed()


class Ring:
    """One member's place in a ring. Not thread safe.

    Args:
        rank: The member's rank.
        size: The number of members, at least two.
        sender: Sends to the next rank.
        before: The connection from the rank before.
        chunk: Bytes of a chunk.
    """

    def __init__(
        self, rank: int, size: int, sender: Sender, before: Receiving, chunk: int = CHUNK
    ) -> None:
        self._rank = rank
        self._size = size
        self._sender = sender
        self._before = before
        self._chunk = chunk

    def all_reduce(
        self, flat: Array, add: np.ufunc, divisor: int = 1, halves: Halves | None = None
    ) -> None:
        """Reduce arrays of all members in place; all get the same bits.

        Args:
            flat: A contiguous array of one dimension, as long in each member.
            add: The operation, such as `np.add`.
            divisor: Divides the result.
            halves: Rounds what is sent to 16 bits; None sends numbers as they are.
        """
        parts = np.array_split(flat, self._size)
        length = max(1, self._chunk // flat.itemsize)
        scratch = np.empty(length, flat.dtype if halves is None else np.float16)
        for chunk in self._chunks(parts[self._rank]):
            self._send(chunk if halves is None else halves.of(chunk))
        last = 2 * self._size - 3
        for step in range(last + 1):
            for chunk in self._chunks(parts[(self._rank - step - 1) % self._size]):
                if step < self._size - 1:
                    arrived = scratch[: len(chunk)]
                    self._receive(arrived)
                    add(chunk, arrived, out=chunk)
                    is_whole = step == self._size - 2
                    if is_whole and divisor != 1:
                        np.divide(chunk, divisor, out=chunk)
                    sent = chunk if halves is None else halves.of(chunk)
                    if is_whole and halves is not None:
                        chunk[:] = sent  # as the others get it
                else:
                    # Not into `scratch`: what is sent on may wait.
                    sent = chunk if halves is None else np.empty(len(chunk), np.float16)
                    self._receive(sent)
                    if halves is not None:
                        chunk[:] = sent
                if step < last:
                    self._send(sent)

    def broadcast(self, flat: Array, root: int) -> None:
        """Copy one member's array to all others, in place.

        Args:
            flat: A contiguous array of one dimension, as long in each member.
            root: The rank of the member whose array it is.
        """
        for chunk in self._chunks(flat):
            if self._rank != root:
                self._receive(chunk)
            if (self._rank + 1) % self._size != root:
                self._send(chunk)

    def _chunks(self, part: Array) -> Iterator[Array]:
        length = max(1, self._chunk // part.itemsize)
        for start in range(0, len(part), length):
            yield part[start : start + length]

    def _send(self, chunk: Array) -> None:
        self._sender.send(as_bytes(chunk))

    def _receive(self, chunk: Array) -> None:
        self._before.receive_into(as_bytes(chunk))
