"""Data for train functions: `experiment.data.local_copy("hdfs://...")` and so on."""

from spark_jobs.data import (
    exists,
    glob,
    listdir,
    local_copy,
    open,  # noqa: A004  # data.open
    parquet,
    shard,
    tfrecords,
)

__all__ = ["exists", "glob", "listdir", "local_copy", "open", "parquet", "shard", "tfrecords"]
