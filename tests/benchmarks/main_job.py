"""Speed of the main job, relative to plain Spark with one task per trial.

Prints a table of ratios. Both sides of a ratio are measured in this run, one after the other, since
absolute times mean little on a machine that is shared. Journal and TensorBoard are on throughout.
"""

from __future__ import annotations

import gc
import heapq
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession

import experiment
from tests.benchmarks import spans
from tests.benchmarks.peers.trials import take_turn
from tests.benchmarks.sessions import session

_LOADED = ("tensorflow", "keras")


def start_time(trial: int) -> float:
    """A trial that returns the time at once."""
    return time.time()


def sleep(seconds: float) -> float:
    """A trial that sleeps; returns its start time."""
    started = time.time()
    time.sleep(seconds)
    return started


def sleep_in_turn(turns: str, x: float, y: float) -> float:
    """A trial that sleeps for the next length; returns its start time."""
    return sleep(log_normal_seconds()[take_turn(turns)])


def spark_task_rate(spark: SparkSession, trials: int) -> float:
    """Return trials per second with one Spark task per trial, once warm."""
    context = spark.sparkContext
    context.parallelize(range(50), 50).map(start_time).collect()
    starts = context.parallelize(range(trials), trials).map(start_time).collect()
    return (trials - 1) / (max(starts) - min(starts))


def trial_rate(spark: SparkSession, trials: int, **settings: Any) -> float:
    """Return trials per second from the first trial's start to the last's."""
    with tempfile.TemporaryDirectory() as folder:
        result = experiment.launch(
            spark, start_time, {"trial": range(trials)}, logdir=folder, **settings
        )
    starts = [trial.value for trial in result.trials]
    return (trials - 1) / (max(starts) - min(starts))


def import_seconds() -> float:
    """Return the median time of three warm imports of TensorFlow."""
    program = (
        "import time; t = time.perf_counter(); import tensorflow, keras; "
        "print(time.perf_counter() - t)"
    )
    times = []
    for _ in range(4):
        output = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        times.append(float(output.stdout.split()[-1]))
    return statistics.median(times[1:])


def driver_bytes_per_trial(spark: SparkSession, trials: int) -> float:
    """Return the growth of the driver's Python memory per finished trial."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"logdir": folder, "isolation": "none"}
        experiment.launch(spark, start_time, {"trial": range(100)}, **settings)
        tracemalloc.start()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        result = experiment.launch(spark, start_time, {"trial": range(trials)}, **settings)
        gc.collect()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(result) == trials
    return (peak - before) / trials


def log_normal_seconds(trials: int = 60) -> list[float]:
    """Return log-normal sleeps of mean 0.5 s and sigma 1.0, always the same."""
    lengths = random.Random(1)
    return [lengths.lognormvariate(math.log(0.5) - 0.5, 1.0) for _ in range(trials)]


def best_use(seconds: list[float], slots: int) -> float:
    """Return the utilisation of slots that take the next sleep as soon as they are free."""
    free = [0.0] * slots
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return sum(seconds) / (slots * max(free))


def use_of_slots(spark: SparkSession, slots: int, **settings: Any) -> tuple[float, float]:
    """Return busy time / (slots x wall time) for sleeps of log-normal length, in a warm session.

    Twice: the wall time from the call to its return, and from the first trial's start to the last
    one's end.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments: dict[str, Any] = {"logdir": folder, "parallelism": slots, **settings}
        experiment.launch(spark, sleep, {"seconds": [0.0] * 2 * slots}, **arguments)
        called = time.time()
        result = experiment.launch(spark, sleep, {"seconds": log_normal_seconds()}, **arguments)
        returned = time.time()
    first = min(trial.value for trial in result.trials)
    last = max(trial.value + trial.seconds for trial in result.trials)
    busy = sum(trial.seconds for trial in result.trials) / slots
    return busy / (returned - called), busy / (last - first)


def use_in_evolution(spark: SparkSession, slots: int, **settings: Any) -> tuple[float, float]:
    """Return the same as `use_of_slots` for differential evolution without a barrier.

    Ten individuals and five generations of them; trials sleep for the same lengths as there.
    """
    with tempfile.TemporaryDirectory() as folder:
        turns = str(Path(folder, "turns"))
        arguments: dict[str, Any] = {"logdir": folder, "parallelism": slots, **settings}
        experiment.launch(spark, sleep, {"seconds": [0.0] * 2 * slots}, **arguments)
        bounds = {"turns": experiment.Choice([turns]), "x": [0.0, 1.0], "y": [0.0, 1.0]}
        called = time.time()
        result = experiment.evolutionary_search(
            spark, sleep_in_turn, bounds, popsize=10, generations=5, **arguments
        )
        returned = time.time()
    first = min(trial.value for trial in result.trials)
    last = max(trial.value + trial.seconds for trial in result.trials)
    busy = sum(trial.seconds for trial in result.trials) / slots
    return busy / (returned - called), busy / (last - first)


