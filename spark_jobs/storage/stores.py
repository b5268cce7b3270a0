"""Which store a location is in, and what reads and writes its files."""

from __future__ import annotations

from search.errors import InvalidArgument, shown
from spark_jobs.storage.files import Files, LocalFiles, WritableFiles
from spark_jobs.storage.fsspec_files import FsspecFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import HADOOP, Location


def files_at(location: Location, hadoop: HadoopSettings) -> Files:
    """Return what reads files of the place that a location is in; the caller closes it.

    Raises:
        InvalidArgument: The settings do not say where an HDFS is.
        OSError: Nothing is known of such a place.
    """
    if location.scheme == "file" or location.scheme in HADOOP:
        return writable_files_at(location, hadoop)
    return FsspecFiles(location)


def writable_files_at(location: Location, hadoop: HadoopSettings) -> WritableFiles:
    """Return what reads and writes files of the place that a location is in.

    Raises:
        InvalidArgument: It is neither this host nor an HDFS, or the settings do not say where.
    """
    if location.scheme == "file":
        return LocalFiles()
    if location.scheme not in HADOOP:
        raise InvalidArgument("path", "a path or hdfs://host:8020/path", shown(str(location)))
    from spark_jobs.storage.webhdfs import WebHdfs  # late: trials without HDFS need none of it

    return WebHdfs(location, hadoop)
