"""The relay of an executor, started by `spark_jobs.relay.start`.

It passes the calls of the executor's slots on over one stream to the driver, and the answers back.
It belongs to one run, whose address it reads from a pipe. A process of its own, since any slot may
be killed. It ends after its last slot, and with the executor's JVM. When it is killed, or hangs,
its slots connect to the driver themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec

from spark_jobs import time_limits
from spark_jobs.channel.grpc_channel import (
    JOINED,
    SERVICE,
    Address,
    authorization,
    client_options,
    credentials_of,
)
from spark_jobs.channel.joined_calls import MOST_CALLS, Answered, Asking, Called
from spark_jobs.messages import ProtocolError
from spark_jobs.relay.handshake import greet_slot
from spark_jobs.relay.packets import REACHED, UNREACHED, PacketTooLarge, read_packet
from spark_jobs.trial.pipe.frames import frame
from spark_jobs.warm.executor import BACKLOG
from spark_jobs.warm.packets import peer_of

# From Python 3.13 on a server would look for its socket by the path of the slot that has bound it.
_KEEPS_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_FAREWELL = 1.0  # seconds to end the stream

_CALLED = msgspec.msgpack.Decoder(Called)
_ENCODER = msgspec.msgpack.Encoder()


class Relay:
    """Serves slots until the last one has gone.

    Args:
        address: The driver's address.
        path: The path of its socket.
    """

    def __init__(self, address: Address, path: str) -> None:
        self._token = address.token
        self._path = path
        self._slots = 0  # connections
        self._changed = asyncio.Event()
        channel = grpc.aio.secure_channel(address.target, credentials_of(address), client_options())
        metadata = (authorization(address.token),)
        stream = channel.stream_stream(f"/{SERVICE}/{JOINED}")
        self._asking = Asking(lambda: stream(metadata=metadata))
        self._reached = asyncio.ensure_future(_is_reached(channel))

    async def run(self, server: socket.socket, jvm: int) -> None:
        """Serve slots.

        Args:
            server: The listening socket.
            jvm: A pidfd of the executor's JVM.
        """
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(jvm, gone.set)
        listening = await asyncio.start_unix_server(
            self._serve, sock=server, backlog=BACKLOG, **_KEEPS_SOCKET
        )
        ways = (gone.wait(), self._until_unused(), self._until_failed())
        ends = [asyncio.ensure_future(end) for end in ways]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(FileNotFoundError):  # Spark has removed its folder
            os.unlink(self._path)
        listening.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asking.close(), _FAREWELL)

    async def _until_unused(self) -> None:
        """Return when there has been no slot for a while."""
        while True:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), time_limits.RELAY_UNUSED)
            except TimeoutError:
                if not self._slots:
                    return

    async def _until_failed(self) -> None:
        """Return if the relay cannot find out whether it reaches the driver."""
        with contextlib.suppress(Exception):
            await self._reached
            await asyncio.Event().wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a slot."""
        with (
            contextlib.closing(writer),
            self._counted(),
            contextlib.suppress(
                EOFError, OSError, PacketTooLarge, ProtocolError, msgspec.MsgspecError
            ),
        ):
            if self._slots <= MOST_CALLS:
                await self._greet(reader, writer)
                await asyncio.wait([self._reached])
                if self._reached.exception() is not None:
                    return
                reached = self._reached.result()
                writer.write(frame(REACHED if reached else UNREACHED))
                if reached:
                    await self._pass_on_calls(reader, writer)
                await writer.drain()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._slots += 1
        self._changed.set()
        try:
            yield
        finally:
            self._slots -= 1
            self._changed.set()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Find out whether the other side runs as this user and has the run's token.

        A trial runs as the same user, and has no token.

        Raises:
            OSError: It has not shown so in time, see `greet_slot`.
        """
        peer = peer_of(writer.get_extra_info("socket"))
        if peer.user != os.getuid():
            raise PermissionError("another user")
        greeting = greet_slot(reader, writer, self._token, peer.process)
        await asyncio.wait_for(greeting, time_limits.RELAY_ANSWER)

    async def _pass_on_calls(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on the calls of one connection, one at a time, and answer its empty packets."""
        call: asyncio.Task[None] | None = None
        try:
            while True:
                packet = await read_packet(reader)
                if not packet:
                    writer.write(frame(b""))
                elif call is not None and not call.done():
                    raise ProtocolError("a second call during the first one")
                else:
                    call = asyncio.ensure_future(self._pass_on(_CALLED.decode(packet), writer))
        finally:
            if call is not None:
                call.cancel()  # nobody waits for the answer any more

    async def _pass_on(self, called: Called, writer: asyncio.StreamWriter) -> None:
        answered: Answered = await self._asking.ask(called.call, called.message, called.key)
        writer.write(frame(_ENCODER.encode(answered)))


async def _is_reached(channel: grpc.aio.Channel) -> bool:
    try:
        await asyncio.wait_for(channel.channel_ready(), time_limits.RELAY_REACHES)
    except TimeoutError:
        return False
    return True


async def _run(server: int, jvm: int, path: str, address: Address) -> None:
    await Relay(address, path).run(socket.socket(fileno=server), jvm)


def main(server: int, jvm: int, path: str, secrets: int) -> None:
    """Run a relay to its end.

    Args:
        server: The descriptor of its listening socket.
        jvm: A pidfd of the executor's JVM.
        path: The socket's path.
        secrets: The descriptor of a pipe with the driver's address.
    """
    with os.fdopen(secrets, "rb") as file:
        address = msgspec.json.decode(file.read(), type=Address)
    asyncio.run(_run(server, jvm, path, address))
