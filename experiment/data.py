"""Data for train functions: `experiment.data.local_copy("hdfs://...")` and so on."""

from spark_jobs.data.copies import (
    local_copy,
    open,  # noqa: A004  # data.open
)
from spark_jobs.data.dataframes import from_dataframe
from spark_jobs.data.finding import exists, glob, listdir
from spark_jobs.data.records import record_batches, shard, tfrecords
from spark_jobs.data.tables import in_memory, parquet

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
