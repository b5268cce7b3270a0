"""The folder that tests start Spark from: the installed one, whose Python is no zip.

Spark's Python workers import pyspark from a zip. Python compiles its modules anew in each process
that starts workers, and each worker reads the zip's list of files 18 times (`invalidate_caches`).
Together these take most of the time of a session's first job. `python -m tests.servers.spark_home`,
which `.ci/install` calls, makes folders of files with the names of the zips.
"""

from __future__ import annotations

import importlib.resources
import shutil
import sys
from pathlib import Path

_MADE = Path(sys.prefix, "spark-home")


def spark_home() -> Path:
    """Return the folder that `.ci/install` has made, or else the one that pip has installed."""
    return _MADE if _MADE.is_dir() else _installed("pyspark")


def main() -> None:
    """Make the folder: links to the parts of the installed one."""
    shutil.rmtree(_MADE, ignore_errors=True)
    for name in ("bin", "data", "jars", "sbin"):
        _link(_MADE / name, _installed("pyspark") / name)
    for archive in (_installed("pyspark") / "python" / "lib").glob("*.zip"):
        package = archive.stem.partition("-")[0]  # py4j-0.10.9.9-src.zip
        _link(_MADE / "python" / "lib" / archive.name / package, _installed(package))


def _link(link: Path, folder: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)


def _installed(package: str) -> Path:
    return Path(str(importlib.resources.files(package)))


if __name__ == "__main__":
    main()
