"""An environment per peer: `build/peers/NAME`, made from `requirements/NAME.txt`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import ROOT

_REQUIREMENTS = Path(__file__).with_name("requirements")
_ENVIRONMENTS = ROOT / "build" / "peers"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement")


class EnvironmentFailed(Exception):
    """An environment cannot be made; its text is the last line of what was printed."""


def python_of(environment: str | None) -> Path:
    """Return the Python of an environment, which is made first if its requirements changed.

    Args:
        environment: The name of a requirements file; None for the environment of this process.

    Raises:
        EnvironmentFailed: It cannot be made.
    """
    if environment is None:
        return Path(sys.executable)
    wanted = (_REQUIREMENTS / f"{environment}.txt").read_text(encoding="utf-8")
    folder = _ENVIRONMENTS / environment
    installed = folder / "requirements.txt"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        print(f"installing {environment}", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _run(folder / "bin/python", *_PIP, _REQUIREMENTS / f"{environment}.txt")
        installed.write_text(wanted, encoding="utf-8")
    return folder / "bin/python"


def versions_of(environment: str) -> dict[str, str]:
    """Return the versions that a requirements file pins."""
    lines = (_REQUIREMENTS / f"{environment}.txt").read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.lower(): version.strip() for name, version in pins}


def last_line(text: str) -> str:
    """Return the last line that is not empty; empty if there is none."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "").strip()


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise EnvironmentFailed(last_line(done.stdout))
