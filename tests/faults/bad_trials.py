"""A train function that fails in any given way, and the expected outcomes."""

from __future__ import annotations

import fractions
import json
import locale
import os
import pathlib
import random
import resource
import signal
import sys
import warnings
from typing import Any

import numpy as np

import experiment
from tests.spark_jobs import train_functions as functions

KEY = "score"
GOOD = {  # returned expression to the expected value
    "3": 3.0,
    "np.float32(0.5)": 0.5,
    "np.int64(-2)": -2.0,
    "np.array(7.0)": 7.0,
    "fractions.Fraction(1, 2)": 0.5,
    "{'score': 1, 'loss': 2.0}": 1.0,
    "{'score': 2, 'loss': math.inf}": 2.0,
    "{np.str_('score'): np.float64(2.5)}": 2.5,
}
NO_SCORE = {  # returned expression to the expected message
    "math.nan": "the objective 'score' is nan",
    "math.inf": "the objective 'score' is inf",
    "-math.inf": "the objective 'score' is -inf",
    "np.float32('nan')": "the objective 'score' is nan",
    "{'score': math.nan, 'loss': 1}": "the objective 'score' is nan",
    "None": "got NoneType (None), want float",
    "'0.5'": "got str ('0.5'), want float",
    "b'0.5'": "got bytes (b'0.5'), want float",
    "[0.5]": "got list ([0.5]), want float",
    "(0.5,)": "got tuple ((0.5,)), want float",
    "True": "got bool (True), want float",
    "np.bool_(True)": "got bool (",  # numpy 1 calls it bool_
    "np.array([1.0])": "got ndarray (array([1.])), want float",
    "1j": "got complex (1j), want float",
    "{}": "want the key 'score', got the keys none",
    "{'accuracy': 0.5, 'loss': 1}": "want the key 'score', got the keys 'accuracy', 'loss'",
    "{'score': {'value': 1}}": "under the key 'score': got dict ({'value': 1}), want float",
    "{'score': 1, 'more': {'a': 1}}": "under the key 'more': got dict ({'a': 1}), want float",
    "{'score': 1, 5: 0.5}": "returned a dict with the key 5, want strings",
    "lambda: 0": "got function (<function",
    "(n for n in range(3))": "got generator (<generator",
    "hostile": "got Hostile (",
    "[hostile]": "got list (",
    "{'score': hostile}": "under the key 'score': got Hostile (",
    "{'score': 1, 'more': hostile}": "under the key 'more': got Hostile (",
    "'x' * (1200 << 20)": "got str ('xxxxx",
}
FAILING = {  # case to the expected failure kind and message
    "raises": ("user error", "ValueError: user bug"),
    "raises what is hostile": ("user error", "bad_trials.HostileError"),
    "raises what is no Exception": ("user error", "HostileError"),
    "has no memory on a GPU": ("gpu memory", "torch.OutOfMemoryError: CUDA out of memory"),
    "os._exit(17)": ("exit", "exit 17 before it returned"),
    "sys.exit('sorry')": ("exit", "exit 'sorry' before it returned"),
    "sys.exit()": ("exit", "exit 0 before it returned"),
    "SIGKILL": ("exit", "signal 9 (SIGKILL) before it returned"),
    "SIGSEGV": ("exit", "signal 11 (SIGSEGV) before it returned"),
    "one large object": ("memory", "of address space (RLIMIT_AS)"),
    "everything": ("memory", "of address space (RLIMIT_AS)"),
    "a mapping": ("memory", "of address space (RLIMIT_AS)"),
    "native code": ("memory", "of address space (RLIMIT_AS)"),
}


def go_wrong(case: str, folder: str) -> Any:
    """Run a case, and count in the folder how often it was started."""
    with open(os.path.join(folder, f"begun-{[*GOOD, *NO_SCORE, *FAILING].index(case)}"), "a") as f:
        f.write("x")
    if case in FAILING:
        return _fail(case, folder)
    names = {"hostile": _hostile(object, folder), "np": np, "fractions": fractions}
    return eval(case, {"math": __import__("math"), **names})


def _fail(case: str, folder: str) -> Any:
    match case:
        case "raises":
            raise ValueError("user bug")
        case "raises what is hostile":
            raise _hostile(ValueError, folder)
        case "raises what is no Exception":
            return functions.fail_badly(0)
        case "has no memory on a GPU":
            name = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
            raise name("CUDA out of memory. Tried to allocate 20.00 GiB")
        case "os._exit(17)":
            return functions.leave_at_once(0)
        case "sys.exit('sorry')":
            sys.exit("sorry")
        case "sys.exit()":
            sys.exit()
        case "SIGKILL":
            return functions.kill_itself(signal.SIGKILL)
        case "SIGSEGV":
            return functions.segfault(0)
    return functions.exhaust_memory(case)


def _hostile(base: type, folder: str) -> Any:
    """Return an object that creates a file when it is unpickled."""

    class Hostile(base):  # type: ignore[misc]
        def __reduce__(self) -> Any:
            return pathlib.Path.touch, (pathlib.Path(folder, f"unpickled-{os.getpid()}"),)

    Hostile.__name__ = "Hostile" if base is object else "HostileError"
    Hostile.__qualname__ = Hostile.__name__
    return Hostile()


def look_around(change: bool) -> float:
    """Record the state of a trial's process; then change all of it on request."""
    found = {
        "folder": os.getcwd(),
        "environment": sorted(os.environ.items()),
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "umask": os.umask(0o022),
        "nice": os.nice(0),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "locale": locale.setlocale(locale.LC_ALL),
        "path": sys.path,
        "recursion": sys.getrecursionlimit(),
        "filters": str(warnings.filters),
        "module": getattr(functions, "changed", None),
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
        "drawn": [random.random(), float(np.random.random())],
    }
    os.umask(found["umask"])
    pathlib.Path(experiment.logdir(), "found.json").write_text(json.dumps(found))
    if change:
        os.chdir("/")
        os.environ["CHANGED"] = "yes"
        os.environ.pop("PATH")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.umask(0o777)
        os.nice(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        locale.setlocale(locale.LC_ALL, "C")
        sys.path.clear()
        sys.setrecursionlimit(5_000)
        warnings.simplefilter("ignore")
        functions.changed = True  # type: ignore[attr-defined]
        os.dup(0)
        random.seed(1)
        np.random.seed(1)
    return 1.0


def count_begun(folder: pathlib.Path) -> dict[str, int]:
    """Return how often each case was started, by its file's name."""
    return {path.name: len(path.read_text()) for path in folder.glob("begun-*")}
