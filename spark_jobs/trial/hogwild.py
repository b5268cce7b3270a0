"""Threads of one trial that train the same variables without locks."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from search.checks import check_integer
from search.errors import InvalidArgument, shown
from spark_jobs.trial import context

T = TypeVar("T")

_END = object()


def hogwild(step: Callable[[T], Any], data: Iterable[T], *, threads: int | None = None) -> None:
    """Call a training step for each batch of the data, in several threads at once.

    The threads share the model: each reads the variables, computes gradients, and applies them,
    while the others do the same, without a lock (F. Niu, B. Recht et al.: Hogwild!, NIPS 2011,
    arXiv:1106.5730). Steps that overlap see older weights and may overwrite each other's updates,
    which costs little if an update is small. It pays where a step is too small to use all cores,
    and most of its time is in operations that release Python's lock, as TensorFlow's do: the time
    that Python takes to start them limits the speed, whatever the number of threads. `model.fit` is
    not safe in threads: write the step as a `tf.function` that is called once, or whose optimizer
    is built, before.

    The threads run in the trial's context, so `experiment.report(step=...)` works in them; the
    scope of a strategy is not theirs.

    Args:
        step: Called with a batch; it trains the shared variables.
        data: The batches: a list, a generator, a `tf.data.Dataset`. One thread at a time takes the
            next one. For several epochs, repeat them.
        threads: The number of threads. Default: the cores of the slot (`spark.task.cpus`); outside
            a trial, those that this process may use.

    Returns:
        None, when each batch was used once.

    Raises:
        InvalidArgument: An argument is invalid.
        BaseException: What the first step that failed, or the data, raised; the other threads end
            after their step.
    """
    if not callable(step):
        raise InvalidArgument("step", "a function of a batch", shown(step))
    if not isinstance(data, Iterable):
        raise InvalidArgument("data", "an iterable of batches", shown(data))
    if threads is None:
        threads = _cores()
    check_integer("threads", threads, 1)
    batches, turn, over = iter(data), threading.Lock(), threading.Event()

    def work() -> None:
        try:
            while not over.is_set():
                with turn:
                    batch: Any = next(batches, _END)
                if batch is _END:
                    return
                step(batch)
        except BaseException:
            over.set()
            raise

    with ThreadPoolExecutor(threads, "hogwild") as pool:
        running = [pool.submit(contextvars.copy_context().run, work) for _ in range(threads)]
        try:
            for done in as_completed(running):
                done.result()
        finally:
            over.set()  # also if this thread is interrupted


def _cores() -> int:
    trial = context.current()
    return len(os.sched_getaffinity(0)) if trial is None else trial.cores
