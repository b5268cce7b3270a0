"""Starting threads."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def start_thread(thread: Thread) -> None:
    """Start a thread.

    Raises:
        BlockingIOError: This host is at its limit of processes, which counts threads.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise BlockingIOError(errno.EAGAIN, str(error)) from None


def in_thread(step: Callable[[], T], name: str) -> Future[T]:
    """Run a step in a daemon thread of this name; return its future, which cannot be cancelled.

    Not in a `ThreadPoolExecutor`: the process waits for its threads at exit.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(step())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return done
