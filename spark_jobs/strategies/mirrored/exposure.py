"""The risk of TensorFlow's port, which each worker opens under `Mirrored`."""

from __future__ import annotations

from search.errors import InvalidArgument
from spark_jobs.strategies.settings import Mirrored, Strategy

_REMEDY = "shut the workers' ports to all other hosts"


def check_port(name: str, strategy: Strategy | None, protected_by: str) -> None:
    """Refuse TensorFlow's open port on a cluster whose own ports are protected.

    Args:
        name: The name of the argument that is the strategy.
        strategy: The strategy of a search whose trials have several workers.
        protected_by: The first Spark setting that protects the cluster's ports, such as
            'spark.authenticate'; '' if none is on.

    Raises:
        InvalidArgument: The strategy opens the port, and nobody has allowed that.
    """
    if not isinstance(strategy, Mirrored) or strategy.unprotected or not protected_by:
        return
    raise InvalidArgument(
        name,
        f"one without an open port, since {protected_by} is on",
        "'mirrored', whose TensorFlow listens without a password",
        f"{_REMEDY} and pass experiment.Mirrored(unprotected=True), or use None",
    )


def risk_of_port(strategy: Strategy | None, *, loopback: bool) -> str:
    """Return the risk of TensorFlow's port, to be told once per session; '' if it is accepted.

    Args:
        strategy: The strategy of a search whose trials have several workers.
        loopback: Whether the workers use loopback addresses; then the port is closed to other
            hosts (`spark_jobs.strategies.mirrored.one_address`).
    """
    if not isinstance(strategy, Mirrored) or strategy.unprotected:
        return ""
    who = "any user of this host" if loopback else "anyone who reaches a worker's port"
    remedy = "" if loopback else f"{_REMEDY}, and "
    return (
        f"TensorFlow's port of each worker has no password: while a trial trains, {who} can run "
        f"TensorFlow's operations, and read and write files, as its user; {remedy}accept this with "
        "strategy=experiment.Mirrored(unprotected=True)"
    )
