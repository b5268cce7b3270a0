"""Records when the parts of a search begin and end, in every Python process that finds this module.

Python imports `sitecustomize` at its start, so the folder of this module on PYTHONPATH is enough:
the framework itself knows nothing of it. `tests.benchmarks.spans` reads what is recorded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import wrapt

# A part is a function, a method, or a context manager: of the latter, entering and leaving.
PARTS = {
    "experiment.driver.run_search": {
        "run_search": "call",
        "prepare": "checks",
        "_slots": "number of slots",
        "open_run": "run's folder",
        "_board": "TensorBoard's files",
    },
    "experiment.driver.open_run": {"open_journal": "run's folder: journal"},
    "experiment.setup.preparation": {
        "pickle_function": "checks: pickling",
        "preload_of": "checks: preload",
    },
    "spark_jobs.session.classic": {
        "ClassicSession.data_settings": "checks: Hadoop's settings",
        "ClassicSession._count_of": "pickling of the slot",
    },
    "experiment.driver.jobs.slot_jobs": {"ChannelServer": "channel", "handover": "handing over"},
    "spark_jobs.session.slot_job": {
        "SlotJob._main": "Spark's job",
        "SlotJob.__exit__": "end of job",
    },
    "experiment.driver.running_search": {
        "RunningSearch._end": "last files",
        "RunningSearch.answer": "result",
    },
    "spark_jobs.slot.slot": {
        "run_trials": "slot",
        "connect": "slot: channel",
        "folder_problem": "slot: check of the folder",
        "make_runner": "slot: zygote",
        "pull_trials": "slot: trials",
    },
    "spark_jobs.zygote.process": {"ask": "slot: asking the keeper"},
    "spark_jobs.zygote.preparing": {"import_for_trials": "import of what is preloaded"},
    "spark_jobs.zygote.zygote": {"Zygote._run_trial": "zygote: trial"},
    "spark_jobs.trial.trial_process": {"run_child": "trial"},
}


class _Timed:
    """A context manager that records how long entering and leaving it takes."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Any:
        with _span(self._name):
            return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        with _span(f"{self._name}, end"):
            return self._inner.__exit__(*error)


def _note(name: str, begin: float, end: float) -> None:
    line = json.dumps({"name": name, "begin": begin, "end": end, "pid": os.getpid()})
    with contextlib.suppress(OSError), open(os.environ["SPANS"], "a") as file:
        file.write(line + "\n")


@contextlib.contextmanager
def _span(name: str) -> Iterator[None]:
    begin = time.time()
    try:
        yield
    finally:
        _note(name, begin, time.time())


def _timed(name: str) -> Callable[..., Any]:
    def wrapper(function: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with _span(name):
            result = function(*args, **kwargs)
        return _Timed(result, name) if hasattr(type(result), "__enter__") else result

    return wrapper


def _mark(parts: dict[str, str], module: Any) -> None:
    for attribute, name in parts.items():
        with contextlib.suppress(AttributeError):
            wrapt.wrap_function_wrapper(module, attribute, _timed(name))


def _record() -> None:
    for module, parts in PARTS.items():
        wrapt.register_post_import_hook(functools.partial(_mark, parts), module)
    wrapt.register_post_import_hook(
        functools.partial(_note_worker, time.time()), "spark_jobs.slot.slot"
    )


def _note_worker(started: float, _: Any) -> None:
    if "pyspark.worker" in sys.modules:  # not in the driver, nor in an importer
        _note("worker: from its daemon's start to the end of our imports", started, time.time())


if "SPANS" in os.environ:
    _record()
