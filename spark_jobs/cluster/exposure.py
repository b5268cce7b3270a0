"""The risks of Spark's ports, and the settings that protect them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.cluster.task_needs import is_local, on_one_host

AUTHENTICATION = "spark.authenticate"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # a variable's name
# Each encrypts the traffic between Spark's processes; the first one is recommended.
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
_SECRET = "spark.authenticate.secret"  # noqa: S105  # a setting's name


@dataclass(frozen=True, slots=True)
class Exposure:
    """The risk of settings that are off.

    Attributes:
        off: Names of the settings, the worst first.
        danger: The worst risk, as a sentence.
        remedy: The settings that protect, to be pasted.
    """

    off: tuple[str, ...]
    danger: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.danger}; {self.remedy}"


def exposure_of_spark(
    master: str, is_on: Callable[[str], bool], start: Callable[[Sequence[str]], str]
) -> Exposure | None:
    """Return the risks of the ports of Spark's processes; None if they are protected.

    Args:
        master: The URL of Spark's master.
        is_on: Returns whether a setting is true.
        start: Returns how to turn settings on when creating the session; see `start_of`.
    """
    off = [] if is_on(AUTHENTICATION) else [AUTHENTICATION]
    if not (on_one_host(master) or any(map(is_on, _ENCRYPTION))):
        off.append(_ENCRYPTION[0])
    if not off:
        return None
    if AUTHENTICATION in off:
        danger = "any user of Spark's hosts or with access to its ports can take over a search"
    else:
        danger = (
            "anyone who intercepts the network of this cluster gets the train function and the "
            "token of a search"
        )
    needs_secret = AUTHENTICATION in off and not makes_secret(master)
    return Exposure(tuple(off), danger, _in_files(master, off) if needs_secret else start(off))


def protection_of_spark(is_on: Callable[[str], bool]) -> str:
    """Return the first setting that protects the ports of Spark's processes; '' if none is on.

    Args:
        is_on: Returns whether a setting is true.
    """
    return next(filter(is_on, (AUTHENTICATION, *_ENCRYPTION)), "")


def exposure_of_connect(
    port: str, spark: Exposure | None, *, token: bool, encrypted: bool
) -> Exposure | None:
    """Return the risks of a Spark Connect server and of its Spark; None if both are protected.

    Args:
        port: The server's port; '' if it is on another host.
        spark: The risks of the ports of the server's Spark.
        token: Whether this client sends a token.
        encrypted: Whether the traffic between client and server is encrypted.
    """
    off, dangers, remedies = [], [], []
    if not token:
        off.append(TOKEN)
        dangers.append(
            "any user of the server's host or with access to its port can run Python in the Spark "
            "Connect server"
        )
        # With another name than localhost pyspark requires TLS for the token.
        to = f", and connect to sc://localhost:{port}" if port else ""
        remedies.append(f"start server and client with one secret as {TOKEN}{to}")
    if not encrypted:
        off.append("use_ssl")
        dangers.append(
            "anyone who intercepts the traffic to the Spark Connect server gets the train function "
            "and the token of a search"
        )
        remedies.append("give its address ;use_ssl=true")
    if spark is not None:
        off.extend(spark.off)
        dangers.append(spark.danger)
        remedies.append(spark.remedy)
    return Exposure(tuple(off), dangers[0], "; ".join(remedies)) if off else None


def makes_secret(master: str) -> bool:
    """Return whether Spark itself creates an application's secret for authentication."""
    return is_local(master) or master.startswith(("yarn", "k8s:"))


def start_of(environment: Mapping[str, str] = os.environ) -> Callable[[Sequence[str]], str]:
    """Return a function that describes how to turn settings on in the way this process starts.

    Args:
        environment: This process' environment, which shows spark-submit and pyspark's shell.
    """
    if not {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}.isdisjoint(environment):
        return command_with
    return _builder_with


def command_with(settings: Sequence[str]) -> str:
    """Return how to turn settings on for a command: spark-submit, or a Spark Connect server."""
    return "start it with " + " ".join(f"--conf {name}=true" for name in settings)


def _builder_with(settings: Sequence[str]) -> str:
    calls = "".join(f'.config("{name}", "true")' for name in settings)
    return f"stop the session, and create it again with SparkSession.builder{calls}"


def _in_files(master: str, settings: Sequence[str]) -> str:
    """Return how to turn settings on in a file, since other users see a command's arguments."""
    lines = ", ".join([*(f"{name}=true" for name in settings), f"{_SECRET}=<a secret>"])
    whose = "this session" if on_one_host(master) else "master, workers and this session"
    return f"put into spark-defaults.conf (mode 0600) of {whose}: {lines}"
