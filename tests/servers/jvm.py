"""Java settings of the tests: little memory, and no optimisations for long-running programs.

`python -m tests.servers.jvm`, which `.ci/install` calls, keeps Spark's classes as they are once
they were loaded and checked: half of the work that the start of a driver or an executor is. The
same for the short program with which Spark's scripts put the command of a JVM together.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

_ARCHIVE = Path(sys.prefix, "spark.jsa")
_OF_LAUNCHER = Path(sys.prefix, "spark-launcher.jsa")

OPTIONS = ("-Xms16m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options of any JVM. The second compiler takes half of the time of a start."""

# No warnings about classes missing in the archive, or about other class paths.
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def reading(archive: Path) -> tuple[str, ...]:
    """Return the options of a JVM that takes classes from an archive, where there is one."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT)


def writing(archive: Path) -> tuple[str, ...]:
    """Return the options of a JVM that writes its classes to an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


SPARK_OPTIONS = shlex.join((*OPTIONS, *reading(_ARCHIVE)))
"""The options of a driver or an executor, in Spark's form."""

# The script divides them at blanks, so an archive in a folder with blanks has no name here.
_NAMED = not any(map(str.isspace, str(_OF_LAUNCHER)))
LAUNCHER_OPTIONS = " ".join((*OPTIONS, *(reading(_OF_LAUNCHER) if _NAMED else ())))
"""The options of the program that Spark's scripts begin with, as `SPARK_LAUNCHER_OPTS`."""


def main() -> None:
    """Write the archives: the classes of a driver with an executor in its JVM, and of a script."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    new, of_launcher = _ARCHIVE.with_suffix(".new"), _OF_LAUNCHER.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = shlex.join((*OPTIONS, *writing(new)))
    if _NAMED:
        os.environ["SPARK_LAUNCHER_OPTS"] = " ".join((*OPTIONS, *writing(of_launcher)))
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
    if _NAMED:
        of_launcher.replace(_OF_LAUNCHER)


if __name__ == "__main__":
    main()
