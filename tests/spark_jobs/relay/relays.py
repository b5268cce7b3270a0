"""Relays for tests: in a thread, or in a process beside one that plays the executor's JVM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from spark_jobs.relay.handshake import greet_relay
from spark_jobs.relay.packets import REACHED, Packets
from spark_jobs.relay.relay import Relay
from spark_jobs.relay.relayed_channel import RelayedChannel, RelayLost, relayed_channel
from spark_jobs.warm.executor import Executor
from tests.experiment.waiting import wait_until
from tests.spark_jobs.slot.running import alive

_START = "spark_jobs.relay.start"


def is_relayed(channel: RelayedChannel) -> bool:
    """Return whether a slot's messages go through the relay."""
    return channel._direct is None


class Here:
    """A relay in a thread of this process."""

    def __init__(self, address, folder):
        self._address, self._folder = address, folder
        self.path = folder / "relay"

    @contextlib.contextmanager
    def running(self) -> Iterator[Here]:
        """Run the relay during the block."""
        jvm, ending = os.pipe()  # plays the pidfd: it can be read when the JVM has ended
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.path))
            server.listen()
            thread = threading.Thread(target=asyncio.run, args=[self._serve(server, jvm)])
            thread.start()
            try:
                yield self
            finally:
                os.write(ending, b"x")
                thread.join()
                os.close(jvm)
                os.close(ending)

    async def _serve(self, server, jvm):
        await Relay(self._address, str(self.path)).run(server, jvm)

    def packets(self, token=None):
        """Return a slot's connection."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.path))
        packets = Packets(connection)
        try:
            until = time.monotonic() + 60
            greet_relay(packets, self._address.token if token is None else token, until)
            answer = packets.receive(60)
        except OSError as error:
            packets.close()
            raise RelayLost(str(error)) from None
        if answer != REACHED:
            packets.close()
            raise RelayLost(f"the relay answers {answer!r}")
        return packets

    def connect(self, slot):
        """Return a slot's channel."""
        return RelayedChannel(self._address, slot, self.packets)


class Host:
    """An executor whose relays are processes of their own."""

    def __init__(self, root: Path) -> None:
        (root / "local").mkdir()
        self.jvm = subprocess.Popen(["sleep", "3600"])
        self.folder = root / "local" / "relay"
        self._executor = Executor(self.folder, self.jvm.pid)

    def channel(self, address, slot):
        """Return a slot's channel through a relay of this host, if there is one."""
        return relayed_channel(self._executor, address, slot)

    def running(self) -> list[psutil.Process]:
        """Return the relays of this host."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                mine = any(word.startswith(str(self.folder)) for word in words)
                if mine and _START in words and alive(process):
                    found.append(process)
        return found

    def close(self) -> None:
        """End the JVM, and check that nothing is left."""
        self.jvm.kill()
        self.jvm.wait()
        for process in self.running():
            with contextlib.suppress(psutil.Error):
                process.resume()  # a test has stopped it
        wait_until(lambda: not self.running())


@contextlib.contextmanager
def host_in(root: Path) -> Iterator[Host]:
    """Return an executor whose processes end with the block."""
    host = Host(root)
    try:
        yield host
    finally:
        host.close()