def calls_to_the_jvm(spark: SparkSession) -> int:
    """Return the calls of Py4J in a later search of two trials."""
    calls = 0
    send = GatewayClient.send_command

    def counted(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        return send(*arguments, **settings)

    with tempfile.TemporaryDirectory() as folder:
        arguments: dict[str, Any] = {"logdir": folder, "preload": ()}
        experiment.launch(spark, start_time, {"trial": range(2)}, **arguments)
        GatewayClient.send_command = counted
        try:
            experiment.launch(spark, start_time, {"trial": range(2)}, **arguments)
        finally:
            GatewayClient.send_command = send
    return calls


def first_search(spark: SparkSession, slots: int, **settings: Any) -> tuple[float, float]:
    """Return the seconds from the first call of a session to its first trial, and to its return."""
    with tempfile.TemporaryDirectory() as folder:
        called = time.time()
        result = experiment.launch(
            spark, start_time, {"trial": range(slots)}, logdir=folder, **settings
        )
        returned = time.time()
    return min(trial.value for trial in result.trials) - called, returned - called


def median_first_search(slots: int, **settings: Any) -> tuple[float, float]:
    """Return the medians of three sessions."""
    found = [
        with_session(slots, lambda spark: first_search(spark, slots, **settings)) for _ in range(3)
    ]
    starts, calls = zip(*found, strict=True)
    return statistics.median(starts), statistics.median(calls)


def with_session(slots: int, measure: Callable[[SparkSession], Any]) -> Any:
    """Run a measurement in a session of its own."""
    spark = session(slots)
    try:
        return measure(spark)
    finally:
        spark.stop()


def main() -> None:
    """Measure everything and print the table."""

    def rates(spark: SparkSession) -> tuple[float, float, float]:
        task = spark_task_rate(spark, 400)
        none = trial_rate(spark, 4_000, isolation="none")
        process = trial_rate(spark, 400, preload=_LOADED)
        task = statistics.mean([task, spark_task_rate(spark, 400)])
        return task, none, process

    task, none, process = with_session(2, rates)
    alone = with_session(1, lambda spark: trial_rate(spark, 200, preload=_LOADED))
    imported = import_seconds()
    grown = with_session(2, lambda spark: driver_bytes_per_trial(spark, 10_000))
    used, used_in_process, evolution, evolution_in_process = with_session(
        4,
        lambda spark: [
            use(spark, 4, **settings)
            for use in (use_of_slots, use_in_evolution)
            for settings in ({"isolation": "none"}, {"preload": _LOADED})
        ],
    )
    calls = with_session(2, calls_to_the_jvm)
    bound = best_use(log_normal_seconds(), 4)
    rows = [
        (
            "trials a second, `isolation='none'` / one Spark task per trial, 2 slots",
            f"{none / task:.1f}",
            "50",
        ),
        (
            "trials a second, `isolation='process'` / one Spark task per trial, 2 slots",
            f"{process / task:.1f}",
            "4",
        ),
        (
            "an empty trial, in a process of its own / importing TensorFlow",
            f"{1 / alone / imported:.3f}",
            "< 0.1",
        ),
        ("driver memory per trial, 10,000 trials", f"{grown / 1000:.2f} kB", "< 1 kB"),
        (
            f"use of 4 slots, 60 log-normal sleeps (exact bound of this list {bound:.2f}), "
            "`isolation='none'`, from the call to its return",
            f"{used[0]:.2f}",
            "0.92",
        ),
        ("the same from the first trial's start", f"{used[1]:.2f}", "0.94"),
        (
            "the same with TensorFlow in a process each, from the call to its return",
            f"{used_in_process[0]:.2f}",
            "0.90",
        ),
        ("the same from the first trial's start", f"{used_in_process[1]:.2f}", "0.94"),
        (
            "differential evolution of as many sleeps without a barrier, `isolation='none'`, from "
            "the call to its return; from the first trial's start",
            f"{evolution[0]:.2f}; {evolution[1]:.2f}",
            "0.90; 0.92",
        ),
        (
            "the same with TensorFlow in a process each",
            f"{evolution_in_process[0]:.2f}; {evolution_in_process[1]:.2f}",
            "0.88; 0.92",
        ),
        ("calls to the JVM in a later search of two trials", str(calls), ""),
    ]
    one, _ = median_first_search(1, preload=_LOADED)
    eight, _ = median_first_search(8, preload=_LOADED)
    _, light = median_first_search(2)
    rows += [
        ("start of a session's first search, 8 slots / 1 slot", f"{eight / one:.2f}", "1.3"),
        ("first search of 2 trials, nothing to preload", f"{light:.1f} s", "2.5 s"),
    ]
    first, later = spans.measure()
    print("\n| measure | value | bar |\n| --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(
        f"\nIn milliseconds per trial: {1000 / task:.0f} as Spark tasks, {1000 / none:.2f} without "
        f"and {1000 / process:.1f} with a process each. Import of TensorFlow: {imported:.1f} s."
    )
    print(f"\n{spans.table('first search of a session, TensorFlow preloaded', first)}")
    print(f"\n{spans.table('later searches, medians', later)}")


if __name__ == "__main__":
    main()
