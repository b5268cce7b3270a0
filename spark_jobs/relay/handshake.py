"""The proofs by which a slot and its relay show each other that they have the run's token.

Each side sends a nonce, and then the HMAC of both nonces by the token (challenge and response, as
in ISO/IEC 9798-4), so that the token itself stays where it is. Any process of the user may take the
socket's path. It has no token, so a slot tells it nothing. It cannot pass proofs on between a slot
and the relay either: the slot's process id is in them, and the relay asks the kernel for that.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from typing import Literal

from spark_jobs.relay.packets import Packets, read_packet
from spark_jobs.trial.pipe.frames import frame
from spark_jobs.warm.executor import left

NONCE = 32
"""The number of bytes of a nonce."""

_DIGEST = "sha256"
_PROOF = 32  # bytes


class NotOfRun(OSError):
    """The other side does not have the run's token."""


def proof(token: str, side: Literal["slot", "relay"], nonces: bytes, slot: int) -> bytes:
    """Return the proof of one side, which nobody else can make and nobody can use again.

    Args:
        token: The run's token.
        side: The side that proves; else its own proof could be sent back to it.
        nonces: The slot's nonce, then the relay's.
        slot: The id of the slot's process.
    """
    return hmac.digest(token.encode(), b"%b %d %b" % (side.encode(), slot, nonces), _DIGEST)


def greet_relay(packets: Packets, token: str, until: float) -> None:
    """Exchange proofs with a relay, from the slot's side.

    Args:
        packets: A new connection to the relay, opened by this process.
        token: The run's token.
        until: When to give up, by `time.monotonic`.

    Raises:
        NotOfRun: The other side is no relay of the run.
        OSError: The connection is broken, or no answer comes in time.
    """
    mine, slot = secrets.token_bytes(NONCE), os.getpid()
    packets.send(mine, left(until))
    answer = packets.receive(left(until))
    if answer is None:
        raise TimeoutError("no answer of the relay in time")
    nonces, given = mine + answer[:NONCE], answer[NONCE:]
    if not hmac.compare_digest(given, proof(token, "relay", nonces, slot)):
        raise NotOfRun("its socket is served by a process without the run's token")
    packets.send(proof(token, "slot", nonces, slot), left(until))


async def greet_slot(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, slot: int
) -> None:
    """Exchange proofs with a slot, from the relay's side.

    Args:
        reader: A new connection of the slot.
        writer: The same connection.
        token: The run's token.
        slot: The id of the process that has opened it, by the kernel.

    Raises:
        NotOfRun: The other side is no slot of the run.
    """
    theirs = await read_packet(reader, NONCE)
    nonces = theirs + secrets.token_bytes(NONCE)
    if len(theirs) != NONCE:
        raise NotOfRun("no nonce")
    writer.write(frame(nonces[NONCE:] + proof(token, "relay", nonces, slot)))
    given = await read_packet(reader, _PROOF)
    if not hmac.compare_digest(given, proof(token, "slot", nonces, slot)):
        raise NotOfRun("its process does not have the run's token")
