"""The user's SparkSession: its jobs and its settings."""

from __future__ import annotations

import sys
from typing import Any

from search.errors import InvalidArgument
from spark_jobs.cluster.spark_version import OLDEST, check_spark_version
from spark_jobs.session.session import Session
from spark_jobs.storage import hadoop_settings
from spark_jobs.trial.context import DataSettings


def session_of(spark: Any) -> Session:
    """Return the `Session` of the user's SparkSession.

    Raises:
        InvalidArgument: Not a SparkSession, a stopped one, or one of a Spark that is too old.
    """
    import pyspark

    install = f"install pyspark>={'.'.join(map(str, OLDEST))} for the driver's Python"
    check_spark_version(pyspark.__version__, "pyspark", install)
    if is_connect(spark):
        from spark_jobs.session.connect import ConnectSession

        return ConnectSession(spark)
    from spark_jobs.session.classic import ClassicSession

    return ClassicSession(spark)


def is_connect(spark: Any) -> bool:
    """Return whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def active_data_settings() -> DataSettings:
    """Return the data settings of this process's session; without one, those of Hadoop's files.

    A session whose JVM or server has ended counts as none: its runs can still be looked at.

    Raises:
        InvalidArgument: A file of HADOOP_CONF_DIR cannot be read.
    """
    session = _session_of_this_process()
    if session is not None:
        try:
            return session_of(session).data_settings()
        except InvalidArgument as error:
            if error.name != "spark":
                raise
    return DataSettings(hadoop_settings.HadoopSettings.of_files())


def _session_of_this_process() -> Any:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()  # not getActiveSession, which returns None in a new thread
    except Exception:  # none, or one whose JVM has ended, with an error of py4j or of the network
        return None
    stopped = not is_connect(session) and session.sparkContext._jsc is None
    return None if stopped else session
