"""A connection between two members: TLS sockets of Python's `ssl`, for messages and raw numbers.

ZeroMQ and gRPC would serve, too, and `make bench-training OPTIONS=--candidates` measures both: see
docs/internals/communicator.md for the figures and the choice.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import TypeVar

from spark_jobs.channel.credentials import CERTIFICATE_NAME
from spark_jobs.communicator.membership import GangBroken, Membership
from spark_jobs.messages import ProtocolError, decode, encode

LARGEST_MESSAGE = 1 << 22
"""Maximum bytes of a message; it describes arrays, about 30 bytes for each."""

T = TypeVar("T")
_LENGTH = struct.Struct("!I")

# A host that vanished sends no end. The kernel notices it by these, in seconds.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def tls_contexts(membership: Membership) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts for connecting and for accepting: both sides need the gang's key."""
    connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.verify_mode = ssl.CERT_REQUIRED
    # Nothing resumes a session; and a ticket that the other side never reads would make its socket
    # end with a reset, which can destroy data that is still on the way.
    accepting.num_tickets = 0
    with _key_file(membership) as path:
        for context in (connecting, accepting):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(cadata=membership.certificate)
            context.load_cert_chain(path)
    return connecting, accepting


@contextlib.contextmanager
def _key_file(membership: Membership) -> Iterator[str]:
    """Yield the path of a file in memory, as `ssl` reads keys from files only."""
    with os.fdopen(os.memfd_create("key"), "w") as file:
        file.write(membership.key + membership.certificate)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def configure(plain: socket.socket) -> None:
    """Let a socket send at once, and notice a host that vanished."""
    for level, option, value in _KEEPALIVE:
        plain.setsockopt(level, option, value)


def connected(context: ssl.SSLContext, address: tuple[str, int], seconds: float) -> ssl.SSLSocket:
    """Return a TLS connection to an address; OSError if there is none within a time limit.

    Args:
        context: The context for connecting.
        address: Host and port.
        seconds: The limit of each step: connecting, and the handshake.
    """
    plain = socket.create_connection(address, timeout=seconds)
    try:
        configure(plain)
        return context.wrap_socket(plain, server_hostname=CERTIFICATE_NAME)
    except BaseException:
        plain.close()
        raise


class Connection:
    """A connection to a member. One thread may send while another one receives.

    Args:
        tls: The connected socket, after the handshake.
        membership: This member's place.
        rank: The other member's rank; an accepted connection learns it from the first message.
        patience: Seconds without any data after which the other member counts as gone.
    """

    def __init__(
        self, tls: ssl.SSLSocket, membership: Membership, rank: int, patience: float
    ) -> None:
        self._tls = tls
        self._membership = membership
        self.rank = rank
        self._patience: float | None = patience
        tls.settimeout(patience)

    def send_message(self, message: object) -> None:
        """Send a message; raises GangBroken."""
        self.send(framed(message))

    def receive_message(self, kind: type[T], *, idle: bool = False) -> T:
        """Wait for a message and return it; raises GangBroken.

        Args:
            kind: The type of the message.
            idle: Whether to wait for the message's begin until the connection ends.
        """
        length = bytearray(_LENGTH.size)
        if idle:
            self._tls.settimeout(None)
        self.receive_into(memoryview(length))
        self._tls.settimeout(self._patience)
        (size,) = _LENGTH.unpack(length)
        if size > LARGEST_MESSAGE:
            raise self._broken(f"sent a message of {size} bytes, more than {LARGEST_MESSAGE}")
        data = bytearray(size)
        self.receive_into(memoryview(data))
        try:
            return decode(bytes(data), kind, LARGEST_MESSAGE)
        except ProtocolError as error:
            raise self._broken(f"sent an invalid message: {error}") from None

    def send(self, data: memoryview) -> None:
        """Send bytes; raises GangBroken."""
        try:
            if data:  # `ssl` refuses an empty buffer
                self._tls.sendall(data)
        except OSError as error:
            raise self._lost(error, "takes no data") from None

    def receive_into(self, data: memoryview) -> None:
        """Fill a buffer of bytes; raises GangBroken."""
        try:
            while data:
                count = self._tls.recv_into(data)
                if not count:
                    raise ConnectionResetError("end of its data")
                data = data[count:]
        except OSError as error:
            raise self._lost(error, "sends no data") from None

    def be_patient(self, seconds: float | None) -> None:
        """Set another patience than the constructor's; None: until the connection ends."""
        self._patience = seconds
        self._tls.settimeout(seconds)

    def limit_delivery(self, seconds: float) -> None:
        """Set the seconds for which data that were sent may be on their way; 0 at first: no limit.

        The kernel then ends the connection. So a request notices a host that has vanished. But data
        are on their way, too, while the other process reads nothing and has no room for them.
        """
        self._tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds))

    def cut(self) -> None:
        """End the connection under threads that use it: they raise GangBroken."""
        with contextlib.suppress(OSError):  # it has ended
            # SSLSocket's own method would go on without TLS.
            socket.socket.shutdown(self._tls, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection; no thread may use it. The other side still gets what was sent."""
        self.cut()
        self._tls.close()

    def _lost(self, error: OSError, silence: str) -> GangBroken:
        if is_silence(error):
            what = f"{silence} for {self._patience:g} s"
            return self._membership.silent(self.rank, what)
        return self._broken(f"has ended or left the gang ({reason(error)})")

    def _broken(self, what: str) -> GangBroken:
        return self._membership.broken(self.rank, what)


def framed(message: object) -> memoryview:
    """Return a message as `receive_message` reads it."""
    data = encode(message)
    if len(data) > LARGEST_MESSAGE:
        raise ProtocolError(f"a message of {len(data)} bytes, more than {LARGEST_MESSAGE}")
    return memoryview(_LENGTH.pack(len(data)) + data)


def is_silence(error: BaseException) -> bool:
    """Return whether a limit of ours has ended a wait, not the kernel, as for a vanished host."""
    return isinstance(error, TimeoutError) and error.errno is None


def reason(error: OSError) -> str:
    """Return an error's text without its number."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}".lower().replace("_", " ").replace("tls", "TLS")
    return error.strerror or str(error)
