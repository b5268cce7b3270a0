"""Gangs for tests: members in threads of this process, or in processes of their own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_jobs.channel.credentials import make_certificate
from spark_jobs.communicator.communicator import Communicator, connect
from spark_jobs.communicator.membership import Membership

LIMIT = 60.0
"""Seconds for connecting where all members come: a busy machine is slow."""


class Gang:
    """The places of a gang's members, and the sockets that are bound to their addresses."""

    def __init__(self, size: int) -> None:
        self.ports = [socket.socket() for _ in range(size)]
        for port in self.ports:
            port.bind(("127.0.0.1", 0))
        members = tuple(f"127.0.0.1:{port.getsockname()[1]}" for port in self.ports)
        key, certificate = (pem.decode() for pem in make_certificate())
        self.memberships = [
            Membership(rank=rank, members=members, key=key, certificate=certificate)
            for rank in range(size)
        ]

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, *error: object) -> None:
        for port in self.ports:
            port.close()

    def connect(self, rank: int, **limits: float) -> Communicator:
        return connect(self.memberships[rank], self.ports[rank], **{"limit": LIMIT, **limits})

    def together(
        self, body: Callable[[Communicator], Any], ranks: Any = None, **limits: float
    ) -> list[Any]:
        """Call a function in each member, each a thread; return results and errors by rank."""

        def member(rank: int) -> Any:
            try:
                with self.connect(rank, **limits) as communicator:
                    return body(communicator)
            except Exception as error:
                return error

        chosen = range(len(self.ports)) if ranks is None else ranks
        with ThreadPoolExecutor(len(chosen)) as threads:
            return list(threads.map(member, chosen))

    @contextlib.contextmanager
    def process(self, rank: int, code: str) -> Iterator[subprocess.Popen[str]]:
        """Run code in a process that has connected, with `communicator` and `say`."""
        program = f"{_MEMBER}\n{code}"
        port = self.ports[rank]
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[port.fileno()],
        )
        membership = self.memberships[rank]
        given = [rank, membership.members, membership.key, membership.certificate, port.fileno()]
        assert process.stdin is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        port.close()
        try:
            with process:
                yield process
                process.kill()
        finally:
            process.kill()


_MEMBER = f"""
import json, os, signal, socket, sys, time
import numpy as np
from spark_jobs.communicator.communicator import connect
from spark_jobs.communicator.membership import Membership

def say(word):
    print(word, flush=True)

rank, members, key, certificate, port = json.loads(sys.stdin.readline())
place = Membership(rank=rank, members=members, key=key, certificate=certificate)
communicator = connect(place, socket.socket(fileno=port), limit={LIMIT})
"""


def results(size: int, body: Callable[[Communicator], Any]) -> list[Any]:
    """Return what a function returns in each member of a gang; raises the first error."""
    with Gang(size) as gang:
        found = gang.together(body)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found
