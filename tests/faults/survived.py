"""A plugin of pytest that records which faults are survived, according to the tests that ran.

`pytest -p tests.faults.survived --survived=FILE` writes a JSON object of the numbers of
faults to whether all of their tests passed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--survived", help="the file to write")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Notes(Path(config.getoption("--survived"))))


class _Notes:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._faults: dict[str, set[int]] = {}  # of each test
        self._survived: dict[int, bool] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marks = item.iter_markers("fault")
            self._faults[item.nodeid] = {number for mark in marks for number in mark.args}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        passed = report.passed if report.when == "call" else not report.failed
        if report.skipped:
            passed = False
        for number in self._faults.get(report.nodeid, ()):
            self._survived[number] = self._survived.get(number, True) and passed

    def pytest_sessionfinish(self, **_: Any) -> None:
        self._file.write_text(json.dumps(self._survived))
