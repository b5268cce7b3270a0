"""How soon two workers have trained their first step: ours, a script by itself, a barrier stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

import experiment
from tests.benchmarks.sessions import session
from tests.hdfs import free_ports

_WORKERS = 2


def first_step(number: int = 0) -> float:
    """Train one step in the strategy that is entered, and return the time."""
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            with tf.GradientTape() as tape:
                loss = weight * weight
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, weight))
            weight.assign_sub(0.1 * gradient)
            return loss

        return strategy.run(replica)

    step()
    return time.time()


def first_step_by_itself() -> float:
    """Train one step as `TF_CONFIG` says, without this package, and return the time."""
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        return first_step()


def of_a_script() -> float:
    """Return the seconds from the start of two processes to the first step of both."""
    program = (
        "from tests.benchmarks.training_starts import first_step_by_itself\n"
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
