"""A slot's side of the channel through the relay of its executor."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from spark_jobs import time_limits
from spark_jobs.channel.exchange import (
    Call,
    ChannelClosed,
    ChannelLost,
    ChannelRefused,
    Cut,
    SlotChannel,
)
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.channel.joined_calls import Answered, Called
from spark_jobs.messages import LARGEST_MESSAGE, encode
from spark_jobs.relay.handshake import greet_relay
from spark_jobs.relay.packets import REACHED, Packets
from spark_jobs.warm.executor import Executor, SharedSocket, connect, left
from spark_jobs.zygote.shared_import import zygote_environment

FOLDER = "experiment-relay"
"""The folder of relays' sockets, in Spark's folder of the executor."""

_START = "spark_jobs.relay.start"
_CUT = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
_PASSED_ON = 40.0  # seconds after which a call has reached the driver; gRPC needs 20 to give up
_TRIES = 2  # the socket of a relay that was just killed may still take a connection
_ENCODER = msgspec.msgpack.Encoder()
_ANSWERED = msgspec.msgpack.Decoder(Answered)


class RelayLost(Exception):
    """There is no relay, or it does not answer; the message says why."""


class RelayedChannel(SlotChannel):
    """A slot's side of a relay; leaving it closes the connections.

    When the relay is lost, the slot connects to the driver itself, and repeats its message.

    Args:
        address: The driver's address.
        slot: The slot's name.
        open_packets: Returns a new connection to the relay.

    Raises:
        RelayLost: There is no relay that reaches the driver.
    """

    LONGER_WAIT = time_limits.LONGER_WAIT

    def __init__(self, address: Address, slot: str, open_packets: Callable[[], Packets]) -> None:
        super().__init__(slot)
        self._address = address
        self._lock = threading.Lock()
        self._closed = False
        self._direct: ChannelClient | None = None
        self._outage = Outage()
        with contextlib.ExitStack() as opening:
            self._lanes: dict[Call, _Lane] = {}
            for calls in _LANES:
                lane = _Lane(opening.enter_context(contextlib.closing(open_packets())))
                self._lanes |= dict.fromkeys(calls, lane)
            opening.pop_all()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            self._close_lanes()
            if self._direct is not None:
                self._direct.__exit__()

    def _ask(self, call: Call, request: bytes, longer: float = 0.0) -> tuple[bytes, str]:
        if len(request) > LARGEST_MESSAGE:
            raise ChannelRefused("the driver refuses: RESOURCE_EXHAUSTED")
        if self._direct is None:
            try:
                return self._ask_relay(call, request, longer)
            except RelayLost as lost:
                self._connect_directly(lost)
        assert self._direct is not None, "connected directly"
        self._direct._key = self._key
        return self._direct._ask(call, request, longer)

    def _ask_relay(self, call: Call, request: bytes, longer: float) -> tuple[bytes, str]:
        called = Called(number=0, call=call, key=self._key, message=request)
        began = time.monotonic()
        answered = self._lanes[call].ask(called, time_limits.ANSWER + longer)
        if answered.refusal not in _CUT:
            self._outage.end()
            return _answer(answered)
        if self._outage.seconds(began, time.monotonic()) > time_limits.RELAY_OUTAGE:
            raise RelayLost(f"the relay has not reached the driver: {answered.refusal}")
        raise Cut(f"{answered.refusal}, by the relay")

    def _connect_directly(self, lost: RelayLost) -> None:
        with self._lock:
            if self._closed:
                raise ChannelClosed("the connection was closed here")
            if self._direct is None:
                print(f"relay lost: {lost}; connecting to the driver", file=sys.stderr)
                self._direct = ChannelClient(self._address, self._slot)
                self._close_lanes()  # also of a call of the other thread, which repeats it directly

    def _close_lanes(self) -> None:
        for lane in self._lanes.values():
            lane.packets.close()


class Outage:
    """For how long a relay has not reached the driver: since the first of the calls cut in a row.

    A call that was under way for long had reached the driver, which let it wait. So it counts as
    answered until it was cut.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        """Record that a call was answered."""
        self._since = None

    def seconds(self, began: float, cut: float) -> float:
        """Record that a call was cut; return the seconds since the first cut of the outage.

        Args:
            began: The time when the call was sent, by `time.monotonic`.
            cut: The time when it was cut.
        """
        since = self._since
        if since is None or cut - began > _PASSED_ON:
            since = cut
        self._since = since
        return cut - since


