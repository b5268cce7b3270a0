"""DataFrames of Spark, written as files that trials read."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from search.errors import InvalidArgument, shown
from spark_jobs.storage.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FORMATS = ("parquet", "tfrecord")


def from_dataframe(
    frame: DataFrame,
    path: str | None = None,
    *,
    format: str = "parquet",  # noqa: A002  # as in DataFrameWriter
) -> str:
    """Write a Spark DataFrame, and return the path; only on the driver.

    Trials read it with `parquet`, `in_memory` or `tfrecords`: a train function can get a path, but
    no DataFrame.

    Args:
        frame: The DataFrame.
        path: A new folder that executors can write to. Default: a folder of its own under
            `spark.experiment.logdir`, else under `experiments` in the user's home on HDFS if that
            is Spark's default, else under `./experiments`.
        format: 'parquet', or 'tfrecord': a file of `tf.train.Example` records per partition, with a
            feature per column. Integers and booleans become an int64_list, float and double a
            float_list (32 bits), strings and binary a bytes_list, arrays of these longer lists;
            a null leaves its feature out. 'tfrecord' needs TensorFlow on executors; only the user
            may read the files.

    Raises:
        InvalidArgument: Another format; no path, and executors on other hosts that do not see this
            host's folders; for 'tfrecord' a column of another type, or a path that is neither on
            this host nor on HDFS.
        FileExistsError: For 'tfrecord', the folder is not empty.
    """
    if format not in _FORMATS:
        raise InvalidArgument("format", " or ".join(map(repr, _FORMATS)), shown(format))
    from spark_jobs.session import session_of

    session = session_of(frame.sparkSession)
    if path is None:
        path = f"{session.shared_folder()}/data/{secrets.token_hex(8)}"
    location = Location.parse(path)
    if format == "tfrecord":
        from spark_jobs.data import tf_examples

        tf_examples.write(frame, location, session)
    else:  # Spark looks for a path without a scheme on its default file system
        frame.write.parquet(f"file://{location}" if location.scheme == "file" else location.url)
    return location.url
