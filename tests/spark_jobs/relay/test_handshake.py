"""The proofs between a slot and its relay, over a pair of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_jobs.relay.handshake import NONCE, NotOfRun, greet_relay, greet_slot, proof
from spark_jobs.relay.packets import Packets
from spark_jobs.trial.pipe.frames import frame

TOKEN = "0123456789abcdef" * 4
OTHER = TOKEN[::-1]
_LONG = 60.0


async def as_relay(connection, token, slot):
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    with contextlib.closing(writer):
        await asyncio.wait_for(greet_slot(reader, writer, token, slot), _LONG)


@contextlib.contextmanager
def pair():
    """Yield a slot's packets, and the connection of the other side."""
    ours, theirs = socket.socketpair()
    with contextlib.closing(Packets(ours)) as packets, theirs:
        yield packets, theirs


def greet(packets, token=TOKEN):
    greet_relay(packets, token, time.monotonic() + _LONG)


def test_a_slot_and_a_relay_with_the_same_token_accept_each_other():
    with pair() as (packets, theirs), ThreadPoolExecutor() as pool:
        relay = pool.submit(asyncio.run, as_relay(theirs, TOKEN, os.getpid()))
        greet(packets)
        relay.result()


@pytest.mark.parametrize(
    ("token", "slot"),
    [(OTHER, os.getpid()), (TOKEN, os.getpid() + 1)],
    ids=["another run", "passed on by another process"],
)
def test_a_slot_refuses_a_relay_without_its_token_and_shows_it_no_proof(token, slot):
    with pair() as (packets, theirs), ThreadPoolExecutor() as pool:
        relay = pool.submit(asyncio.run, as_relay(theirs, token, slot))
        with pytest.raises(NotOfRun):
            greet(packets)
        packets.close()
        assert isinstance(relay.exception(), EOFError)


@pytest.mark.parametrize("answer", [b"", b"x" * NONCE, b"x" * (NONCE + 32), b"reached"])
def test_a_process_that_took_the_path_gets_a_nonce_only(answer):
    with pair() as (packets, theirs):
        theirs.sendall(frame(answer))
        with pytest.raises(NotOfRun):
            greet(packets)
        packets.close()
        assert len(theirs.recv(1_000)) == 4 + NONCE
        assert not theirs.recv(1_000)


def sent(*contents):
    """Return the error with which a relay refuses these packets, and what it has sent."""
    with pair() as (packets, theirs), ThreadPoolExecutor() as pool:
        relay = pool.submit(asyncio.run, as_relay(theirs, TOKEN, os.getpid()))
        for content in contents:
            packets.send(content, _LONG)
        error = relay.exception()
        with contextlib.suppress(OSError):
            return error, packets.receive(_LONG)
        return error, b""


def test_a_relay_refuses_a_slot_without_a_proof_of_the_same_connection():
    nonce = b"n" * NONCE
    error, answer = sent(nonce, b"x" * 32)
    assert isinstance(error, NotOfRun)
    assert TOKEN.encode() not in answer
    old = proof(TOKEN, "slot", nonce + answer[:NONCE], os.getpid())
    for given in (old, answer[NONCE:], b"", TOKEN.encode()[:32]):
        error, _ = sent(nonce, given)
        assert isinstance(error, NotOfRun)
    error, answer = sent(b"short")
    assert (type(error), answer) == (NotOfRun, b"")


def test_a_proof_is_of_one_side_one_process_and_both_nonces():
    nonces = b"a" * NONCE + b"b" * NONCE
    proofs = [
        proof(TOKEN, "slot", nonces, 1),
        proof(TOKEN, "relay", nonces, 1),
        proof(TOKEN, "slot", nonces, 2),
        proof(TOKEN, "slot", nonces[::-1], 1),
        proof(OTHER, "slot", nonces, 1),
    ]
    assert len(set(proofs)) == len(proofs)
