"""How soon two workers have trained their first step: ours, a script by itself, a barrier stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

import experiment
from tests.benchmarks.sessions import session
from tests.benchmarks.training.first_steps import first_step, first_step_by_itself
from tests.servers.hdfs import free_ports

_WORKERS = 2


def of_a_script() -> float:
    """Return the seconds from the start of two processes to the first step of both."""
    program = (
        "from tests.benchmarks.training.first_steps import first_step_by_itself\n"
        "print(first_step_by_itself())"
    )
    began = time.time()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | {"TF_CONFIG": config},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for config in _configs()
    ]
    printed = [process.communicate()[0].split() for process in processes]
    return max(float(words[-1]) for words in printed) - began


def _configs() -> list[str]:
    servers = [f"127.0.0.1:{port}" for port in free_ports(_WORKERS)]
    tasks = ({"type": "worker", "index": rank} for rank in range(_WORKERS))
    return [json.dumps({"cluster": {"worker": servers}, "task": task}) for task in tasks]


def of_a_barrier_stage(spark: SparkSession) -> float:
    """Return the seconds from the call of a barrier stage to the first step of both tasks."""
    configs = _configs()

    def train(_: Iterator[int]) -> Iterator[float]:
        context = BarrierTaskContext.get()
        os.environ["TF_CONFIG"] = configs[context.partitionId()]
        context.barrier()
        yield first_step_by_itself()

    began = time.time()
    tasks = spark.sparkContext.parallelize(range(_WORKERS), _WORKERS)
    return max(tasks.barrier().mapPartitions(train).collect()) - began


def of_ours(spark: SparkSession) -> float:
    """Return the seconds from the end of a search's first trial to the first step of its second."""
    with tempfile.TemporaryDirectory() as folder:
        result = experiment.launch(
            spark,
            first_step,
            {"number": [0, 1]},
            logdir=folder,
            workers_per_trial=_WORKERS,
            strategy=experiment.Mirrored(unprotected=True),
            preload=("tensorflow", "keras"),
            verbose=0,
        )
    ended, stepped = (trial.value for trial in result.trials)
    return stepped - ended


def starts() -> tuple[float, float, float]:
    """Return the seconds of ours, of the second execution of the script, and of a barrier stage."""
    script = [of_a_script() for _ in range(2)][-1]
    spark = session(_WORKERS)
    try:
        return of_ours(spark), script, of_a_barrier_stage(spark)
    finally:
        spark.stop()
