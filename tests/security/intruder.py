"""Another user of the host, who requests Spark's blocks as an executor does.

As a program, `python -c SOURCE USER HOST:PORT...`, it becomes that user first, who may not be
allowed to see this Python's files, and prints a line of JSON for each address, see `steal`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Of Spark's TransportContext; a frame is its length, the type, a body that depends on it.
_FETCH, _FETCHED, _FETCH_FAILED, _CALL, _ANSWER, _CALL_FAILED = range(6)
_BLOCKS = [f"broadcast_{number}_piece{piece}" for number in range(40) for piece in range(2)]
_SECONDS = 120  # until a failing test gives up


class Refused(Exception):
    """The other side's error instead of an answer."""


class _Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _SECONDS)

    def fetch(self, block: str) -> bytes:
        """Return a block as a block manager stores it."""
        asked = b"\0" + _text("app") + _text("driver") + struct.pack(">i", 1) + _text(block)
        self._send(_CALL, struct.pack(">qi", 1, len(asked)) + asked)
        stream = self._receive(_ANSWER)[12:][1:9]
        self._send(_FETCH, stream + struct.pack(">i", 0))
        return self._receive(_FETCHED)[12:]

    def close(self) -> None:
        self._socket.close()

    def _send(self, kind: int, content: bytes) -> None:
        # The body of a call is part of the frame.
        self._socket.sendall(struct.pack(">qB", 9 + len(content), kind) + content)

    def _receive(self, wanted: int) -> bytes:
        length, kind = struct.unpack(">qB", self._read(9))
        content = self._read(length - 9)
        if kind != wanted:
            raise Refused(f"{kind}: {content[12:].decode(errors='replace')}")
        return content

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _ask(address: str) -> dict[str, Any]:
    found, refusals = {}, set()
    for block in _BLOCKS:
        try:
            with contextlib.closing(_Connection(address)) as connection:
                found[block] = b64encode(connection.fetch(block)).decode()
        except Refused as error:
            refusals.add(str(error)[:300])
    return {"user": os.getuid(), "from": address, "blocks": found, "refusals": sorted(refusals)}


def stranger() -> int:
    """Return a user id that no user of this host has."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(user for user in range(60000, 65000) if user not in taken)


def steal(addresses: Iterable[str], user: int) -> list[dict[str, Any]]:
    """Request broadcasts from each block manager as another user; only root can do so.

    Args:
        addresses: The addresses of the block managers, "host:port".
        user: The user id.

    Returns:
        For each: "user", "from", "blocks" of names to bytes, not compressed any more, and
        "refusals", what was said instead.
    """
    ran = subprocess.run(
        [sys.executable, "-I", "-c", Path(__file__).read_text(), str(user), *addresses],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    for answer in answers:
        blocks = {name: _plain(b64decode(data)) for name, data in answer["blocks"].items()}
        answer["blocks"] = blocks
    return answers


def _plain(data: bytes) -> bytes:
    """Decompress Spark's default format, LZ4 in blocks."""
    import pyarrow

    plain, head = bytearray(), struct.Struct("<8sBiii")
    while data.startswith(b"LZ4Block"):
        _, method, compressed, original, _ = head.unpack_from(data)
        part, data = data[head.size :][:compressed], data[head.size + compressed :]
        if method & 0xF0 == 0x20:
            part = pyarrow.decompress(part, original, codec="lz4_raw", asbytes=True)
        plain += part
    return bytes(plain) + data


def _become(user: int) -> None:
    "localhost".encode("idna")  # loads the codec that connections need
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


if __name__ == "__main__":
    _become(int(sys.argv[1]))
    for address in sys.argv[2:]:
        print(json.dumps(_ask(address)))
