"""The cost of reports of running trials, and the gain of stopping them: `make bench-live`.

Absolute times mean little on a machine that is shared; those of the first table are there for
their order of magnitude.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

import experiment
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths

_REPORTS = 10_000
_STOPPED = 40
_TIMES = 5
_SEEDS = 10
_SAMPLES = 16
_EPOCHS = 9


def reporting(trial: int, reports: int) -> dict[str, float]:
    """Report as fast as possible, at most 2,000 times a second; return the time per call."""
    seconds = []
    for step in range(reports):
        started = time.perf_counter()
        experiment.report(step=step, loss=1.0 / (step + 1), accuracy=0.5)
        seconds.append(time.perf_counter() - started)
        time.sleep(0.0005)
        if step % 100 == 0:
            print("step", step)
    ordered = sorted(seconds)
    return {
        "accuracy": float(trial),
        "p99": ordered[len(ordered) * 99 // 100],
        "rate": reports / sum(0.0005 + s for s in seconds),
    }


def hopeless(trial: int, folder: str) -> float:
    """Record the start, and report below the threshold until the trial is stopped."""
    with open(os.path.join(folder, f"{os.getppid()}"), "a") as notes:
        notes.write(f"{time.time()} begun\n")
        experiment.report(step=0, value=0.0)
        notes.write(f"{time.time()} reported\n")
        notes.flush()
        while True:
            time.sleep(0.001)
            experiment.report(step=1, value=0.0)


def writing(to: str, again: int) -> float:
    """Write 1 GiB to a file of the trial or to stdout; return the seconds it took."""
    path = os.path.join(experiment.logdir(), "written")
    piece = bytes(1 << 20)
    with open(path if to == "file" else "/dev/stdout", "wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(1 << 10):
            left = memoryview(piece)
            while left:
                left = left[file.write(left) :]
        seconds = time.perf_counter() - started
    if to == "file":
        os.remove(path)
    return seconds


def digits(learning_rate: float, units: int) -> float:
    """Train a small network on the handwritten digits."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(
        x,
        y,
        epochs=_EPOCHS,
        validation_data=(x_val, y_val),
        callbacks=experiment.keras_callbacks(),
        verbose=0,
    )
    return float(history.history["val_accuracy"][-1])


def main() -> None:
    """Print the tables of docs/benchmarks.md."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.authenticate", "true").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        print("| measure | value | bar |\n| --- | --- | --- |")
        rows = [*_reports(spark, folder), _next_trial(spark, folder), _output(spark, folder)]
        for measure, value, bar in rows:
            print(f"| {measure} | {value} | {bar} |")
        print()
        _halving(spark, folder)
    spark.stop()


def _reports(spark: SparkSession, folder: str) -> list[tuple[str, str, str]]:
    """Measure two slots that report at once, with a stopping rule."""
    result = experiment.launch(
        spark,
        reporting,
        {"trial": [0, 1], "reports": [_REPORTS]},
        optimization_key="accuracy",
        stopping=experiment.Threshold(lower=-1),
        preload=(),
        logdir=folder,
        verbose=0,
    )
    heard = sum(
        len(record["reports"])
        for record in read_journal(RunPaths(_path(result)).journal)
        if record["event"] == "reported"
    )
    p99 = max(trial.metrics["p99"] for trial in result.trials)
    rate = sum(trial.metrics["rate"] for trial in result.trials)
    return [
        ("time of a call of `report()`, 99th percentile", f"{p99 * 1000:.2f} ms", "1 ms"),
        ("reports a second from 2 slots", f"{rate:,.0f}", "1,000"),
        ("dropped reports", f"{2 * _REPORTS - heard}", "0"),
    ]


def _output(spark: SparkSession, folder: str) -> tuple[str, str, str]:
    """Measure how much longer a trial takes to print 1 GiB than to write it to a file."""
    result = experiment.launch(
        spark,
        writing,
        {"again": range(_TIMES), "to": ["output", "file"]},
        parallelism=1,
        preload=(),
        logdir=folder,
        verbose=0,
    )
    output, file = (
        statistics.median(trial.value for trial in result.trials if trial.params["to"] == to)
        for to in ("output", "file")
    )
    value = f"{output / file:.1f}"
    return "time to print 1 GiB / to write it to a file", value, "2"


def _next_trial(spark: SparkSession, folder: str) -> tuple[str, str, str]:
    """Measure the time from a report that stops a trial to the start of the slot's next trial."""
    notes = os.path.join(folder, "notes")
    os.mkdir(notes)
    experiment.launch(
        spark,
        hopeless,
        {"trial": range(_STOPPED), "folder": [notes]},
        stopping=experiment.Threshold(lower=1.0),
        preload=(),
        logdir=folder,
        verbose=0,
    )
    pauses = []
    for slot in os.listdir(notes):
        with open(os.path.join(notes, slot)) as file:
            times = [(float(when), what) for when, what in map(str.split, file)]
        for (reported, what), (begun, _) in itertools.pairwise(times):
            if what == "reported":
                pauses.append(begun - reported)
    median = statistics.median(pauses)
    measure = "time from the report that stops a trial to the slot's next trial"
    return measure, f"{median:.2f} s", "1 s"


def _halving(spark: SparkSession, folder: str) -> None:
    print("| seed | epochs trained | with ASHA | best accuracy | with ASHA |")
    print("| --- | --- | --- | --- | --- |")
    columns = []
    for seed in range(_SEEDS):
        row: list[float] = []
        for stopping in (None, experiment.SuccessiveHalving(reduction_factor=3)):
            result = experiment.random_search(
                spark,
                digits,
                {"learning_rate": [0.1, 0.0001], "units": [4, 64]},
                samples=_SAMPLES,
                seed=seed,
                optimization_key="val_accuracy",
                stopping=stopping,
                logdir=folder,
                verbose=0,
            )
            best = result.best
            assert best is not None, result.failed
            row += [sum(_epochs(trial) for trial in result.trials), best.value or 0.0]
        columns.append(row)
        print(f"| {seed} | {row[0]:.0f} | {row[2]:.0f} | {row[1]:.3f} | {row[3]:.3f} |")
    mean = [statistics.mean(column) for column in zip(*columns, strict=True)]
    print(f"| mean | {mean[0]:.0f} | {mean[2]:.0f} | {mean[1]:.3f} | {mean[3]:.3f} |")


def _epochs(trial: experiment.TrialResult) -> int:
    """Return the number of epochs of a trial, from its outcome."""
    import json

    with open(os.path.join(trial.logdir, "outcome.json")) as file:
        step = json.load(file)["step"]
    return 0 if step is None else int(step) + 1


def _path(result: experiment.Result) -> Any:
    from pathlib import Path

    return Path(result.logdir)


if __name__ == "__main__":
    main()
