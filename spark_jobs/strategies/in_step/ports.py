"""Whether the port that a slot holds for a framework's server is free."""

from __future__ import annotations

from search.errors import ExperimentError
from spark_jobs.addresses import bound


class PortTaken(ExperimentError):
    """Another program has the port for a worker, or for a framework's server.

    The train function has not run.
    """


def port_taken(listener: str, address: str, error: OSError) -> PortTaken:
    """Return the error of a port at which a framework's server, or a worker, cannot listen.

    Args:
        listener: The framework, or the worker.
        address: The address, as "host:port".
        error: What the kernel says.
    """
    return PortTaken(
        f"{listener} cannot listen at {address} ({error.strerror or error}); another program "
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
    try:
        bound(address).close()
    except OSError as error:
        raise port_taken(framework, address, error) from None
