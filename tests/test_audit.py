"""The status of `make audit` for answers of pip-audit."""

from __future__ import annotations

import runpy

import pytest

from tests import ROOT

_SCRIPT = ROOT / ".ci" / "audit.py"
SOUND = {"name": "sound", "version": "1.0", "vulns": []}
HOLE = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1", "3.0"]}
HOLED = {"name": "holed", "version": "2.0", "vulns": [HOLE, HOLE | {"fix_versions": []}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found and could not be audited"}
OURS = {"name": "spark-tf-experiment", "skip_reason": "distribution marked as editable"}


@pytest.mark.parametrize(
    ("packages", "lines", "status"),
    [
        ([SOUND, OURS], ["audit: 0 known vulnerabilities in 1 of 1 packages"], 0),
        (
            [SOUND, HOLED, UNKNOWN, OURS],
            [
                "holed 2.0: PYSEC-1, CVE-1; fixed in 2.1, 3.0",
                "holed 2.0: PYSEC-1, CVE-1; fixed in no version yet",
                "audit: 2 known vulnerabilities in 2 of 3 packages",
                "audit: not looked up: unknown",
            ],
            1,
        ),
        (
            [SOUND, UNKNOWN],
            [
                "audit: 0 known vulnerabilities in 1 of 2 packages",
                "audit: not looked up: unknown",
            ],
            2,
        ),
        ([UNKNOWN, OURS], ["audit: the service of advisories answers for none of 1 packages"], 2),
    ],
)
def test_packages_that_were_not_audited_are_no_success(packages, lines, status):
    report = runpy.run_path(str(_SCRIPT))["report"]
    assert report(packages) == (lines, status)
