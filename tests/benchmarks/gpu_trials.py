"""Trials per hour on one GPU: packed, compared with one process that runs them in sequence.

Trials train a small convolutional network on random images, with JAX or PyTorch. Each side starts
its processes anew and imports the framework in them; what that takes counts. The slots are
processes of this program: a machine with a GPU needs no Spark for it. On a machine without GPU,
`--cpu` shows that the program runs; its figures say nothing about GPUs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from spark_jobs.slot.gpus.nvml import GIB, Gpus
from tests.gpu.slot_processes import run_trials
from tests.gpu.training import Device, NothingToTrainOn, framework_on, train

PACKED = (1, 2, 4, 8)


def trials(framework: str, device: Device, count: int, steps: int) -> list[dict[str, Any]]:
    """Return the arguments of a number of trials, which differ in their learning rate."""
    batch = 256 if device == "gpu" else 8
    common = {"framework": framework, "device": device, "steps": steps, "batch": batch}
    return [common | {"learning_rate": 0.001 * (1 + number)} for number in range(count)]


def in_sequence(todo: list[dict[str, Any]]) -> None:
    """Run trials one after the other in a fresh process, as a plain loop does."""
    process = multiprocessing.get_context("spawn").Process(target=_loop, args=(todo,))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the loop ended with {process.exitcode}")


def _loop(todo: list[dict[str, Any]]) -> None:
    for params in todo:
        train(**params)


def packed(todo: list[dict[str, Any]], slots: int, device: Device) -> None:
    """Run trials in processes of their own, several at once on one GPU."""
    outcomes = run_trials(
        todo,
        slots=slots,
        cores=os.cpu_count() or 1,
        preload=[todo[0]["framework"]],
        gpus=["0"] if device == "gpu" else [],
    )
    for outcome in outcomes:
        if outcome.error is not None:
            raise RuntimeError(f"trial {outcome.trial}: {outcome.error.message}")


def an_hour(count: int, run: Callable[[], None]) -> float:
    """Return the trials per hour of a run."""
    started = time.perf_counter()
    run()
    return 3600 * count / (time.perf_counter() - started)


def main(arguments: list[str] | None = None) -> int:
    """Measure everything and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="trials an hour on one GPU, packed")
    parser.add_argument("--cpu", action="store_true", help="run without a GPU, as a check")
    parser.add_argument("--trials", type=int, default=32, help="trials per row")
    parser.add_argument("--steps", type=int, default=500, help="training steps per trial")
    parser.add_argument("--packed", type=int, nargs="+", default=PACKED, help="trials at once")
    options = parser.parse_args(arguments)
    device: Device = "cpu" if options.cpu else "gpu"
    try:
        framework = framework_on(device)
    except NothingToTrainOn as problem:
        print(f"{problem}: there is nothing to measure here")
        return 1
    todo = trials(framework, device, options.trials, options.steps)
    base = an_hour(len(todo), lambda: in_sequence(todo))
    rows = [("one process, in sequence", base)]
    for slots in options.packed:
        rate = an_hour(len(todo), lambda: packed(todo, slots, device))  # noqa: B023  # called here
        rows.append((f"a process per trial, {slots} at once", rate))
    with Gpus(["0"]) as gpus:
        memory = f", {gpus.use()['0'].total / GIB:.0f} GiB" if gpus.known else ""
    print(f"\n{len(todo)} trials of {options.steps} steps, {framework} on one {device}{memory}")
    print("\n| trials | an hour | against in sequence |\n| --- | --- | --- |")
    for name, rate in rows:
        print(f"| {name} | {rate:,.0f} | {rate / base:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
