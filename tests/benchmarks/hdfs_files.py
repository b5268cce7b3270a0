"""Speed of reading and writing HDFS, relative to floors of the same run: `make bench-hdfs`."""

from __future__ import annotations

import functools
import getpass
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hdfs as hdfs_package
from pyspark.sql import SparkSession

import experiment
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.trial.context import DataSettings, TrialContext, entered
from tests.servers.hdfs import Hdfs

_SIZE = 200 << 20
_ROUNDS = 7
_TRIALS = 8
_SLOTS = 2
_PAIRS = 4


def main() -> None:
    """Start an HDFS, read from it, and print the table of docs/benchmarks.md."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as store,
        # Copies are written to memory: the disk's speed is not measured.
        tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as folder,
        Hdfs(Path(store, "hdfs")) as hdfs,
    ):
        client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=60)
        client.write("/large", data=random.Random(0).randbytes(_SIZE), replication=2)
        rows = [
            ("`local_copy` of 200 MB / the package `hdfs`", _copy(hdfs, client, folder), "0.9"),
            ("an epoch from the copy / the file read directly", _epoch(hdfs, folder), "0.95"),
        ]
        spark = _session(hdfs, folder)
        rows += [
            ("bytes read by 8 trials of a host / the data set", _trials(spark, hdfs, folder), "1"),
            (
                "a training step, its logs uploaded to HDFS / kept on this host",
                _carry(spark, folder),
                "1.02",
            ),
            *_calls(spark),
        ]
        spark.stop()
        print("| measure | value | bar |\n| --- | --- | --- |")
        for measure, value, bar in rows:
            print(f"| {measure} | {value:.2f} | {bar} |")
        client._session.close()


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _settings(hdfs: Hdfs, cache: str) -> DataSettings:
    return DataSettings(HadoopSettings(hdfs.settings(), getpass.getuser()), CacheSettings(cache))


def _copy(hdfs: Hdfs, client: hdfs_package.Client, folder: str) -> float:
    """Return the median ratio of neighbouring runs, since the speed of a shared machine varies."""
    ratios = []
    for number in range(_ROUNDS):
        settings = _settings(hdfs, f"{folder}/cache-{number}")
        seconds = {}
        # In turns, since the second writer waits for the disk of the first.
        for who in ("raw", "ours") if number % 2 else ("ours", "raw"):
            if who == "raw":
                call = functools.partial(client.download, "/large", f"{folder}/raw-{number}")
            else:
                call = functools.partial(experiment.data.local_copy, f"{hdfs.uri}/large")
            with entered(TrialContext(params={}, folder=Path(folder), data=settings)):
                seconds[who] = _seconds(call)
        ratios.append(seconds["raw"] / seconds["ours"])
    return statistics.median(ratios)


def _epoch(hdfs: Hdfs, folder: str) -> float:
    settings, ratios = _settings(hdfs, f"{folder}/cache-0"), []

    def read(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass

    with entered(TrialContext(params={}, folder=Path(folder), data=settings)):
        (copy,) = experiment.data.local_copy(f"{hdfs.uri}/large")
        for _ in range(_ROUNDS):
            direct = _seconds(lambda: read(Path(folder, "raw-0")))
            ratios.append(direct / _seconds(lambda: read(copy)))
    return statistics.median(ratios)


def _session(hdfs: Hdfs, folder: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.authenticate", "true")
    for name, value in hdfs.settings().items():
        builder = builder.config(f"spark.hadoop.{name}", value)
    spark = builder.config("spark.experiment.cache.folder", f"{folder}/cache-trials").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _trials(spark: SparkSession, hdfs: Hdfs, folder: str) -> float:
    def train(trial: int) -> float:
        import experiment

        return float(experiment.data.local_copy("hdfs:///large")[0].stat().st_size)

    before = sum(hdfs.bytes_read(number) for number in range(2))
    experiment.launch(
        spark, train, {"trial": range(_TRIALS)}, logdir=f"{folder}/runs", preload=(), verbose=0
    )
    return (sum(hdfs.bytes_read(number) for number in range(2)) - before) / _SIZE


def _calls(spark: SparkSession) -> list[tuple[str, float, str]]:
    """Return the seconds that the caller of an executor waits for HDFS."""
    with experiment.executor(spark, logdir="hdfs:///runs") as pool:
        pool.submit(abs, 1).result()  # its process has imported its modules
        started = time.perf_counter()
        values = pool.map(abs, range(60))
        made = time.perf_counter() - started
        list(values)
        started = time.perf_counter()
        next(pool.map(abs, range(500)))
        first = time.perf_counter() - started
        pool.shutdown(cancel_futures=True)
    return [
        ("seconds until `map` of 60 calls of an executor returns, its run on HDFS", made, "0.1"),
        ("seconds until the first of 500 calls has its result", first, "5"),
    ]


def _carry(spark: SparkSession, folder: str) -> float:
    """Return the median ratio of neighbouring runs, with two slots at a time.

    The servers of this HDFS run on the same cores, so their work counts here, too.
    """

    def train(trial: int) -> float:
        import time

        import numpy as np

        import experiment

        matrix, seconds = np.random.default_rng(trial).random((256, 256)), []
        end = time.monotonic() + 20
        while time.monotonic() < end:
            started = time.perf_counter()
            for _ in range(8):
                matrix = matrix @ matrix / np.linalg.norm(matrix)
            print("step", len(seconds), "done")
            experiment.report(norm=float(matrix[0, 0]))
            seconds.append(time.perf_counter() - started)
        return float(np.mean(seconds))

    def step(logdir: str) -> float:
        result = experiment.launch(
            spark, train, {"trial": range(_SLOTS)}, logdir=logdir, preload=(), verbose=0
        )
        return statistics.mean(trial.value for trial in result.trials)

    ratios = []
    for number in range(_PAIRS):
        uploaded, kept = lambda: step("hdfs:///runs"), lambda: step(f"{folder}/kept")
        if number % 2:
            ratios.append(uploaded() / kept())
        else:
            ratios.append(1 / (kept() / uploaded()))
    return statistics.median(ratios)


if __name__ == "__main__":
    main()
