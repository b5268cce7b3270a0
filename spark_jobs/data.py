"""Data for train functions, wherever it lies: HDFS, this host, or a store that fsspec knows.

Remote files are copied once to each host and read from there in every epoch of every trial; a copy
is made anew when the file has changed. See `spark_jobs.host_cache`.
"""

from __future__ import annotations

import builtins
import contextlib
import fnmatch
import random
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from search.errors import InvalidArgument, shown
from spark_jobs.context import DataSettings, current
from spark_jobs.files import Files, FileStatus, FsspecFiles, LocalFiles
from spark_jobs.host_cache import HostCache, identity
from spark_jobs.locations import HADOOP, Location

if TYPE_CHECKING:
    import pyarrow
    import tensorflow
    from pyspark.sql import DataFrame

_STREAM = 8 << 20  # bytes of a request where nothing is kept
_MAGIC = re.compile(r"[*?\[]")


def local_copy(path: str) -> list[Path]:
    """Return files of this host with the content of `path`, each copied here at most once.

    They stay as long as this trial runs. Files of this host are returned as they are.

    Args:
        path: A file, a pattern such as "hdfs://namenode:8020/digits/*.tfrecord", or a folder, of
            which all files count but those that start with "_" or ".", as for Spark.

    Returns:
        The copies, in the order of the names of the files.

    Raises:
        FileNotFoundError: There is no such file; for a pattern or a folder, none at all.
        PermissionError: It may not be read.
        OSError: It cannot be read, or the disk of this host is full.
    """
    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        return _copied(files, _expand(files, location), settings)


def tfrecords(
    path: str,
    *,
    compression: str | None = None,
    shards: int = 1,
    index: int = 0,
    seed: int | None = None,
) -> tensorflow.data.TFRecordDataset:
    """Return the records of files as a `tf.data.TFRecordDataset`, from this host's copies.

    Args:
        path: As for `local_copy`.
        compression: None, 'GZIP' or 'ZLIB'.
        shards: How many workers share the files; this one copies only its own.
        index: Which of them this one is, from 0.
        seed: Shuffles the files, the same way on every worker; None keeps their order.

    Raises:
        InvalidArgument: Fewer files than shards, or an index that is none.
        OSError: As `local_copy`.
    """
    import tensorflow as tf

    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        found = {str(status.location): status for status in _expand(files, location)}
        own = [found[name] for name in shard(list(found), shards, index, seed)]
        copies = [str(copy) for copy in _copied(files, own, settings)]
    return tf.data.TFRecordDataset(copies, compression_type=compression)


def shard(names: Sequence[str], shards: int, index: int, seed: int | None = None) -> list[str]:
    """Return the files of one worker of several: every `shards`-th, from `index` on.

    Args:
        names: Of all files, in the same order on every worker.
        shards: How many workers there are.
        index: Which of them this one is, from 0.
        seed: Shuffles the names first, the same way on every worker; None keeps their order.

    Raises:
        InvalidArgument: Fewer files than shards, or an index that is none.
    """
    if not 1 <= shards <= len(names):
        expected = f"a number from 1 to {len(names)}, the number of files"
        raise InvalidArgument("shards", expected, shown(shards))
    if not 0 <= index < shards:
        raise InvalidArgument("index", f"a number from 0 to {shards - 1}", shown(index))
    shuffled = list(names)
    if seed is not None:
        random.Random(seed).shuffle(shuffled)
    return shuffled[index::shards]


def open(path: str, mode: str = "rb", encoding: str | None = None) -> IO[Any]:  # noqa: A001  # data.open
    """Open this host's copy of one file for reading.

    Args:
        path: A file.
        mode: 'rb' or 'r'.
        encoding: Of text; UTF-8 when left out.

    Raises:
        InvalidArgument: Another mode.
        IsADirectoryError: It is a folder.
        OSError: As `local_copy`.
    """
    if mode not in ("r", "rt", "rb"):
        raise InvalidArgument("mode", "'r' or 'rb'", shown(mode), "data is only read here")
    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        status = files.status(location)
        if status.is_folder:
            raise IsADirectoryError(f"{location} is a folder; name a file in it")
        (copy,) = _copied(files, [status], settings)
    text = None if "b" in mode else encoding or "utf-8"
    return builtins.open(copy, mode, encoding=text)  # the caller closes it


