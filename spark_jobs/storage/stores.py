"""The store of a location, by its scheme."""

from __future__ import annotations

from search.errors import InvalidArgument, shown
from spark_jobs.storage.files import Files, LocalFiles, WritableFiles
from spark_jobs.storage.fsspec_files import FsspecFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import HADOOP, Location


def files_at(location: Location, hadoop: HadoopSettings, *, patience: float | None = None) -> Files:
    """Return the store of a location, to read from; the caller closes it.

    Args:
        location: A location.
        hadoop: The settings of HDFS.
        patience: Seconds for which failed requests to an HDFS are repeated. Default: those of
            `WebHdfs`.

    Raises:
        InvalidArgument: The settings lack the address of an HDFS.
        OSError: The scheme is not supported.
    """
    if location.scheme == "file" or location.scheme in HADOOP:
        return writable_files_at(location, hadoop, patience=patience)
    return FsspecFiles(location)


def writable_files_at(
    location: Location, hadoop: HadoopSettings, *, patience: float | None = None
) -> WritableFiles:
    """Return the store of a location, to read from and write to; arguments as of `files_at`.

    Raises:
        InvalidArgument: It is neither this host nor an HDFS, or the settings lack its address.
    """
    if location.scheme == "file":
        return LocalFiles()
    if location.scheme not in HADOOP:
        raise InvalidArgument("path", "a path or hdfs://host:8020/path", shown(str(location)))
    from spark_jobs.storage.webhdfs import WebHdfs  # late: trials without HDFS do not need it

    return WebHdfs(location, hadoop, **({} if patience is None else {"patience": patience}))
