"""Network addresses: their parts, and the one at which others reach this host."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import socket
from collections.abc import Iterator
from typing import NamedTuple

_ELSEWHERE = "192.0.2.1", 9  # of no host (RFC 5737); nothing is sent there


class OwnAddress(NamedTuple):
    """An address of this host.

    Attributes:
        family: Its family.
        host: The address.
    """

    family: socket.AddressFamily
    host: str


_LOOPBACK = OwnAddress(socket.AF_INET, "127.0.0.1")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port", without the brackets of an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def bound(address: str) -> socket.socket:
    """Return a socket that is bound to "host:port", and does not listen.

    A slot holds the port with SO_REUSEADDR, so this socket needs it, too. A port on which another
    program listens is noticed here all the same.

    Raises:
        OSError: It is no address of this host, or another program has it.
    """
    host, port = split_address(address)
    family, *_, local = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        plain.bind(local)
    except BaseException:
        plain.close()
        raise
    return plain


def is_loopback(host: str) -> bool:
    """Return whether this is an address at which a host reaches only itself."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def own_address(there: str, name: str, *, one_host: bool) -> OwnAddress:
    """Return this host's address on the route to another one.

    A loopback address is only good for processes of this host. If there are others, or the other
    address is unknown here, it is the one that this host's name leads to, or else that of the route
    to other networks; a host without a network has only a loopback address.

    Args:
        there: The other address, as "host:port".
        name: A name of this host by which others know it.
        one_host: Whether there are no other hosts.
    """
    ours = itertools.chain(on_route(*split_address(there)), named(name), on_route(*_ELSEWHERE))
    return next((own for own in ours if one_host or not is_loopback(own.host)), _LOOPBACK)


def on_route(host: str, port: int) -> Iterator[OwnAddress]:
    """Yield the address from which this host would send to another one, if it would."""
    with contextlib.suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            yield OwnAddress(family, str(probe.getsockname()[0]))


def named(name: str) -> Iterator[OwnAddress]:
    """Yield the addresses of a name that are this host's."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, where in socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.bind(where)
                yield OwnAddress(family, str(where[0]))
