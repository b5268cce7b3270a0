"""Spark's errors in words."""

from __future__ import annotations

import pytest

from experiment.driver.jobs.spark_errors import problem_of_spark
from spark_jobs.slot.problems import PROBLEM

BLIND = "host b does not see the folder /runs/r of the driver; give logdir a shared folder"


def test_the_message_of_a_host_that_does_not_see_the_folder_is_shown_unchanged():
    error = RuntimeError(f"Job aborted: RuntimeError: {PROBLEM}{BLIND}\n\tat org.apache.spark")
    assert problem_of_spark(error, ["b"]) == BLIND
    assert problem_of_spark(error, []) == BLIND  # as with Spark Connect


def test_a_host_without_a_package_is_named_with_a_remedy():
    problem = "Python /p: no module named 'msgspec'; install it"
    error = RuntimeError(f"Job aborted: RuntimeError: {PROBLEM}{problem}\n\tat org.apache.spark")
    assert problem_of_spark(error, ["b"]) == f"host b, {problem}"
    assert problem_of_spark(error, []) == f"an executor, {problem}"


def test_a_module_that_an_executor_lacks_is_named_with_a_remedy():
    error = RuntimeError("Job aborted: ModuleNotFoundError: No module named 'cloudpickle'\n\tat")
    assert problem_of_spark(error, ["node-7"]) == (
        "host node-7: Python on the executor has no module named 'cloudpickle'; set PYSPARK_PYTHON "
        "to a Python that has this package and its dependencies on every executor"
    )


MISMATCH = (
    "An exception was thrown from the Python worker: "
    "pyspark.errors.exceptions.base.PySparkRuntimeError: "
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.13 than that in driver: "
    "3.11, PySpark cannot run with different minor versions."
)


@pytest.mark.fault(46)
def test_a_wrong_python_version_is_one_sentence_with_the_host():
    """From Spark's message, as not every test machine has a second Python."""
    sentence = problem_of_spark(RuntimeError(MISMATCH), ["node-7"])
    assert sentence.startswith("host node-7: the executor has Python 3.13, the driver 3.11")


def test_other_spark_errors_have_no_sentence():
    assert problem_of_spark(RuntimeError("Job aborted"), []) is None
    assert problem_of_spark(None, []) is None
