"""Python environments that have the dependencies, and not this project's packages."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def bare_environment(folder: Path) -> Path:
    """Make an environment like the one that the tests run in, without what is installed editable.

    Returns:
        Its interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Not a .pth file: those of the folder itself, editable installs among them, would be read.
    code = f"import sys\nsys.path.append({sysconfig.get_path('purelib')!r})\n"
    (packages / "sitecustomize.py").write_text(code)
    return folder / "bin" / "python"
