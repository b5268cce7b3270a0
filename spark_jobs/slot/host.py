"""What a slot finds out about its host: its name, and why it cannot run trials."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Sequence

import psutil

from search.errors import InvalidArgument
from spark_jobs.installed import is_installed
from spark_jobs.run_folder.paths import run_of_secret
from spark_jobs.run_folder.writing import with_patience
from spark_jobs.storage.files import check_writable
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

_SHARED = "; give logdir a shared folder or hdfs://..."


def host_name() -> str:
    """Return Spark's name for this host, as on its pages and in its errors; else its own name.

    Spark passes it to an executor by an argument, but not to its Python processes. The host's own
    name may be the same on all hosts, as in containers.
    """
    return executor_argument("--hostname") or socket.gethostname()


def executor_argument(name: str) -> str | None:
    """Return an argument of this process' executor, which Spark does not pass to Python.

    Args:
        name: The argument's name.

    Returns:
        None outside of an executor, as in local mode.
    """
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if any(word.endswith("ExecutorBackend") for word in words) and name in words[:-1]:
                return str(words[words.index(name) + 1])
    return None


def not_lent(error: OSError) -> str:
    """Return the message of a host that cannot read the driver's secrets."""
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        run = run_of_secret(error.filename)
        if run is not None:  # else one of Spark's files, with the train function on HDFS
            return f"does not see the folder {run} of the driver{_SHARED}"
    return f"cannot read the driver's files for slots: {error}"


def modules_problem(modules: Sequence[str]) -> str:
    """Return the problem that this host's Python lacks one of these modules, or ''."""
    missing = next((name for name in modules if not is_installed(name)), None)
    if missing is None:
        return ""
    return (
        f"host {host_name()}, Python {sys.executable}: no module named {missing!r}, which the "
        "driver has; install it on every executor, or leave it out of preload"
    )


def folder_problem(root: Location, hadoop: HadoopSettings, tell: Callable[[str], None]) -> str:
    """Return why this host cannot write to the run's folder, or ''.

    Args:
        root: The folder.
        hadoop: The settings of its file system.
        tell: Called with the reason of a delay.
    """
    host = host_name()
    advice = _SHARED if root.scheme == "file" else ""

    seen = False

    def look() -> None:
        nonlocal seen
        with contextlib.closing(writable_files_at(root, hadoop)) as files:
            files.status(root)  # its name is random, so it is the driver's
            seen = True
            check_writable(files, root)

    try:
        with_patience(look, lambda trouble: tell(f"host {host}: {trouble}"))
    except InvalidArgument as error:  # such as a missing package for Kerberos
        return f"host {host}: {error}"
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not seen:
            still = ", if it still exists" if advice else ""
            return f"host {host} does not see the folder {root} of the driver{still}{advice}"
        return f"host {host} cannot write to the folder {root}: {error.strerror or error}{advice}"
    return ""
