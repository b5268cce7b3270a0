"""Train functions for the tests of trial processes; importable, so that they pickle by name."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from typing import Any

import numpy as np

import experiment


def call_pickled(pickled: str, **params: Any) -> Any:
    """Call the given function, so that trials of one runner call different ones."""
    return pickle.loads(base64.b64decode(pickled))(**params)


def double(x: float) -> float:
    return 2 * x


def count_imported(names: list[str]) -> float:
    return sum(name in sys.modules for name in names)


def say(x: float) -> float:
    print("printed é", x)
    print("complained", file=sys.stderr)
    os.system("echo native")
    return x


def leave_temporary_files(x: float) -> float:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        print(file.name)
    shell = subprocess.run("mktemp", capture_output=True, text=True, check=True)
    print(shell.stdout, end="")
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


FOLDER_CHANGES = (
    "removed",
    "emptied",
    "renamed",
    "a file",
    "a symlink",
    "a broken symlink",
    "without permissions",
    "removed, then a report",
    "all removed",
    "all a file",
    "all without permissions",
)
"""What `change_folder` does: to the trial's folder, or to the folder of all trials."""


def change_folder(how: str) -> float:
    folder = pathlib.Path(experiment.logdir())
    all_trials, away = folder.parent, folder.with_name(f"{folder.name}-away")
    match how:
        case "removed":
            shutil.rmtree(folder)
        case "emptied":
            for path in folder.iterdir():
                path.unlink()
        case "renamed":
            folder.rename(away)
        case "a file":
            shutil.rmtree(folder)
            folder.write_text("the user's")
        case "a symlink":
            folder.rename(away)
            folder.symlink_to(away)
        case "a broken symlink":
            shutil.rmtree(folder)
            folder.symlink_to(away)
        case "without permissions":
            folder.chmod(0)
        case "removed, then a report":
            shutil.rmtree(folder)
            experiment.report(step=0, loss=0.5)
        case "all removed":
            shutil.rmtree(all_trials)
        case "all a file":
            shutil.rmtree(all_trials)
            all_trials.write_text("the user's")
        case "all without permissions":
            all_trials.chmod(0)
    return 1.0


def stop_supervisor(tag: str) -> float:
    """Stop the process that supervises the trial, and leave a process; '' does nothing."""
    if tag:
        subprocess.Popen(["sleep", tag], start_new_session=True)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(3600)
    return 1.0


def kill_itself(number: int) -> float:
    os.kill(os.getpid(), number)
    time.sleep(60)
    return 0.0


def segfault(x: float) -> float:
    ctypes.string_at(0)
    return x


def exhaust_memory(how: str) -> float:
    """Run out of address space, limited to 128 MiB more than now."""
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + (128 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if how == "everything":
        chain: Any = None
        for size in (2**power for power in range(20, -1, -1)):  # until not even a byte is left
            with contextlib.suppress(MemoryError):
                while True:
                    chain = chain, bytearray(size)
    if how == "a mapping":
        mmap.mmap(-1, 1 << 40)
    if how == "native code":
        ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_size_t(1 << 40))  # operator new, uncaught
    if how == "a native thread":  # as `std::thread` throws it
        ctypes.CDLL("libstdc++.so.6")._ZSt20__throw_system_errori(errno.EAGAIN)
    if how == "a thread":
        never = threading.Event()
        while True:
            threading.Thread(target=never.wait, daemon=True).start()
    return float(len(bytes(1 << 40)))


def exhaust_tensorflow(how: str) -> float:
    """Ask TensorFlow for 64 TiB in several ways, each with another error."""
    import tensorflow as tf

    if how == "disk":  # the same class of exception
        tf.io.write_file("/dev/full", "x" * 100_000)
    if how == "eager":
        tf.zeros([1 << 44])
    drawn = tf.function(
        lambda: tf.reduce_sum(tf.random.uniform([1 << 44])), jit_compile=how == "XLA"
    )
    return float(drawn())


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
    """Return the framework's values that the trial sees."""
    folder = experiment.logdir()
    assert os.path.isdir(folder)
    assert experiment.params() == {"x": x}
    experiment.report(step=3, loss=0.25, accuracy=np.float32(0.5))
    experiment.report(loss=0.125)
    return {"x": x, "bytecode": float("PYTHONDONTWRITEBYTECODE" in os.environ)}


def visible_devices(x: float) -> float:
    return float(os.environ.get("CUDA_VISIBLE_DEVICES", "-7") or "-1")


def print_variable(name: str) -> float:
    print(os.environ.get(name))
    return 1.0


def fraction_of_torch(x: float) -> float:
    """Return how much of a GPU PyTorch may use."""
    import torch

    return float(torch.cuda.fraction)


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


def report_and_wait(x: float, flag: str) -> float:
    """Report, and continue only after the report was received."""
    experiment.report(step=0, loss=x)
    while not os.path.exists(flag):
        time.sleep(0.005)
    experiment.report(step=1, loss=2 * x)
    return 3 * x


