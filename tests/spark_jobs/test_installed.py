"""Whether a module is installed."""

from __future__ import annotations

import sys

import pytest

from spark_jobs.installed import is_installed


@pytest.mark.parametrize("odd", ["", ".", ".relative", "__main__"])
def test_an_invalid_module_name_does_not_break_the_search_for_modules(odd):
    assert is_installed(odd) is (odd == "__main__")


def test_a_module_of_an_installed_package_counts_as_installed_and_is_not_imported():
    assert is_installed("json.no_such_module")
    assert not is_installed("no_such_package.module")
    assert "json.no_such_module" not in sys.modules


@pytest.mark.parametrize("error", [ImportError, ModuleNotFoundError, ValueError])
def test_a_package_that_a_finder_refuses_is_not_installed(monkeypatch, error):
    class Refusing:
        @staticmethod
        def find_spec(name, path=None, target=None):
            raise error(name)

    monkeypatch.setattr(sys, "meta_path", [Refusing])
    assert not is_installed("no_such_package")
