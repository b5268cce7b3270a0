"""The channel between slots and driver: gRPC with TLS and a token, JSON inside.

The server has an event loop in a thread of its own; the handler is called only there, so it needs
no locks, and a slot that waits for work costs a future rather than a thread. The certificate is
made for the run and the only one that its slots accept. ARCHITECTURE.md describes the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import grpc
import msgspec

from search.errors import ExperimentError
from search.trial import Outcome
from spark_jobs.credentials import CERTIFICATE_NAME, AttemptKeys, make_certificate, new_key
from spark_jobs.protocol import (
    LARGEST_MESSAGE,
    Answer,
    Attempt,
    Heard,
    Hello,
    Next,
    ProtocolError,
    Report,
    Reports,
    Wait,
    Work,
    attempt_of,
    decode,
    decode_answer,
    encode,
    outcome_to_json,
)

_SERVICE = "experiment.Channel"
_KEY = "attempt-key"  # metadata, both ways
_PATIENCE = 10.0  # seconds that the driver keeps a slot waiting before it says "nothing yet"
_DEADLINE = 20.0  # seconds that a slot gives one call, longer than the driver keeps it waiting
_OUTAGE = 600.0  # seconds for which a slot asks again
_PAUSE = 0.5  # seconds between two tries
_CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# A connection that died without a word is noticed and made anew.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # a minute otherwise, also for these pings
]

_SPARE_CONNECTIONS = 64
# Whoever reaches the port may connect, with a token or without.
_LIMITS = [
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),  # without a call; slots connect again when they speak
    ("grpc.max_concurrent_streams", 16),  # calls at once of one connection; a slot has two
    ("grpc.max_metadata_size", 2_048),
    ("grpc.absolute_max_metadata_size", 4_096),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
]

T = TypeVar("T")
_M = TypeVar("_M", Hello, Next, Reports)
_Call = Callable[[bytes, Any], Awaitable[bytes]]


class ChannelLost(ExperimentError):
    """The driver does not answer."""


class ChannelRefused(ChannelLost):
    """The driver takes no such message, or none any more."""


class Address(msgspec.Struct, frozen=True):
    """How a slot reaches the driver. Secret: it travels in the closure of the slots only.

    Attributes:
        target: "host:port".
        token: Sent with each call.
        certificate: The driver's, PEM.
    """

    target: str
    token: str
    certificate: str

    def __repr__(self) -> str:
        return f"Address({self.target!r})"


class Handler(Protocol):
    """What the driver does with what slots say. Called in the server's thread only."""

    def hello(self, message: Hello) -> None:
        """Take in a slot's first words."""

    def next(self, message: Next) -> Answer:
        """Take in a slot's last outcome and return its next work, at once."""

    def report(self, message: Reports) -> Heard:
        """Take in what a slot's trial reported."""


class ChannelServer:
    """The driver's side. A context manager; leaving it stops the server.

    Args:
        host: The one address to listen on.
        handler: Gets what the slots say.
        advertised: The host by which executors reach that address.
        slots: How many are expected at a time; each may have two connections, as when one is dead.

    Attributes:
        error: What the handler raised, if it did; the search cannot go on then.
    """

    def __init__(
        self, host: str, handler: Handler, *, advertised: str | None = None, slots: int = 1
    ) -> None:
        self._host, self._advertised = host, advertised or host
        self._handler = handler
        self._connections = 2 * slots + _SPARE_CONNECTIONS
        self._token = secrets.token_hex(32)
        self._keys = AttemptKeys()
        self._changed = asyncio.Event()
        self._started = threading.Event()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="experiment-channel", daemon=True)
        self.address: Address
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self._started.wait()
        except BaseException:  # an interrupt: nobody would leave what was never entered
            self._stop()
            raise
        if self.error is not None:
            raise self.error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._started.wait()
        if self._loop is not None and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._ended.wait()  # see SlotJob for why not the thread

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the server's thread, then let waiting slots ask again.

        What it raises becomes `error`, as what the handler raises.
        """

        async def run() -> None:
            try:
                function()
            except Exception as error:
                self.error = error
            finally:
                self._wake()

        assert self._loop is not None, "the server is entered"
        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def wake(self) -> None:
        """Let waiting slots ask again. From any thread, also when the server has stopped."""
        assert self._loop is not None, "the server is entered"
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        key, certificate = make_certificate()
        server = grpc.aio.server(
            interceptors=[_TokenCheck(self._token)],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.max_allowed_incoming_connections", self._connections),
                *_LIMITS,
            ],
        )
        methods: dict[str, _Call] = {
            "Hello": self._hello,
            "Next": self._next,
            "Report": self._report,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = server.add_secure_port(f"{host}:0", credentials)
        advertised = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        self.address = Address(f"{advertised}:{port}", self._token, certificate.decode())
        await server.start()
        self._started.set()
        await self._stopped.wait()
        await server.stop(grace=0.5)

    async def _hello(self, request: bytes, context: Any) -> bytes:
        message = await self._read(request, Hello, context)
        await self._guarded(lambda: self._handler.hello(message), context)
        return b"{}"

    async def _next(self, request: bytes, context: Any) -> bytes:
        message = await self._read(request, Next, context)
        loop = asyncio.get_running_loop()
        patience = loop.time() + _PATIENCE
        answer = await self._guarded(lambda: self._handler.next(message), context)
        if message.outcome is not None:
            self._wake()  # what was told may free work for others
        waiting = Next(message.slot)
        while isinstance(answer, Wait) and (left := patience - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                break
            answer = await self._guarded(lambda: self._handler.next(waiting), context)
        if isinstance(answer, Work):
            context.set_trailing_metadata(((_KEY, self._keys.following(message.slot)),))
        return encode(answer)

    async def _report(self, request: bytes, context: Any) -> bytes:
        message = await self._read(request, Reports, context)
        return encode(await self._guarded(lambda: self._handler.report(message), context))

    async def _read(self, request: bytes, kind: type[_M], context: Any) -> _M:
        """Return a message of the slot that it says it is from."""
        try:
            message = decode(request, kind)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
            raise
        if not self._keys.admits(message.slot, _text(context.invocation_metadata(), _KEY)):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not a key of this slot")
        return message

    async def _guarded(self, function: Callable[[], T], context: Any) -> T:
        try:
            return function()
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
        except Exception as error:
            self.error = error
            await context.abort(grpc.StatusCode.ABORTED, "the search has ended")
        raise AssertionError("abort raises")

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _text(metadata: Any, name: str) -> str:
    """Return a value of a call's metadata; '' where it is missing or no text."""
    value = dict(metadata).get(name, "")
    return value if isinstance(value, str) else ""