def report_for_ever(x: float) -> float:
    """Report again and again, as a training loop with a careless `except` does."""
    for step in itertools.count():
        try:
            experiment.report(step=step, loss=x / (step + 1))
            time.sleep(0.001)
        except Exception as error:
            print("swallowed", error)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
            raise
    raise AssertionError


def report_for_ever_and_return(x: float) -> float:
    try:
        return report_for_ever(x)
    except experiment.TrialStopped:
        experiment.report(step=1_000_000, loss=0.0)  # what it does at its end is not cut short
        return 42.0


def report_several_for_ever(x: float) -> float:
    for step in itertools.count():
        experiment.report(step=step, loss=x, accuracy=step)
    raise AssertionError


def report_once(x: float) -> float:
    experiment.report(step=5, loss=x)
    return 2 * x


def report_and_say_so(loss: float) -> None:
    """Report, and leave a file that says that the call has returned."""
    experiment.report(step=5, loss=loss)
    open(os.path.join(experiment.logdir(), "reported"), "w").close()


def report_and_hang(x: float, how: str) -> float:
    report_and_say_so(x)
    return hang(how)


def stop_itself(x: float) -> float:
    experiment.report(step=5, loss=x)
    raise experiment.TrialStopped("had enough")


def clean_up(folder: str, then: str) -> float:
    """Hang until SIGTERM, then clean up and end in some way."""

    def end(*_: object) -> None:
        with open(os.path.join(folder, "cleaned up"), "w"):
            pass
        if then == "exit":
            sys.exit(0)
        if then == "raise":
            raise RuntimeError("terminated")
        ended.append(True)

    ended: list[bool] = []
    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # see `TestSpawned`
    report_and_say_so(0.5)
    while not ended:
        time.sleep(0.01)
    return 7.0


def print_much(x: float) -> float:
    """Print 5 MiB, and as much in a subprocess, to each of the two streams."""
    print("the first line")
    print("the first complaint", file=sys.stderr)
    line = "x" * 99 + "\n"
    for _ in range(5 << 10):
        sys.stdout.write(line * 10)
        sys.stderr.write(line * 10)
    command = "yes | head -c 5M; yes | head -c 5M >&2"
    subprocess.run(command, shell=True, check=True)
    print("the last line", flush=True)
    print("the last complaint", file=sys.stderr)
    return x


def flood(what: str) -> float:
    """Fill the pipe to the supervisor as fast as possible, for ever."""
    if what == "output":
        subprocess.Popen("yes | head -c 200M; yes >&2", shell=True)
        hang("sleeping")
    if what == "reports":
        while True:
            experiment.report(step=1, loss=0.5)
    pipes = _pipes()
    for pipe in pipes:
        os.set_blocking(pipe, True)
    while True:
        for pipe in pipes:
            os.write(pipe, bytes(1 << 16))


def forge(messages: list[str]) -> float:
    """Write messages as if the framework had sent them, then hang."""
    for pipe in _pipes():
        os.set_blocking(pipe, True)
        for message in messages:
            data = message.encode()
            data = len(data).to_bytes(4, "big") + data
            while data:
                data = data[os.write(pipe, data) :]
    experiment.report(step=5, loss=0.5)
    os._exit(0)


def _pipes() -> list[int]:
    """Return the pipes that can be written to, stdout and stderr left out."""
    found = []
    for descriptor in range(3, 50):
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode) and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_WRONLY:
                found.append(descriptor)
        except OSError:
            continue
    return found


def close_output(x: float) -> float:
    print("before")
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return x


def speak_and_die(x: float) -> float:
    print("printed shortly before")
    os.system("echo native shortly before")
    print("complained shortly before", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def fit_for_long(x: float) -> dict[str, float]:
    """Fit a model with the callbacks of the framework."""
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    history = model.fit(
        np.ones((4, 2)),
        np.ones((4, 1)) * x,
        epochs=2_000,
        verbose=0,
        callbacks=experiment.keras_callbacks(),
    )
    return {"loss": history.history["loss"][-1], "epochs": len(history.history["loss"])}


def crash_when_stopped(x: float) -> float:
    """Report until it is stopped, and die of something else then."""
    try:
        return report_for_ever(x)
    finally:
        os.kill(os.getpid(), signal.SIGSEGV)


AFTER_THE_STOP = 1_000_000
"""The first step that `hear_and_continue` reports after it was stopped."""


def hear_and_continue(x: float, folder: str) -> float:
    """Report until it is stopped, and go on then until there is a file `continue`."""
    try:
        return report_for_ever(x)
    except experiment.TrialStopped:
        for step in itertools.count(AFTER_THE_STOP):
            experiment.report(step=step, loss=0.0)
            if pathlib.Path(folder, "continue").exists():
                break
            time.sleep(0.001)
        return 7.0
