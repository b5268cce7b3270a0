"""A search as a job of a scheduler: run from a command line, with an exit status per outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any

from experiment.cli.console import (
    drop_output,
    print_best,
    print_error,
    print_facts,
    write_any_text,
)
from experiment.cli.job_options import BAD_INPUT, Job, read_job
from experiment.driver.control import deadline_passed
from experiment.results.result import Result, Results, SearchFailed, too_many_failures
from experiment.results.text import command
from search.errors import ExperimentError, InvalidArgument
from search.trial import FailureKind
from spark_jobs.processes import die_with_parent
from spark_jobs.run_folder.paths import RESULT
from spark_jobs.storage.refusals import StorageFailed

DONE, FAILED, NO_RESULT, CANCELLED = 0, 1, 3, 130

_ENDS_SEARCH: tuple[FailureKind, ...] = ("ambiguous objective",)  # one such trial ends the search


def main(words: Sequence[str]) -> int:
    """Run the search of a command line, and print its result.

    Args:
        words: The command line, without the program; see `--help`.

    Returns:
        The exit status: 0 done, also after its deadline; 3 no trial has a result; 4 bad input; 130
        cancelled, by Ctrl-C, SIGTERM or `python -m experiment stop`; 1 any other error.
    """
    write_any_text()
    signal.signal(signal.SIGTERM, _cancelled)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit's JVM is the parent, which may end
        die_with_parent(os.getppid(), signal.SIGTERM)
    try:
        return _run(read_job(words))
    except InvalidArgument as error:
        print_error(str(error))
        return FAILED if isinstance(error, StorageFailed) else BAD_INPUT
    except ExperimentError as error:
        print_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        return CANCELLED


def _check(job: Job) -> None:
    """Check the arguments that need no session, since Spark's start takes seconds and executors.

    A job that depends on other runs is left to its call: it may read them by the session's settings
    of HDFS.

    Raises:
        InvalidArgument: An argument is invalid.
    """
    if job.arguments.keys() & {"resume", "warm_start"}:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the call itself warns
            job.call.spec(None, job.train, job.space, **job.arguments)  # type: ignore[attr-defined]  # of every search
    except InvalidArgument as error:
        if error.name != "spark":  # a searcher asks it for its slots
            raise


def _run(job: Job) -> int:
    from spark_jobs.session.classic import make_session

    _check(job)
    spark = make_session()
    try:
        result = _overall(job.call(spark, job.train, job.space, **job.arguments))
    except SearchFailed as error:
        print_error(str(error))
        _print(error.result)
        return _status_of_failure(error.result, job.arguments.get("max_failures"))
    finally:
        with contextlib.suppress(Exception):  # its JVM may have ended; the first error counts
            spark.stop()
    _print(result)
    return _status(result, job.arguments.get("deadline"))


def _status(result: Result, deadline: float | None) -> int:
    """Return the exit status after a search with a result; a deadline is a planned end."""
    in_time = deadline is None or result.problem != deadline_passed(deadline)
    if result.problem and in_time:
        return CANCELLED
    return DONE if result.front else NO_RESULT


def _status_of_failure(result: Result, most: int | None) -> int:
    """Return the exit status after a search that its trials, or the cluster, made fail.

    A scheduler may retry a job that failed because of the cluster.
    """
    ends = {t.error.message for t in result.failed if t.error and t.error.kind in _ENDS_SEARCH}
    if most is not None:
        ends.add(too_many_failures(most + 1, most))  # the search ends at the first one too many
    through_trials = result.problem is None or result.problem in ends
    return NO_RESULT if through_trials and not result.front else FAILED


def _overall(result: Result | Results) -> Result:
    return result.overall if isinstance(result, Results) else result


def _print(result: Result) -> None:
    """Print a result; that this fails is no failure of the search."""
    if sys.stdout is None:  # closed by the caller
        return
    try:
        _print_all(result)
        sys.stdout.flush()
    except OSError as error:
        drop_output(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # as in `| head`
            print_error(f"the result cannot be printed: {error}")


def _print_all(result: Result) -> None:
    print_best(result)
    print_facts(
        {
            "ended early": result.problem or "",
            "so far" if result.problem else "result": result.summary(),
            "run": result.logdir,
            "as JSON": f"{result.logdir}/{RESULT}",
            "look at it": command("tensorboard", result.logdir),
        }
    )


def _cancelled(number: int, frame: FrameType | None) -> Any:
    raise KeyboardInterrupt
