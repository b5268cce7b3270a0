"""Changes of the files that an import depends on."""

from __future__ import annotations

import time

import pytest

from spark_jobs.warm.sources import changed_since, marks_of


@pytest.mark.parametrize(
    ("name", "changed"), [("package.dist-info", True), ("__pycache__", False), ("", False)]
)
def test_a_folder_changes_by_an_installation_but_not_by_a_compilation(tmp_path, name, changed):
    begin = time.time_ns()
    if name:
        (tmp_path / name).mkdir()
    else:
        begin += 10**9  # later than the folder was made
    assert changed_since(marks_of([tmp_path]), begin) == changed


def test_a_changed_file_has_no_folder_of_compiled_modules(tmp_path):
    begin = time.time_ns()
    (tmp_path / "mine.py").touch()
    (tmp_path / "__pycache__").mkdir()
    assert changed_since(marks_of([tmp_path / "mine.py"]), begin)