_LANES: tuple[tuple[Call, ...], ...] = (("Hello", "Next"), ("Report",))


class _Lane:
    """The calls of one thread, one after the other.

    Args:
        packets: A connection to the relay.
    """

    def __init__(self, packets: Packets) -> None:
        self.packets = packets
        self._lock = threading.Lock()

    def ask(self, called: Called, seconds: float) -> Answered:
        """Return the answer to a call.

        Args:
            called: The call.
            seconds: Time limit.

        Raises:
            RelayLost: No answer comes by this way.
        """
        with self._lock:
            give_up = time.monotonic() + seconds
            try:
                self.packets.send(_ENCODER.encode(called), time_limits.RELAY_ANSWER)
                while time.monotonic() < give_up:
                    if packet := self._heard():
                        return _ANSWERED.decode(packet)
            except (OSError, msgspec.MsgspecError) as error:
                raise RelayLost(str(error)) from None
            raise RelayLost(f"no answer within {seconds:g} s")

    def _heard(self) -> bytes:
        """Return the next packet; ask the relay whether it runs if none comes for a while."""
        packet = self.packets.receive(time_limits.RELAY_SILENCE)
        if packet is None:
            self.packets.send(b"", time_limits.RELAY_ANSWER)
            packet = self.packets.receive(time_limits.RELAY_ANSWER)
        if packet is None:
            raise TimeoutError(f"no sign of life within {time_limits.RELAY_ANSWER:g} s")
        return packet


def _answer(answered: Answered) -> tuple[bytes, str]:
    status = answered.refusal
    if status == "CANCELLED":  # by the driver's end
        raise ChannelLost("the connection was closed")
    if status:
        raise ChannelRefused(f"the driver refuses: {status}")
    return answered.answer, answered.key


def relayed_channel(executor: Executor, address: Address, slot: str) -> RelayedChannel | None:
    """Return a slot's channel through its run's relay, which is started if there is none.

    This process must not be a subreaper: it would inherit the relay.

    Args:
        executor: The slot's executor.
        address: The driver's address.
        slot: The slot's name.

    Returns:
        None if there is no relay that reaches the driver.
    """
    until = time.monotonic() + time_limits.RELAY_STARTS
    connected = functools.partial(_connected, executor, address, until)
    for _ in range(_TRIES):
        try:
            return RelayedChannel(address, slot, connected)
        except RelayLost as lost:
            print(f"no relay: {lost}", file=sys.stderr)
    return None


def _connected(executor: Executor, address: Address, until: float) -> Packets:
    """Return a connection whose relay has shown and seen a proof of the run's token.

    Raises:
        RelayLost: There is none.
    """
    token, start = address.token, functools.partial(_start, address, until)
    with contextlib.ExitStack() as connecting:
        try:
            connection = connect(
                executor, token.encode(), start, kind=socket.SOCK_STREAM, until=until
            )
            packets = connecting.enter_context(contextlib.closing(Packets(connection)))
            greet_relay(packets, token, until)
            answer = packets.receive(left(until))
        except (OSError, subprocess.SubprocessError) as error:
            raise RelayLost(str(error) or type(error).__name__) from None
        if answer is None:
            raise RelayLost("it does not say in time whether it reaches the driver")
        if answer != REACHED:
            raise RelayLost("it does not reach the driver")
        connecting.pop_all()
        return packets


def _start(address: Address, until: float, shared: SharedSocket) -> None:
    """Start a relay, which gets the run's secrets through a pipe.

    Args:
        address: The driver's address.
        until: When to give up.
        shared: The relay's socket.
    """
    secrets, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as file:  # less than a pipe holds
            file.write(encode(msgspec.structs.replace(address, mailbox=None)))
        subprocess.run(
            [sys.executable, "-m", _START, *shared.words, str(secrets)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(*shared.descriptors, secrets),
            env=zygote_environment(),
            start_new_session=True,
            timeout=left(until),
        )
    finally:
        os.close(secrets)
