"""The settings of Spark that are ours, each with its default and its meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSetting:
    """A setting of Spark that this framework reads.

    Attributes:
        name: Its name, which begins with "spark.experiment.".
        default: The default, in words.
        meaning: A description in one sentence.
    """

    name: str
    default: str
    meaning: str


LOGDIR = SparkSetting(
    name="spark.experiment.logdir",
    default="`experiments` in the user's home on HDFS where HDFS is Spark's default file system, "
    "else `./experiments`",
    meaning="The folder of all runs, where a search has no `logdir=`: hdfs://..., or a folder that "
    "every executor sees.",
)
DRIVER_HOST = SparkSetting(
    name="spark.experiment.driver.host",
    default="the address by which the client reaches the server",
    meaning="In Spark Connect only: the name or address by which executors reach the client.",
)
CACHE_FOLDER = SparkSetting(
    name="spark.experiment.cache.folder",
    default="`spark-tf-experiment-cache-<user id>` in `TMPDIR` or `/tmp`",
    meaning="The folder on each executor's host that keeps the copies of `experiment.data`; "
    "refused if it is a link, or if another user owns it or can write to it.",
)
CACHE_LIMIT = SparkSetting(
    name="spark.experiment.cache.limit",
    default="half of the bytes of the disk that are free or taken by copies",
    meaning="The most that these copies may take on a host, such as `20g`; the copies that were "
    "read least recently are removed first.",
)

KEEP_WARM = SparkSetting(
    name="spark.experiment.keep_warm",
    default="300",
    meaning="Seconds for which an executor keeps the modules of `preload=` imported after a "
    "search, so that the next one starts at once; 0 lets each slot import them by itself.",
)

WORKER_PORTS = SparkSetting(
    name="spark.experiment.workerPorts",
    default="20000-32767",
    meaning="The ports on which the workers of a trial listen for each other, first and last, see "
    "`workers_per_trial`; each slot holds two of them, chosen at random.",
)

ALL = (LOGDIR, DRIVER_HOST, CACHE_FOLDER, CACHE_LIMIT, KEEP_WARM, WORKER_PORTS)
