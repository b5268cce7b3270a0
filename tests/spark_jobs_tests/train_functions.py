"""Train functions for the tests of trial processes; importable, so that they pickle by name."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import time
import zlib
from typing import Any

import numpy as np

import experiment


def double(x: float) -> float:
    return 2 * x


def say(x: float) -> float:
    print("printed é", x)
    print("complained", file=sys.stderr)
    os.system("echo native")
    return x


def fail(x: float) -> float:
    raise ValueError(f"user bug {x}")


def fail_badly(x: float) -> float:
    class HostileError(BaseException):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise HostileError


def leave(code: Any) -> float:
    sys.exit(code)


def leave_at_once(x: float) -> float:
    print("last words", flush=True)
    os._exit(17)


def kill_itself(number: int) -> float:
    os.kill(os.getpid(), number)
    time.sleep(60)
    return 0.0


def segfault(x: float) -> float:
    ctypes.string_at(0)
    return x


def exhaust_memory(x: float) -> float:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
    return float(len(bytes(1 << 34)))


def hang(how: str) -> float:
    if how == "ignoring SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "holding the GIL":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ctypes.PyDLL(None).sleep(3600)  # PyDLL, unlike CDLL, keeps the GIL
    while True:
        time.sleep(3600)


def leave_children(tag: str, then: str) -> float:
    """Start a child, a child in a session of its own, and a daemon forked twice."""
    subprocess.Popen(["sleep", tag])
    subprocess.Popen(["setsid", "sleep", tag])
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execlp("sleep", "sleep", tag)
        os._exit(0)
    if then == "hang":
        hang("ignoring SIGTERM")
    if then == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


def state(change: bool) -> float:
    """Return a number that a change made by an earlier trial of the process would alter."""
    digest = zlib.crc32(
        repr(
            (
                os.getcwd(),
                os.environ.get("CHANGED"),
                str(signal.getsignal(signal.SIGUSR1)),
                str(signal.getsignal(signal.SIGTERM)),
                sys.getrecursionlimit(),
                getattr(sys.modules[__name__], "changed", None),
            )
        ).encode()
    )
    if change:
        os.chdir("/")
        os.environ["CHANGED"] = "yes"
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.setrecursionlimit(5_000)
        sys.modules[__name__].changed = True  # type: ignore[attr-defined]
        random.seed(1)
        np.random.seed(1)
    return float(digest)


def draw(x: float) -> dict[str, float]:
    return {"random": random.random(), "numpy": float(np.random.random())}


def give_back(what: str) -> Any:
    class Hostile:
        def __reduce__(self) -> Any:
            return os._exit, (99,)

    return {
        "hostile": Hostile(),
        "generator": (number for number in range(3)),
        "large": "x" * (1200 << 20) if what == "large" else "",
        "nan": float("nan"),
        "none": None,
    }[what]


def scribble(x: float) -> float:
    """Write garbage to every descriptor that the process has, then end."""
    for descriptor in range(3, 50):
        try:
            os.write(descriptor, b'{"trial": 0, "status": "finished"}garbage' * 100_000)
        except OSError:
            continue
    os._exit(0)


def look_around(x: float) -> dict[str, float]:
    """Return what of the framework the trial sees."""
    folder = experiment.logdir()
    assert os.path.isdir(folder)
    assert experiment.params() == {"x": x}
    experiment.report(step=3, loss=0.25, accuracy=np.float32(0.5))
    experiment.report(loss=0.125)
    return {"x": x, "bytecode": float("PYTHONDONTWRITEBYTECODE" in os.environ)}


def visible_devices(x: float) -> float:
    return float(os.environ.get("CUDA_VISIBLE_DEVICES", "-7") or "-1")


def train_with_tensorflow(x: float) -> float:
    """A step of gradient descent in a graph, and a summary by TensorFlow."""
    import tensorflow as tf

    weight = tf.Variable(x)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = weight**2
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        tf.summary.scalar("inside", loss, step=1)
        return loss

    loss = float(step())
    tf.summary.scalar("mine", loss, step=2)
    return loss
