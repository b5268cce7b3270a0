"""What strangers can do through Spark's own ports, and the line that shuts them out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.cluster.task_needs import is_local

AUTHENTICATION = "spark.authenticate"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # a variable's name
# Each encrypts what Spark's processes send each other; the first one is advised.
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
_SECRET = "spark.authenticate.secret"  # noqa: S105  # a setting's name


@dataclass(frozen=True, slots=True)
class Exposure:
    """What strangers can do, since something is off.

    Attributes:
        off: Names of the settings, the worst first.
        danger: Who can do what.
        remedy: What to do about it, with what to paste.
    """

    off: tuple[str, ...]
    danger: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.danger}; {self.remedy}"


def exposure_of_spark(
    master: str, is_on: Callable[[str], bool], start: Callable[[Sequence[str]], str]
) -> Exposure | None:
    """Return what strangers can do through the ports of Spark's processes; None where nothing.

    Args:
        master: Spark's name of the cluster.
        is_on: Is a setting true?
        start: Says how to turn settings on where the session is made; see `start_of`.
    """
    off = [] if is_on(AUTHENTICATION) else [AUTHENTICATION]
    if not (on_one_host(master) or any(map(is_on, _ENCRYPTION))):
        off.append(_ENCRYPTION[0])
    if not off:
        return None
    if AUTHENTICATION in off:
        danger = "any user of Spark's hosts, and whoever reaches its ports, can take a search over"
    else:
        danger = (
            "whoever reads along in the network of this cluster has the train function and the "
            "token of a search"
        )
    own = _SECRET if AUTHENTICATION in off and not makes_secret(master) else ""
    return Exposure(tuple(off), danger, _in_files(master, off) if own else start(off))


def exposure_of_connect(
    port: str, spark: Exposure | None, *, token: bool, encrypted: bool
) -> Exposure | None:
    """Return what strangers can do through a server of Spark Connect, and behind it.

    Args:
        port: Of the server, '' where it is on another host.
        spark: What they can do through the ports of the server's Spark.
        token: Does this client show one?
        encrypted: Can nobody read along between client and server?
    """
    off, dangers, remedies = [], [], []
    if not token:
        off.append(TOKEN)
        dangers.append(
            "any user of the server's host, and whoever reaches its port, can run Python in the "
            "Spark Connect server"
        )
        # With another name than localhost pyspark wants TLS for the token.
        to = f", and connect to sc://localhost:{port}" if port else ""
        remedies.append(f"start server and client with one secret as {TOKEN}{to}")
    if not encrypted:
        off.append("use_ssl")
        dangers.append(
            "whoever reads along between here and the Spark Connect server has the train function "
            "and the token of a search"
        )
        remedies.append("give its address ;use_ssl=true")
    if spark is not None:
        off.extend(spark.off)
        dangers.append(spark.danger)
        remedies.append(spark.remedy)
    return Exposure(tuple(off), dangers[0], "; ".join(remedies)) if off else None


def on_one_host(master: str) -> bool:
    """Are all of Spark's processes on one host?"""
    return master.startswith("local")


def makes_secret(master: str) -> bool:
    """Does Spark make the secret of an application by itself, where authentication is on?"""
    return is_local(master) or master.startswith(("yarn", "k8s:"))


def start_of(environment: Mapping[str, str] = os.environ) -> Callable[[Sequence[str]], str]:
    """Return what says how to start a session with settings on, as this process starts its own.

    Args:
        environment: Of this process; spark-submit and pyspark's shell leave a mark there.
    """
    if not {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}.isdisjoint(environment):
        return command_with
    return _builder_with


def command_with(settings: Sequence[str]) -> str:
    """Say how to start a command with settings on: spark-submit, or a server of Spark Connect."""
    return "start it with " + " ".join(f"--conf {name}=true" for name in settings)


def _builder_with(settings: Sequence[str]) -> str:
    calls = "".join(f'.config("{name}", "true")' for name in settings)
    return f"make the session with SparkSession.builder{calls}"


def _in_files(master: str, settings: Sequence[str]) -> str:
    """Say how to turn settings on with a secret of one's own: others see arguments of commands."""
    lines = ", ".join([*(f"{name}=true" for name in settings), f"{_SECRET}=<a secret>"])
    whose = "this session" if on_one_host(master) else "master, workers and this session"
    return f"put into spark-defaults.conf (mode 0600) of {whose}: {lines}"
