"""Whether the port that a slot holds for a framework's server is free."""

from __future__ import annotations

import socket

from search.errors import ExperimentError


class PortTaken(ExperimentError):
    """Another program has the port for a framework's server; the train function has not run."""


def port_taken(framework: str, address: str, error: OSError) -> PortTaken:
    """Return the error of a port at which a framework's server cannot listen.

    Args:
        framework: The framework.
        address: The address, as "host:port".
        error: What the kernel says.
    """
    return PortTaken(
        f"{framework} cannot listen at {address} ({error.strerror or error}); another program "
        "may have taken the port: set spark.experiment.workerPorts to ports that no other "
        "program uses"
    )


def check_free(framework: str, address: str) -> None:
    """Check that no program listens at an address: the frameworks' own errors say less.

    Args:
        framework: The framework whose server is to listen there.
        address: The address, as "host:port".

    Raises:
        PortTaken: One does.
    """
    name, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)  # as the slot holds it
            probe.bind(where)
    except OSError as error:
        raise port_taken(framework, address, error) from None