class _TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without the run's token, and does not wait for their message."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        self._refusal = grpc.stream_unary_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        given = _text(details.invocation_metadata, "authorization")
        if hmac.compare_digest(given.encode("utf-8", "replace"), self._expected):
            return await continuation(details)
        return self._refusal


async def _refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")


class ChannelClient:
    """A slot's side. A context manager; leaving it closes the connection.

    Raises:
        ChannelLost: From every method, where the driver does not answer.
    """

    def __init__(self, address: Address, slot: str) -> None:
        credentials = grpc.ssl_channel_credentials(address.certificate.encode())
        options = [
            ("grpc.ssl_target_name_override", CERTIFICATE_NAME),
            ("grpc.enable_http_proxy", 0),
            *_KEEPALIVE,
            ("grpc.max_reconnect_backoff_ms", 5_000),  # two minutes otherwise
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ]
        self._slot = slot
        self._token = address.token
        self._key = new_key()  # the first one; each work brings the next
        self._channel = grpc.secure_channel(address.target, credentials, options)
        self._hello = self._channel.unary_unary(f"/{_SERVICE}/Hello")
        self._next = self._channel.unary_unary(f"/{_SERVICE}/Next")
        self._report = self._channel.unary_unary(f"/{_SERVICE}/Report")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()

    def hello(self, message: Hello) -> None:
        """Say the first words."""
        self._call(self._hello, message)

    def next(self, attempt: int = 0, outcome: Outcome | None = None) -> Attempt | None:
        """Hand in the last outcome and wait for the next trial; None where no work is left."""
        data = None if outcome is None else outcome_to_json(outcome)
        message = Next(self._slot, attempt, data)
        while True:
            match decode_answer(self._call(self._next, message)):
                case Work() as work:
                    return attempt_of(work)
                case Wait():
                    message = Next(self._slot)
                case _:
                    return None

    def report(self, attempt: Attempt, reports: tuple[Report, ...], output: str = "") -> str:
        """Pass on what a trial reported; return why it is to stop, or ''. Asks only once."""
        message = Reports(self._slot, attempt.trial.id, attempt.number, reports, output)
        return decode(self._call(self._report, message, patience=0), Heard).stop

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return ("authorization", f"Bearer {self._token}"), (_KEY, self._key)

    def _call(self, method: Any, message: Any, patience: float = _OUTAGE) -> bytes:
        """Call until there is an answer: each message may arrive twice."""
        give_up = time.monotonic() + patience
        while True:
            try:
                answer, call = method.with_call(
                    encode(message), timeout=_DEADLINE, metadata=self._metadata, wait_for_ready=True
                )
            except grpc.RpcError as error:
                name = error.code().name
                if error.code() not in _CUT:
                    raise ChannelRefused(f"the driver refuses: {name}") from None
                if time.monotonic() > give_up:
                    raise ChannelLost(f"the driver does not answer: {name}") from None
                time.sleep(_PAUSE)
            except ValueError as error:
                raise ChannelLost(f"the connection was closed here: {error}") from None
            else:
                self._key = _text(call.trailing_metadata(), _KEY) or self._key
                return bytes(answer)
