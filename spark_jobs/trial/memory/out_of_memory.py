"""Detection of out-of-memory failures, and the memory limits of a trial.

Frameworks are recognised by the names of their classes and by their messages, without importing
them.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

from spark_jobs.storage.local_files import open_regular
from spark_jobs.trial.memory.control_groups import memory_groups, memory_limits

_RESERVE = 16 << 20  # bytes of address space, which stay empty
_LAST_WORDS = 1 << 14  # last bytes of stderr, where native code says why it aborts

_ON_GPU = {"cupy.OutOfMemoryError", "torch.OutOfMemoryError"}
_ANYWHERE = {
    "jax.JaxRuntimeError",
    "jaxlib.XlaRuntimeError",
    "tensorflow.InternalError",
    "tensorflow.ResourceExhaustedError",  # also raised for a full disk
}
_SAYS_MEMORY = re.compile(r"\bOOM\b|out.of.memory|allocat", re.IGNORECASE)
_SAYS_GPU = re.compile(r"\bGPU\b|CUDA|ROCm", re.IGNORECASE)
_OF_TORCH = re.compile(r"(DefaultCPUAllocator: )|CUDA error: out of memory")
_OF_NATIVE_CODE = re.compile(rb"std::bad_alloc|memory allocation of \d+ bytes failed")
# A thread needs address space for its stack: by pthreads, TensorFlow, LLVM, OpenBLAS; by C++.
_OF_THREADS = re.compile(
    rb"pthread_create(\(\))? failed|can't start new thread"
    rb"|std::system_error'?\s+what\(\):\s+Resource temporarily unavailable"
)
_OF_PYTHON_THREADS = "can't start new thread"
# What CPython says when it loses a MemoryError, for which not even a traceback fits (seen in 3.11).
_OF_LOST_ERROR = "error return without exception set"
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def restored(error: BaseException) -> BaseException:
    """Return an exception, or the MemoryError that CPython has lost before it raised this one."""
    if isinstance(error, SystemError) and _said(error) == _OF_LOST_ERROR:
        return MemoryError().with_traceback(error.__traceback__)
    return error


def kind_of(error: BaseException) -> Literal["memory", "gpu memory"] | None:
    """Return which memory was exhausted, by an exception; None for any other error."""
    classes = type(error).__mro__
    names = {f"{str(base.__module__).partition('.')[0]}.{base.__name__}" for base in classes}
    if names & _ON_GPU:
        return "gpu memory"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return "memory" if error.errno == errno.ENOMEM else None
    said = _said(error)
    if names & _ANYWHERE and _SAYS_MEMORY.search(said):
        return "gpu memory" if _on_gpu(said, names) else "memory"
    if isinstance(error, RuntimeError) and (found := _OF_TORCH.search(said)):
        return "memory" if found[1] else "gpu memory"
    lacks_thread = isinstance(error, RuntimeError) and said == _OF_PYTHON_THREADS
    return "memory" if lacks_thread and is_limited() else None


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _on_gpu(said: str, names: set[str]) -> bool:
    if "device:CPU" in said:  # transfers to a GPU need memory of the host, too
        return False
    if _SAYS_GPU.search(said):
        return True
    with contextlib.suppress(Exception):  # XLA names no device, so ask for the framework's default
        if names & {"jax.JaxRuntimeError", "jaxlib.XlaRuntimeError"}:
            return bool(sys.modules["jax"].default_backend() == "gpu")
        return bool(sys.modules["tensorflow"].config.list_logical_devices("GPU"))
    return False


@contextlib.contextmanager
def reserve() -> Iterator[None]:
    """Reserve address space so that an out-of-memory failure can still be reported."""
    with mmap.mmap(-1, _RESERVE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        yield


def be_first_to_be_killed() -> None:
    """Let the kernel kill this process and its children, not the executor, if memory is short."""
    with contextlib.suppress(OSError):  # no such file in some containers
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(file, b"1000")
        finally:
            os.close(file)


def limits(pid: int = 0) -> str:
    """Return the memory limits of a process, for people.

    Args:
        pid: A process of this one's control group that was not reaped yet; 0 for this one.
    """
    found = [f"{_gib(size)} of {what}" for what, size in _own_limits(pid).items()]
    host = psutil.virtual_memory().total
    allowed = min([host, *memory_limits()])
    if allowed < host:
        found.append(f"{_gib(allowed)} of memory (control group)")
    return "the limit is " + " and ".join(found) if found else f"the host has {_gib(host)}"


def is_limited(pid: int = 0) -> bool:
    """Return whether the address space of a process, as for `limits`, is limited."""
    return bool(_own_limits(pid))


def _own_limits(pid: int) -> dict[str, int]:
    """Return the bytes of each limit that a process has, which may not be its control group's."""
    found = {}
    for name, what in (("RLIMIT_AS", "address space"), ("RLIMIT_DATA", "data")):
        with contextlib.suppress(OSError):  # it may run as another user by now
            soft, _ = resource.prlimit(pid, getattr(resource, name))
            if soft != resource.RLIM_INFINITY:
                found[f"{what} ({name})"] = soft
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"


def oom_kills_file() -> Path | None:
    """Return the file with the number of processes that the kernel has killed for memory.

    It is that of this process' control group; None if there is none.
    """
    names = ("memory.events", "memory.oom_control")
    files = (folder / name for folder in memory_groups() for name in names)
    return next((file for file in files if os.access(file, os.R_OK)), None)


def oom_kills(file: Path | None) -> int:
    """Return the number in the file that `oom_kills_file` found."""
    with contextlib.suppress(OSError):
        return 0 if file is None else oom_kills_in(file.read_text())
    return 0


def oom_kills_in(text: str) -> int:
    """Return the count in `memory.events` (control groups v2) or `memory.oom_control` (v1).

    0 if it is missing, as in kernels before 4.13.
    """
    found = _OOM_KILLS.search(text)
    return int(found[1]) if found else 0


def ended_by_memory(code: int, complaints: Path, *, kills: int, limited: bool) -> bool:
    """Return whether a process without an outcome ended for lack of memory.

    Args:
        code: Its exit code, or minus the number of a signal.
        complaints: Its standard error.
        kills: Processes of its control group that the kernel has killed for memory meanwhile.
        limited: Whether its address space was limited (`is_limited`).
    """
    if code == -signal.SIGABRT:
        with contextlib.suppress(OSError), open_regular(complaints) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
            return says_memory(file.read(), limited=limited)
    return code == -signal.SIGKILL and kills > 0


def says_memory(last_words: bytes, *, limited: bool) -> bool:
    """Return whether a process that has aborted said that it ran out of memory.

    Args:
        last_words: The end of its standard error.
        limited: Whether its address space was limited. Then a thread that could not be started had
            no room for its stack; else there were too many threads or processes.
    """
    if limited and _OF_THREADS.search(last_words):
        return True
    return _OF_NATIVE_CODE.search(last_words) is not None
