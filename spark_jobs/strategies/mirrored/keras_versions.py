"""The versions of Keras in which `model.fit` was checked on several workers."""

from __future__ import annotations

import hashlib
import os
import textwrap
from collections.abc import Mapping, Sequence

from search.errors import ExperimentError

UNCHECKED = "EXPERIMENT_KERAS_UNCHECKED"
"""An environment variable of a trial; 1 tries other versions, too."""


class UncheckedKeras(ExperimentError):
    """`model.fit` over several workers in a version of Keras that was not checked."""


# The digest of the functions that are corrected, or that the corrections rely on, with the first
# and the last version that has them:
# `python -m tests.spark_jobs.strategies.mirrored.keras_sources WHEEL`.
CHECKED: Mapping[str, tuple[str, str]] = {
    "6ad92a7582c52aac": ("3.10.0", "3.10.0"),
    "665e5b014d9eb8e0": ("3.11.0", "3.13.2"),
    "b08c3bc9cb9891fb": ("3.14.0", "3.15.1"),
}


def digest_of(sources: Sequence[str]) -> str:
    """Return the digest of the sources of functions, whatever their indentation."""
    text = "\n".join(textwrap.dedent(source).strip() for source in sources)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def problem_of(version: str, digest: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return why `model.fit` is refused on several workers; '' if it is not.

    Args:
        version: The version of Keras.
        digest: The digest of its functions.
        environment: The environment variables of the trial.
    """
    if digest in CHECKED or environment.get(UNCHECKED) == "1":
        return ""
    ends = [_minor(version) for pair in CHECKED.values() for version in pair]
    first, last = (".".join(map(str, end)) for end in (min(ends), max(ends)))
    return (
        f"model.fit over several workers was checked with Keras {first} to {last}, this is "
        f"{version}: write the training loop yourself, use strategy=None, or set {UNCHECKED}=1"
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
