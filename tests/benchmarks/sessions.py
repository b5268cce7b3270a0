"""The Spark sessions of benchmarks."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def session(slots: int) -> SparkSession:
    """Return a local session with `slots` task slots."""
    spark = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.authenticate", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.pythonExec = sys.executable
    return spark
