"""A Spark that is too old is refused before anything is made."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

import pyspark
import pytest

import experiment
from search.errors import InvalidArgument
from spark_jobs.cluster.spark_version import OLDEST, check_spark_version
from tests import ROOT

OLD = "3.5.7"


@pytest.mark.parametrize("old", ["2.4.8", OLD, "3.5.7-amzn-1", "3.5.0.dev0"])
def test_an_old_version_is_refused(old):
    with pytest.raises(InvalidArgument) as caught:
        check_spark_version(old, "pyspark", "install another")
    expected = f"spark: expected pyspark 4.0 or newer, got pyspark {old}; install another"
    assert str(caught.value) == expected


@pytest.mark.parametrize("new", ["4.0.0", "4.3.0.dev1", "5.0", "10.1.2", version("pyspark"), "?"])
def test_any_other_is_not(new):
    check_spark_version(new, "pyspark", "")


def test_the_package_asks_for_the_same_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark>={OLDEST[0]}.{OLDEST[1]}" in project["dependencies"]


def train(x):
    return x


CALLS = {
    "launch": lambda spark, folder: experiment.launch(spark, train, {"x": [1.0]}, logdir=folder),
    "submit": lambda spark, folder: experiment.submit(
        experiment.launch, spark, train, {"x": [1.0]}, logdir=folder
    ).result(),
    "executor": lambda spark, folder: experiment.executor(spark, logdir=folder).shutdown(),
    "doctor": lambda spark, folder: experiment.doctor(spark, logdir=folder),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_refuses_it_and_makes_nothing(spark, tmp_path, monkeypatch, call):
    monkeypatch.setattr(pyspark, "__version__", OLD)  # whose JVM no other pyspark can use
    with pytest.raises(InvalidArgument, match="expected pyspark 4.0 or newer, got pyspark 3.5.7"):
        call(spark, str(tmp_path / "runs"))
    assert list(tmp_path.iterdir()) == []
