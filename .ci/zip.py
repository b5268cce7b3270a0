"""Puts the packages into build/experiment.zip, for `spark-submit --py-files`.

The same sources make the same bytes. What they import has to be on the executors already.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("experiment", "search", "spark_jobs")


def main() -> None:
    """Write it, and print where it is."""
    target = ROOT / "build" / "experiment.zip"
    target.parent.mkdir(exist_ok=True)
    beside = target.with_name(f".part-{os.getpid()}.zip")  # a job may be reading the one before
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as file:
        for source in sorted(path for name in PACKAGES for path in _sources(ROOT / name)):
            entry = zipfile.ZipInfo(source.relative_to(ROOT).as_posix())  # of 1980, for everyone
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            file.writestr(entry, source.read_bytes())
    beside.replace(target)
    print(target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target)


def _sources(package: Path) -> Iterator[Path]:
    """Yield the files of a package that it needs when it runs."""
    for path in package.rglob("*"):
        built = path.parent.name == "built-page"
        source = "frontend" in path.relative_to(package).parts  # of the page
        if path.is_file() and (path.suffix == ".py" or built) and not source:
            yield path


if __name__ == "__main__":
    main()
