"""The channel between slots and driver: JSON over gRPC, with TLS and a token.

The server has an event loop in a thread of its own, the only one that calls the handler, so the
handler needs no locks, and a slot that waits for work costs a future rather than a thread. The
certificate is made for the run; its slots accept no other. The messages are described in
docs/internals/messages.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import queue
import resource
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Self

import grpc
import msgspec

from spark_jobs import time_limits
from spark_jobs.channel.credentials import CERTIFICATE_NAME, make_certificate
from spark_jobs.channel.exchange import (
    CALLS,
    Call,
    ChannelClosed,
    ChannelLost,
    ChannelRefused,
    Cut,
    Exchange,
    Handler,
    Refusal,
    SlotChannel,
)
from spark_jobs.channel.file_channel import FileChannelAddress
from spark_jobs.channel.joined_calls import LARGEST_FRAME, Answering
from spark_jobs.messages import LARGEST_MESSAGE

SERVICE = "experiment.Channel"
JOINED = "Joined"  # the call of a relay: a stream of frames, see `joined_calls`
_KEY = "attempt-key"  # metadata, both ways
_CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_UNREACHED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


# A silently broken connection is noticed and replaced.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", _ms(time_limits.KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", _ms(time_limits.KEEPALIVE_ANSWER)),
    # A minute otherwise, also for these pings.
    ("grpc.http2.ping_timeout_ms", _ms(time_limits.KEEPALIVE_ANSWER)),
    # Otherwise two, and then one a minute: a slot may wait longer for work without any data.
    ("grpc.http2.max_pings_without_data", 0),
]

_LOOK = 1.0  # seconds between two checks whether the server has ended
_SPARE_CONNECTIONS = 64
# Any process that reaches the port may connect, with a token or without.
_LIMITS = [
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", _ms(time_limits.IDLE)),
    ("grpc.max_concurrent_streams", 16),  # calls at once of one connection; a slot has two
    ("grpc.max_metadata_size", 2_048),
    ("grpc.absolute_max_metadata_size", 4_096),
    ("grpc.max_receive_message_length", LARGEST_FRAME),
    # Else gRPC buffers ever more of the messages of a fast sender, before it asks for its token.
    ("grpc.http2.bdp_probe", 0),
]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's address for slots. Secret: `spark_jobs.handover` passes it to the slots.

    Attributes:
        target: The address, as "host:port".
        token: The token of every call.
        certificate: The driver's certificate, PEM.
        mailbox: The mailbox for slots that do not reach the target; None without one.
    """

    target: str
    token: str
    certificate: str
    mailbox: FileChannelAddress | None = None

    def __repr__(self) -> str:
        return f"Address({self.target!r})"


def _files_for_connections() -> int:
    """Return how many connections leave a quarter of this process' files to the user's program."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft * 3 // 4, _SPARE_CONNECTIONS)


class ChannelServer:
    """The driver's side. A context manager; leaving it stops the server.

    Args:
        host: The one address to listen on.
        handler: Receives the messages.
        advertised: The host by which executors reach that address.
        slots: Expected slots; each may have two connections, such as a dead one and its successor.

    Attributes:
        address: The address for slots, once entered.
    """

    def __init__(
        self, host: str, handler: Handler, *, advertised: str | None = None, slots: int = 1
    ) -> None:
        self._host = host.strip("[]")  # of an IPv6 address, as Spark's settings have it
        self._advertised = (advertised or host).strip("[]")
        self._exchange = Exchange(handler)
        self._connections = min(2 * slots + _SPARE_CONNECTIONS, _files_for_connections())
        self._token = secrets.token_hex(32)
        self._started = threading.Event()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="experiment-channel", daemon=True)
        self.address: Address

    @property
    def error(self) -> BaseException | None:
        """The handler's error, if it raised one; it ends the search."""
        return self._exchange.error

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self._started.wait()
        except BaseException:  # an interrupt: `__exit__` is not called if `__enter__` raises
            self._stop()
            raise
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._thread.ident is None:  # it could not be started
            return
        self._started.wait()
        if self._loop is not None and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._ended.wait()  # see SlotJob for why not the thread

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the server's thread, then let waiting slots ask again.

        Its error becomes `error`, as the handler's. When the server has ended, it does nothing.
        """

        async def run() -> None:
            try:
                function()
            except Exception as error:
                self._exchange.error = error
            finally:
                self._exchange.wake()

        assert self._loop is not None, "the server is entered"
        running = run()
        try:
            done = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:  # the loop is closed
            running.close()
            return
        while not (done.done() or self._ended.is_set()):  # the loop may end before it has begun
            with contextlib.suppress(TimeoutError, CancelledError):
                done.result(_LOOK)

    def wake(self) -> None:
        """Let waiting slots ask again. From any thread, also when the server has stopped."""
        assert self._loop is not None, "the server is entered"
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exchange.wake)

    def submit(
        self, call: Call, request: bytes, key: str, patience: float
    ) -> Future[tuple[bytes, str]]:
        """Answer a message of another transport, see `Exchange.answer`. From any thread.

        Raises:
            RuntimeError: The server has stopped.
        """
        assert self._loop is not None, "the server is entered"
        answer = self._exchange.answer(call, request, key, patience)
        try:
            return asyncio.run_coroutine_threadsafe(answer, self._loop)
        except RuntimeError:
            answer.close()
            raise

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._exchange.error = error
        finally:
            self._ended.set()
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_error)
        self._stopped = asyncio.Event()
        key, certificate = make_certificate()
        server = grpc.aio.server(
            interceptors=[_TokenCheck(self._token)],
            options=[
                ("grpc.so_reuseport", 0),
                (
                    "grpc.http2.min_ping_interval_without_data_ms",
                    _ms(time_limits.KEEPALIVE_ALLOWED),
                ),
                ("grpc.max_allowed_incoming_connections", self._connections),
                *_LIMITS,
            ],
        )
        handlers: dict[str, Any] = {
            call: grpc.unary_unary_rpc_method_handler(functools.partial(self._answer, call))
            for call in CALLS
        }
        handlers[JOINED] = grpc.stream_stream_rpc_method_handler(self._answer_joined)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = server.add_secure_port(f"{host}:0", credentials)
        advertised = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        self.address = Address(
            target=f"{advertised}:{port}", token=self._token, certificate=certificate.decode()
        )
        await server.start()
        self._started.set()
        await self._stopped.wait()
        await server.stop(grace=0.5)

    async def _answer_joined(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(Answering(self._exchange).frames(requests)) as frames:
                async for frame in frames:
                    yield frame
        except Refusal as refusal:
            await context.abort(getattr(grpc.StatusCode, refusal.status), str(refusal))

    async def _answer(self, call: Call, request: bytes, context: Any) -> bytes:
        if len(request) > LARGEST_MESSAGE:
            expected = f"{len(request)} bytes, more than {LARGEST_MESSAGE}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, expected)
        key = _text(context.invocation_metadata(), _KEY)
        try:
            answer, following = await self._exchange.answer(call, request, key, time_limits.WAIT)
        except Refusal as refusal:
            await context.abort(getattr(grpc.StatusCode, refusal.status), str(refusal))
            raise
        if following:
            context.set_trailing_metadata(((_KEY, following),))
        return answer


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a callback, as asyncio does by default, but no BlockingIOError.

    In older versions of grpcio the loops of all servers read from one socket, and all but the first
    find nothing there (https://github.com/grpc/grpc/issues/25364).
    """
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


