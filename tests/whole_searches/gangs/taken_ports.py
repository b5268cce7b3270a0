"""A module for `preload=`: worker 1 of a trial finds the ports of its slot taken."""

import contextlib
import os
import socket

PORTS = (22_200, 22_207)
"""The first and the last port to take, at 127.0.0.1: two of each of two slots, and others."""

taken: list[socket.socket] = []


def take_all() -> None:
    """Take all free ports, in the process that is to run worker 1."""
    if os.environ.get("RANK") != "1":
        return
    for port in range(PORTS[0], PORTS[1] + 1):
        with contextlib.suppress(OSError):
            taken.append(socket.create_server(("127.0.0.1", port)))


os.register_at_fork(after_in_child=take_all)
