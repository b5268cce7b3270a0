"""TensorFlow's port, at one address of a host only.

TensorFlow's server listens on all interfaces, which cannot be configured. But the kernel gives a
connection to the socket that listens on exactly its address, before one that listens on all of
them: so sockets that never answer listen on the other addresses of the host.
"""

from __future__ import annotations

import errno
import os
import socket

import psutil

from spark_jobs.addresses import split_address
from spark_jobs.strategies.in_step.ports import check_free, port_taken

# TensorFlow lets other sockets of this user listen at its port's number only with this variable.
_SHARED = "TF_GRPC_REUSE_PORT"


def answer_only_at(address: str) -> None:
    """Keep others from a server that will listen on all interfaces, except at one address.

    It lasts until this process ends, as TensorFlow's server does. Addresses that this host gets
    later are not covered, and nothing is if the address is none of this host's interfaces.

    Args:
        address: The address that the other workers use, as "host:port".

    Raises:
        PortTaken: Another program listens at this port.
    """
    (host, port), addresses = split_address(address), addresses_of_host()
    check_free("TensorFlow", address)
    if host not in addresses:
        return
    os.environ[_SHARED] = "true"
    try:
        for other in addresses:
            if other != host:
                _listen_silently(other, port)
    except OSError as error:
        raise port_taken("TensorFlow", address, error) from None


def addresses_of_host() -> list[str]:
    """Return the addresses of this host's interfaces."""
    return [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]


def _listen_silently(address: str, port: int) -> None:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listening.bind(where)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:  # this host does not have it yet, or no more
                return
            raise
        listening.listen(0)
        listening.detach()
