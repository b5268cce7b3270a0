"""The risk of the ports of frameworks, which each worker opens under some strategies."""

from __future__ import annotations

from search.errors import InvalidArgument
from spark_jobs.strategies.settings import Jax, Mirrored, Strategy, name_of

_REMEDY = "shut the workers' ports to all other hosts"


def check_port(name: str, strategy: Strategy | None, protected_by: str) -> None:
    """Refuse a framework's open port on a cluster whose own ports are protected.

    Args:
        name: The name of the argument that is the strategy.
        strategy: The strategy of a search whose trials have several workers.
        protected_by: The first Spark setting that protects the cluster's ports, such as
            'spark.authenticate'; '' if none is on.

    Raises:
        InvalidArgument: The strategy opens the port, and nobody has allowed that.
    """
    if not isinstance(strategy, Mirrored | Jax) or strategy.unprotected or not protected_by:
        return
    framework = "TensorFlow" if isinstance(strategy, Mirrored) else "JAX"
    raise InvalidArgument(
        name,
        f"one without an open port, since {protected_by} is on",
        f"{name_of(strategy)!r}, whose {framework} listens without a password",
        f"{_REMEDY} and pass {_accepted(strategy)}, or use None",
    )


def risk_of_port(strategy: Strategy | None, *, loopback: bool) -> str:
    """Return the risk of a framework's port, to be told once per session; '' if it is accepted.

    Args:
        strategy: The strategy of a search whose trials have several workers.
        loopback: Whether the workers use loopback addresses; then the port is closed to other
            hosts.
    """
    if not isinstance(strategy, Mirrored | Jax) or strategy.unprotected:
        return ""
    who = "any user of this host" if loopback else "anyone who reaches a worker's port"
    remedy = "" if loopback else f"{_REMEDY}, and "
    accept = f"{remedy}accept this with strategy={_accepted(strategy)}"
    if isinstance(strategy, Jax):
        return (
            f"the ports of JAX and Gloo have no password: while a trial trains, {who} can read and "
            f"change what its workers exchange, and end it; {accept}"
        )
    return (
        f"TensorFlow's port of each worker has no password: while a trial trains, {who} can run "
        f"TensorFlow's operations, and read and write files, as its user; {accept}"
    )


def _accepted(strategy: Mirrored | Jax) -> str:
    return f"experiment.{type(strategy).__name__}(unprotected=True)"
