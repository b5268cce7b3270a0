"""A TCP proxy that simulates a bad network between two processes of one host."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Literal, Self

Direction = Literal["up", "down"]  # to the target, and back from it
_BOTH: tuple[Direction, ...] = ("up", "down")
_RESET = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN
_CHUNK = 1 << 16


class Proxy:
    """Listens on a port of 127.0.0.1 and forwards all data. A context manager.

    What the network does is said by `forward`, `cut`, `hold`, `drop` and `slow`, from any thread;
    each holds until the next call, and has taken effect when it returns.

    Args:
        target: The address to forward to, "host:port".

    Attributes:
        address: The address to connect to instead, "host:port".
        connected: Number of connections so far.
        passed: Bytes forwarded so far, per direction.
        lost: Bytes dropped so far.
    """

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._refuses = False
        self._dropped: set[Direction] = set()
        self._held: set[Direction] = set()
        self._rate: float | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="proxy", daemon=True)
        self.address = ""
        self.connected = self.lost = 0
        self.passed: dict[Direction, int] = dict.fromkeys(_BOTH, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def forward(self) -> None:
        """Forward everything, held data first."""
        self._set()

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._set(refuses=True)

    def hold(self, *directions: Direction) -> None:
        """Hold all data, of both directions by default.

        As a network that is down for a while: TCP sends again what was lost.
        """
        self._set(held=directions or _BOTH)

    def drop(self, *directions: Direction) -> None:
        """Drop all data silently, of both directions by default.

        As a firewall that has forgotten a connection: a direction of a connection that lost
        something passes nothing any more, also after `forward`.
        """
        self._set(dropped=directions or _BOTH)

    def slow(self, rate: float) -> None:
        """Forward at most `rate` bytes a second per direction of a connection."""
        self._set(rate=rate)

    def _set(
        self,
        *,
        refuses: bool = False,
        dropped: Iterable[Direction] = (),
        held: Iterable[Direction] = (),
        rate: float | None = None,
    ) -> None:
        def change() -> None:
            self._refuses, self._rate = refuses, rate
            self._dropped, self._held = set(dropped), set(held)
            if refuses:
                for writer in self._writers:
                    _reset(writer)
            self._wake()

        self._call(change)

    def _call(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed, self._closing = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.address = "127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        self._started.set()
        await self._closing.wait()
        server.close()
        for writer in self._writers:
            _reset(writer)
        while len(asyncio.all_tasks()) > 1:  # unclosed connections would cause a warning
            self._wake()
            await asyncio.sleep(0.001)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            self._writers.add(far_writer)
            writers.append(far_writer)
            if not self._refuses:
                self.connected += 1
                await asyncio.gather(
                    self._pump("up", reader, far_writer), self._pump("down", far_reader, writer)
                )
        except OSError:
            pass  # the target refuses
        for each in writers:
            _reset(each)
            with contextlib.suppress(OSError):
                await each.wait_closed()
            self._writers.discard(each)

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        lost = False
        try:
            while data := await reader.read(_CHUNK):
                while direction in self._held:
                    await self._changed.wait()
                lost = lost or direction in self._dropped
                if lost:
                    self.lost += len(data)
                    continue
                if self._rate is not None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), len(data) / self._rate)
                writer.write(data)
                self.passed[direction] += len(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            if not lost:
                writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
