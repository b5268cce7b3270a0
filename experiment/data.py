"""Data for train functions: `experiment.data.local_copy("hdfs://...")` and so on."""

from spark_jobs.data.reading import (
    exists,
    from_dataframe,
    glob,
    in_memory,
    listdir,
    local_copy,
    open,  # noqa: A004  # data.open
    parquet,
    record_batches,
    shard,
    tfrecords,
)

__all__ = [
    "exists",
    "from_dataframe",
    "glob",
    "in_memory",
    "listdir",
    "local_copy",
    "open",
    "parquet",
    "record_batches",
    "shard",
    "tfrecords",
]
