"""The Python and the packages of a process, to compare slots with the driver."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.resources
import importlib.resources.abc
import platform
import sys
from collections.abc import Iterable, Iterator

from spark_jobs.doctor.facts import Software
from spark_jobs.installed import is_installed

_OURS = ("experiment", "search", "spark_jobs")
_DISTRIBUTIONS = {  # module to distribution, where the names differ
    "google.protobuf": ("protobuf",),
    "grpc": ("grpcio",),
    "pynvml": ("nvidia-ml-py",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
}
_MODULES = (
    "cloudpickle", "cryptography", "deap", "fsspec", "google.protobuf", "grpc", "hdfs", "keras",
    "msgspec", "numpy", "pandas", "psutil", "pyarrow", "pynvml", "pyspark", "requests",
    "tenacity", "tensorboard", "tensorflow", "urllib3", "wrapt",
)  # fmt: skip


def software(modules: Iterable[str]) -> Software:
    """Return this process' Python, with the versions of some modules."""
    versions = {module: _version(module) for module in modules}
    return Software(
        python=platform.python_version(),
        executable=sys.executable,
        versions=versions,
        source=_digest_of_ours(),
    )


def known_modules() -> tuple[str, ...]:
    """Return the modules of this Python that executors should have as well."""
    return tuple(module for module in _MODULES if is_installed(module))


def _version(module: str) -> str | None:
    for name in _DISTRIBUTIONS.get(module, (module,)):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "" if is_installed(module) else None


def _digest_of_ours() -> str:
    """Return a digest of our packages, in folders or in a zip."""
    digest = hashlib.sha256()
    for package in _OURS:
        for name, data in sorted(_sources(importlib.resources.files(package), package)):
            digest.update(f"{name} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def _sources(folder: importlib.resources.abc.Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a package and of the packages in it, with their names."""
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.joinpath("__init__.py").is_file():  # a wheel has other folders elsewhere
            yield from _sources(entry, f"{name}/{entry.name}")
