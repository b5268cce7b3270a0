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
    # Python runs the line, and reads no .pth file there, such as of an editable install. It would
    # not read a sitecustomize.py where Debian's Python has its own; venv-pack refuses a mere path.
    code = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n"
    (packages / "dependencies.pth").write_text(code)
    return folder / "bin" / "python"
