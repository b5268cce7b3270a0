"""How the tests start Java: small, and without what pays only in programs that run for long.

`python -m tests.jvm`, which `.ci/install` calls, keeps Spark's classes as they are once they were
loaded and checked: half of the work that the start of a driver or an executor is.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

_ARCHIVE = Path(sys.prefix, "spark.jsa")

OPTIONS = ("-Xms16m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""For any JVM. The second compiler takes half of the time that a start takes."""

# Which classes are not in the archive is no news, nor is that another class path needs others.
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")

SPARK_OPTIONS = shlex.join((*OPTIONS, f"-XX:SharedArchiveFile={_ARCHIVE}", *_SILENT))
"""For a driver or an executor, as Spark reads them."""


def main() -> None:
    """Write the archive: the classes of a driver with an executor in its JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    new = _ARCHIVE.with_suffix(".new")
    archiving = (*OPTIONS, f"-XX:ArchiveClassesAtExit={new}", *_SILENT)
    os.environ["SPARK_SUBMIT_OPTS"] = shlex.join(archiving)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.parallelize(range(2), 2).map(str).collect()
    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    spark.stop()
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    new.replace(_ARCHIVE)


if __name__ == "__main__":
    main()