def _text(metadata: Any, name: str) -> str:
    """Return a value of a call's metadata; '' if it is missing or no text."""
    value = dict(metadata).get(name, "")
    return value if isinstance(value, str) else ""


class _TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without the run's token, before their message is read."""

    def __init__(self, token: str) -> None:
        self._expected = authorization(token)[1].encode()
        self._refusal = grpc.stream_unary_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        given = _text(details.invocation_metadata, "authorization")
        if hmac.compare_digest(given.encode("utf-8", "replace"), self._expected):
            return await continuation(details)
        return self._refusal


async def _refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")


def credentials_of(address: Address) -> Any:
    """Return gRPC's credentials for connections to an address."""
    return grpc.ssl_channel_credentials(address.certificate.encode())


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata of a call with a run's token."""
    return "authorization", f"Bearer {token}"


def client_options() -> list[tuple[str, Any]]:
    """Return gRPC's options of a connection to the driver."""
    return [
        ("grpc.ssl_target_name_override", CERTIFICATE_NAME),
        ("grpc.enable_http_proxy", 0),
        *_KEEPALIVE,
        ("grpc.max_reconnect_backoff_ms", _ms(time_limits.RECONNECT)),
        ("grpc.max_receive_message_length", LARGEST_FRAME),
    ]


class ChannelClient(SlotChannel):
    """A slot's side of gRPC; leaving it closes the connection.

    Args:
        address: The driver's address.
        slot: The slot's name.
    """

    LONGER_WAIT = time_limits.LONGER_WAIT

    def __init__(self, address: Address, slot: str) -> None:
        super().__init__(slot)
        self._token = address.token
        self._channel = grpc.secure_channel(
            address.target, credentials_of(address), client_options()
        )
        self._methods = {call: self._channel.unary_unary(f"/{SERVICE}/{call}") for call in CALLS}

    def __exit__(self, *error: object) -> None:
        self._channel.close()

    def reaches(self, seconds: float) -> bool:
        """Return whether the driver answers within this many seconds.

        A refused connection returns at once.
        """
        states: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._channel.subscribe(states.put, try_to_connect=True)
        give_up = time.monotonic() + seconds
        try:
            while (left := give_up - time.monotonic()) > 0:
                state = states.get(timeout=left)
                if state is grpc.ChannelConnectivity.READY:
                    return True
                if state in _UNREACHED:
                    return False
        except queue.Empty:
            pass
        finally:
            self._channel.unsubscribe(states.put)
        return False

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return authorization(self._token), (_KEY, self._key)

    def _ask(self, call: Call, request: bytes, longer: float = 0.0) -> tuple[bytes, str]:
        try:
            answer, done = self._methods[call].with_call(
                request, timeout=time_limits.ANSWER + longer, metadata=self._metadata
            )
        except grpc.RpcError as error:
            name = error.code().name
            if error.code() in _CUT:  # the details distinguish a failed handshake from a lost host
                raise Cut(f"{name}, {error.details()}") from None
            if error.code() is grpc.StatusCode.CANCELLED:  # by leaving, or by the driver's end
                raise ChannelLost(f"the connection was closed: {error.details()}") from None
            raise ChannelRefused(f"the driver refuses: {name}") from None
        except ValueError as error:
            raise ChannelClosed(f"the connection was closed here: {error}") from None
        return bytes(answer), _text(done.trailing_metadata(), _KEY)
