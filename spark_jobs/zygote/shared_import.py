"""What the slots of an executor import together.

Light: a worker asks for it before it imports the rest of this framework.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from spark_jobs.warm.asking import Imports, Unavailable, kept_commands, start, warm_here

_START = 10.0  # seconds for a start that only saves time

IMPORTER = "spark_jobs.zygote.importer"
"""The module that runs as the importer."""

GUESSED = "--guessed"
"""The word before the modules whose errors are ignored."""

OURS = ("experiment.public", "spark_jobs.trial.events.event_file")
"""Our own modules that are imported for zygotes, after the user's."""

SELECTS_JAX = "spark_jobs.strategies.on_jax.selected"
"""Our module that selects JAX as Keras' backend when it is imported, before the user's."""

SECRETS = (
    "PYTHON_WORKER_FACTORY_SECRET",
    "_SPARK_AUTH_SECRET",
    "_SPARK_SSL_RPC_KEY_PASSWORD",
    "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
    "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
    "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)
"""Variables with secrets of Spark: of its workers, the application and its TLS, of Spark Connect.

They are for no user code.
"""


def imports_of(modules: Sequence[str], guessed: Sequence[str]) -> Imports:
    """Return what is imported for the zygotes of this slot.

    Args:
        modules: The modules to import.
        guessed: More modules to import, unless their import raises.
    """
    return Imports(IMPORTER, (*modules, GUESSED, *guessed), zygote_environment())


def begin(modules: Sequence[str], guessed: Sequence[str], seconds: float) -> None:
    """Let this executor's keeper import, unless it has; do not wait for it.

    Args:
        modules: The modules to import.
        guessed: More modules to import, unless their import raises.
        seconds: Seconds for which they stay imported without a zygote; 0 to do nothing.
    """
    if (warm := warm_here(seconds)) is not None:
        try:
            start(warm, imports_of(modules, guessed), time.monotonic() + _START)
        except Unavailable as error:  # a slot tries again when it needs a zygote
            print(f"no shared import: {error}", file=sys.stderr)


def kept() -> list[tuple[str, ...]]:
    """Return the modules of each import that this executor keeps, without our own."""
    if (warm := warm_here(1.0)) is None:
        return []
    return [
        tuple(word for word in words if word not in (GUESSED, SELECTS_JAX, *OURS))
        for words in kept_commands(warm, IMPORTER)
    ]


def is_kept(modules: Sequence[str], guessed: Sequence[str]) -> bool:
    """Return whether this executor keeps an import, or has begun it.

    Args:
        modules: The modules, as for `begin`.
        guessed: More modules, as for `begin`.
    """
    wanted = [*imports_of(modules, guessed).modules]
    warm = warm_here(1.0)
    return warm is not None and wanted in kept_commands(warm, IMPORTER)


def zygote_environment() -> dict[str, str]:
    """Return the environment of zygotes: the slot's, with its search path, without secrets."""
    environment = dict(os.environ)
    # Without compiled files an import of TensorFlow is several times slower.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for secret in SECRETS:
        environment.pop(secret, None)
    environment["PYTHONPATH"] = search_path()
    return environment


def search_path() -> str:
    """Return where this process searches modules, as the value of PYTHONPATH."""
    return os.pathsep.join(path for path in sys.path if path)