def exists(path: str) -> bool:
    """Is there a file or a folder?

    Raises:
        OSError: It cannot be said, as where the NameNode does not answer.
    """
    location = Location.parse(path)
    with _files(location, _settings()) as files:
        try:
            files.status(location)
        except FileNotFoundError:
            return False
        return True


def listdir(path: str) -> list[str]:
    """Return the names in a folder, sorted.

    Raises:
        NotADirectoryError: It is a file.
        OSError: It is not there, or cannot be read.
    """
    location = Location.parse(path)
    with _files(location, _settings()) as files:
        if not files.status(location).is_folder:
            raise NotADirectoryError(f"{location} is a file; name its folder")
        return [_name(status) for status in files.listdir(location)]


def glob(path: str) -> list[str]:
    """Return the files that `local_copy` would copy, as URLs or paths, sorted.

    `*`, `?` and `[...]` stand for parts of a name, never for a "/".

    Raises:
        OSError: As `local_copy`.
    """
    location = Location.parse(path)
    with _files(location, _settings()) as files:
        return [str(status.location) for status in _expand(files, location)]


def parquet(path: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the rows of parquet files as an Arrow table, from this host's copies.

    Args:
        path: As for `local_copy`.
        columns: Which to read; all when left out.

    Raises:
        OSError: As `local_copy`.
    """
    return _table(local_copy(path), columns)


def in_memory(path: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the rows of parquet files as an Arrow table that all trials of a host share.

    The files are decoded once per host into one file of Arrow's own format, which every trial maps
    into its memory: the pages are there once, whatever the number of trials, and nothing is decoded
    again.

    Args:
        path: As for `local_copy`.
        columns: Which to keep; all when left out.

    Raises:
        OSError: As `local_copy`.
    """
    import pyarrow

    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        found = _expand(files, location)

        def decode(part: Path) -> None:
            table = _table(_copied(files, found, settings), columns)
            with (
                pyarrow.OSFile(str(part), "wb") as sink,
                pyarrow.ipc.new_file(sink, table.schema) as writer,
            ):
                writer.write_table(table)

        chosen = None if columns is None else list(columns)
        key = ["arrow", chosen, *(identity(status) for status in found)]
        size = sum(status.length for status in found)
        table = _held(
            *HostCache(settings.cache).build(key, "table.arrow", str(location), size, decode)
        )
    with pyarrow.memory_map(str(table)) as source:
        return pyarrow.ipc.open_file(source).read_all()


def from_dataframe(frame: DataFrame, path: str | None = None) -> str:
    """Write a Spark DataFrame once, as parquet, and return where; only on the driver.

    Trials read it with `parquet` or `in_memory`: a path travels to a train function, a DataFrame
    does not.

    Args:
        frame: What to write.
        path: A new folder that executors see. Left out: a folder of its own under
            `spark.experiment.logdir`, else under `experiments` in the user's home on HDFS where
            that is Spark's default, else under `./experiments`.

    Raises:
        InvalidArgument: No path, and executors on other hosts that do not see this host's folders.
    """
    from spark_jobs.session import ClassicSession

    if path is None:
        path = f"{ClassicSession(frame.sparkSession).shared_folder()}/data/{secrets.token_hex(8)}"
    location = Location.parse(path)
    # Spark would look for a bare path on its default file system.
    frame.write.parquet(f"file://{location}" if location.scheme == "file" else str(location))
    return str(location)


def record_batches(path: str, size: int = 128) -> Iterator[list[bytes]]:
    """Yield the records of TFRecord files in lists, streamed: for data larger than the disk.

    Nothing is kept on this host, so each epoch reads everything again. The checksums of the records
    are not looked at: HDFS has its own, and so has the connection.

    Args:
        path: As for `local_copy`; files without compression.
        size: Records in a list, the last one of all may have fewer.

    Raises:
        InvalidArgument: A size below 1.
        OSError: As `local_copy`, or a file is none of TFRecords.
    """
    if size < 1:
        raise InvalidArgument("size", "at least 1", shown(size))
    return _batches(Location.parse(path), size)


def _batches(location: Location, size: int) -> Iterator[list[bytes]]:
    with _files(location, _settings()) as files:
        batch: list[bytes] = []
        for status in _expand(files, location):
            for record in _records(files, status):
                batch.append(record)
                if len(batch) == size:
                    yield batch
                    batch = []
        if batch:
            yield batch


def _records(files: Files, status: FileStatus) -> Iterator[bytes]:
    """Yield the records of one TFRecord file.

    A record is its length (8 bytes), a checksum of that (4), the data, a checksum of the data (4);
    see `tf.io.TFRecordWriter`.
    """
    buffer, reached = bytearray(), 0
    while buffer or reached < status.length:
        wanted = 12 if len(buffer) < 12 else 16 + int.from_bytes(buffer[:8], "little")
        if wanted - len(buffer) > status.length - reached:
            raise OSError(f"{status.location}: no TFRecord file, or one that was cut off")
        if len(buffer) < wanted:
            upto = min(max(reached + _STREAM, reached + wanted - len(buffer)), status.length)
            files.read(replace(status, length=upto), buffer.extend, reached)
            reached = upto
            continue
        yield bytes(buffer[12 : wanted - 4])
        del buffer[:wanted]


def _table(copies: Sequence[Path], columns: Sequence[str] | None) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    chosen = None if columns is None else list(columns)
    tables = [pyarrow.parquet.read_table(copy, columns=chosen) for copy in copies]
    return pyarrow.concat_tables(tables)


def _settings() -> DataSettings:
    """Return the trial's settings; on the driver those of its session."""
    trial = current()
    if trial is not None:
        return trial.data
    from spark_jobs.session import active_data_settings

    return active_data_settings()


@contextlib.contextmanager
def _files(location: Location, settings: DataSettings) -> Iterator[Files]:
    files: Files
    if location.scheme == "file":
        files = LocalFiles()
    elif location.scheme in HADOOP:
        from spark_jobs.webhdfs import WebHdfs  # late: trials without HDFS need none of it

        files = WebHdfs(location, settings.hadoop)
    else:
        files = FsspecFiles(location)
    with contextlib.closing(files):
        yield files


def _expand(files: Files, location: Location) -> list[FileStatus]:
    """Return the files that a path, a pattern or a folder stands for."""
    if _MAGIC.search(location.path):
        found = [status for status in _matching(files, location) if not status.is_folder]
        kind = "matches"
    else:
        status = files.status(location)
        if not status.is_folder:
            return [status]
        found = [s for s in files.listdir(location) if not s.is_folder and _counts(_name(s))]
        kind = "is in"
    if not found:
        raise FileNotFoundError(f"no file {kind} {location}")
    return sorted(found, key=lambda status: status.location.path)


def _matching(files: Files, location: Location) -> list[FileStatus]:
    """Return what matches a pattern, one level of folders after the other."""
    parts = location.path.strip("/").split("/")
    plain = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
    folders = [files.status(location.at("/" + "/".join(parts[:plain])))]
    for part in parts[plain:]:
        entries = [
            e for folder in folders if folder.is_folder for e in files.listdir(folder.location)
        ]
        folders = [
            entry
            for entry in entries
            if fnmatch.fnmatchcase(_name(entry), part)
            and (part[0] == "." or _name(entry)[0] != ".")
        ]
    return folders


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


def _name(status: FileStatus) -> str:
    return status.location.path.rpartition("/")[2]


def _copied(files: Files, found: list[FileStatus], settings: DataSettings) -> list[Path]:
    """Return this host's copies of files; those of this host as they are."""
    cache = HostCache(settings.cache)
    return [
        Path(status.location.path)
        if status.location.scheme == "file"
        else _held(*cache.fetch(files, status))
        for status in found
    ]


def _held(copy: Path, descriptor: int) -> Path:
    """Keep a copy until the trial ends; outside of one, until this process ends."""
    trial = current()
    if trial is not None:
        trial.held.append(descriptor)
    return copy
