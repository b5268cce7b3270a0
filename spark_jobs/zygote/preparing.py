"""Imports what trials need, so that forks of this process are cheap.

A fork copies the table of its parent's pages, and each page that the child writes to, if only to
count a reference. So this process does beforehand what each child would do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
from pathlib import Path

import cloudpickle

from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.processes import import_guessed, import_modules
from spark_jobs.trial.pipe.link import PipeLink
from spark_jobs.trial.trial_process import Program, perform
from spark_jobs.zygote.huge_pages import side_by_side, use_huge_pages

_LARGE = frozenset(("keras", "tensorflow", "torch", "transformers"))  # packages
_PROBE = 20.0  # seconds that a first op may take in a forked child
_REHEARSALS = 30  # CPython specialises the code of a function at about its tenth call


def import_for_trials(modules: tuple[str, ...], guessed: tuple[str, ...]) -> str:
    """Import what trials need into this process, and make its forks cheap.

    Args:
        modules: The modules to import.
        guessed: More modules to import, unless their import raises.

    Returns:
        Why forked trials would hang, or ''.
    """
    is_large = any(name.partition(".")[0] in _LARGE for name in (*modules, *guessed))
    with side_by_side() if is_large else contextlib.nullcontext():
        import_modules(modules)
        import_guessed(guessed)
    rehearse()
    reason = why_not_fork()
    gc.collect()
    gc.freeze()  # otherwise a collection in a child would copy every page
    use_huge_pages()
    return reason


def rehearse() -> None:
    """Run a trial that does nothing in this process, as its children will.

    They find late imports done, caches of types and abstract classes filled, and code specialised.
    """
    importlib.import_module("numpy.random")
    importlib.import_module("tenacity")  # for calls, which retry reading their arguments
    program = Program(function=cloudpickle.dumps(lambda: 0.0), key=None, direction="max")
    results, writing = os.pipe()
    reading, commands = os.pipe()
    try:
        for _ in range(_REHEARSALS):
            perform(program, Attempt(Trial(0, {})), Path(), PipeLink(writing, reading))
            os.read(results, 1 << 16)
    finally:
        for descriptor in (results, writing, reading, commands):
            os.close(descriptor)


def why_not_fork() -> str:
    """Return why children forked from this process would hang in TensorFlow, or ''."""
    if "tensorflow" not in sys.modules:
        return ""
    if tensorflow_has_run():
        return "a preloaded module ran a TensorFlow op at import, after which forked trials hang"
    if not _first_op_works_in_child():
        return f"a first TensorFlow op in a forked process did not end within {_PROBE:.0f} s"
    return ""


def tensorflow_has_run() -> bool:
    """Return whether an op has run in this process. Reads a private field; a test pins it."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)


def _first_op_works_in_child() -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no memory of a GPU for a probe
            import tensorflow

            code = 0 if int(tensorflow.constant(1) + 1) == 2 else 1
        finally:
            os._exit(code)
    pidfd = os.pidfd_open(pid)
    ended, _, _ = select.select([pidfd], [], [], _PROBE)
    os.close(pidfd)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1] == 0
