import importlib.util
from pathlib import Path

import pytest

from spark_jobs.strategies.mirrored.keras_versions import (
    CHECKED,
    UNCHECKED,
    digest_of,
    problem_of,
)
from tests.spark_jobs.strategies.mirrored.keras_sources import source_of, sources

KNOWN = next(iter(CHECKED))


def test_the_installed_keras_is_a_checked_one():
    packages = Path(importlib.util.find_spec("keras").origin).parent.parent
    assert digest_of(sources(packages)) in CHECKED


def test_a_known_source_is_corrected_whatever_its_version():
    assert problem_of("3.99.0", KNOWN, {}) == ""


def test_an_unknown_source_is_refused():
    assert problem_of("3.99.0", "another", {}) == (
        "model.fit over several workers was checked with Keras 3.10 to 3.15, this is 3.99.0: write "
        f"the training loop yourself, use strategy=None, or set {UNCHECKED}=1"
    )


@pytest.mark.parametrize(("value", "refused"), [("1", False), ("0", True), ("", True)])
def test_a_variable_allows_an_unknown_source(value, refused):
    assert bool(problem_of("3.99.0", "another", {UNCHECKED: value})) == refused


def test_the_indentation_of_a_source_does_not_matter():
    module = "class Trainer:\n    def fit(self):\n        return 1\n\n\nfit = 2\n"
    inside = source_of(module, "fit")
    assert digest_of([inside]) == digest_of(["def fit(self):\n    return 1\n"])
    assert digest_of([inside]) != digest_of(["def fit(self):\n    return 2\n"])
