"""Says which installed packages have known vulnerabilities, and in which versions they are mended.

Ends with 1 where some have, with 2 where packages could not be looked up: pip-audit takes one that
its service of advisories does not know, or gives no answer for, for a sound one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def main() -> int:
    """Ask pip-audit and print what it found."""
    command = [sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off"]
    asked = subprocess.run(
        [*command, "--desc=off", "--skip-editable"], capture_output=True, text=True, check=False
    )
    try:
        packages = json.loads(asked.stdout)["dependencies"]
    except ValueError:
        reason = (asked.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"audit: the service of advisories cannot be reached: {reason}")
        return 2
    lines, code = report(packages)
    print("\n".join(lines))
    return code


def report(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Return what to print of pip-audit's answer, and the exit status."""
    packages = [p for p in packages if "editable" not in p.get("skip_reason", "")]  # our own
    known = [package for package in packages if "skip_reason" not in package]
    found = [(package, vulnerability) for package in known for vulnerability in package["vulns"]]
    lines = []
    for package, vulnerability in found:
        names = ", ".join([vulnerability["id"], *vulnerability.get("aliases", [])])
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        lines.append(f"{package['name']} {package['version']}: {names}; fixed in {fixed}")
    lines.append(
        f"audit: {len(found)} known vulnerabilities in {len(known)} of {len(packages)} packages"
    )
    if not known:
        lines[-1] = f"audit: the service of advisories answers for none of {len(packages)} packages"
    elif len(known) < len(packages):
        others = [package["name"] for package in packages if package not in known]
        lines.append(f"audit: not looked up: {', '.join(others)}")
    return lines, 1 if found else 2 if len(known) < len(packages) else 0


if __name__ == "__main__":
    sys.exit(main())
