"""A library of NVML for machines without GPUs: C that the real `pynvml` loads, see nvml.c."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class NoCompiler(Exception):
    """There is no gcc to make the library with."""


class FakeNvml:
    """GPUs that are not there; the library reads all about them from files.

    Args:
        root: A folder for them, made if missing.
        gpus: How many; each has half a GiB that is the driver's own.
    """

    def __init__(self, root: Path, gpus: int = 2) -> None:
        self.root = root
        for gpu in range(gpus):
            (root / str(gpu)).mkdir(parents=True)
            self.set(gpu, "kept-by-the-driver", 1 << 29)
            self.set(gpu, "utilization", 50)

    def set(self, gpu: int, name: str, value: int | str) -> None:
        """Write one of a GPU's files, whole."""
        file = self.root / f".{name}"
        file.write_text(str(value))
        file.rename(self.root / str(gpu) / name)

    def drop(self, gpu: int, name: str) -> None:
        """Remove one of a GPU's files."""
        (self.root / str(gpu) / name).unlink()

    def hide_processes(self) -> None:
        """List no owners from now on, as in many a container."""
        (self.root / "hides-processes").touch()


def build(folder: Path) -> Path:
    """Compile the library into a folder, under the name that processes load it by.

    Raises:
        NoCompiler: There is no gcc.
    """
    if shutil.which("gcc") is None:
        raise NoCompiler("gcc is missing, with which the library that stands for NVML is made")
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run(["gcc", *options, "-o", str(library), str(source)], check=True)
    return library
