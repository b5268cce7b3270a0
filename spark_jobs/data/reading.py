"""Data for train functions, from HDFS, this host, or a store that fsspec supports.

Remote files are copied once to each host and read from there in every epoch of every trial; a
changed file is copied again. See `spark_jobs.storage.host_cache`.
"""

from __future__ import annotations

import builtins
import contextlib
import fnmatch
import random
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from search.errors import InvalidArgument, shown
from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.host_cache import HostCache, identity
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at
from spark_jobs.trial.context import DataSettings, current

if TYPE_CHECKING:
    import pyarrow
    import tensorflow
    from pyspark.sql import DataFrame

_STREAM = 8 << 20  # bytes per request of streamed data
_GLANCE = 1 << 20  # bytes that `examine_data` reads
_MAGIC = re.compile(r"[*?\[]")


def local_copy(path: str) -> list[Path]:
    """Return files of this host with the content of `path`, each copied here at most once.

    The copies stay as long as this trial runs. Files of this host are not copied.

    Args:
        path: A file, a pattern such as `hdfs://namenode:8020/digits/*.tfrecord`, or a folder, whose
            files count except those that start with "_" or ".", as in Spark.

    Returns:
        The copies, in the order of the files' names.

    Raises:
        FileNotFoundError: The file does not exist, or the pattern or the folder has no file.
        PermissionError: The user may not read it.
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
        path: A file, a pattern or a folder, as for `local_copy`.
        compression: None, 'GZIP' or 'ZLIB'.
        shards: The number of workers that share the files; each copies only its own.
        index: The number of this worker, from 0.
        seed: Seed to shuffle the files, in the same way on every worker; None keeps their order.

    Raises:
        InvalidArgument: Fewer files than shards, or an invalid index.
        OSError: The data cannot be read, as for `local_copy`.
    """
    import tensorflow as tf

    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        found = {str(status.location): status for status in _expand(files, location)}
        own = [found[name] for name in shard(list(found), shards, index, seed)]
        copies = [str(copy) for copy in _copied(files, own, settings)]
    return tf.data.TFRecordDataset(copies, compression_type=compression)


def shard(names: Sequence[str], shards: int, index: int, seed: int | None = None) -> list[str]:
    """Return the files of one of several workers: every `shards`-th, from `index` on.

    Args:
        names: Names of all files, in the same order on every worker.
        shards: The number of workers.
        index: The number of this worker, from 0.
        seed: Seed to shuffle the names, in the same way on every worker; None keeps their order.

    Raises:
        InvalidArgument: Fewer files than shards, or an invalid index.
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
        encoding: Encoding of text. Default: UTF-8.

    Raises:
        InvalidArgument: Another mode.
        IsADirectoryError: The path is a folder.
        OSError: The file cannot be read, as for `local_copy`.
    """
    if mode not in ("r", "rt", "rb"):
        raise InvalidArgument("mode", "'r' or 'rb'", shown(mode), "data is read-only")
    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        status = files.status(location)
        if status.is_folder:
            raise IsADirectoryError(f"{location} is a folder; name a file in it")
        (copy,) = _copied(files, [status], settings)
    text = None if "b" in mode else encoding or "utf-8"
    return builtins.open(copy, mode, encoding=text)  # the caller closes it


def exists(path: str) -> bool:
    """Return whether a file or a folder exists.

    Raises:
        OSError: The store does not answer.
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
        NotADirectoryError: The path is a file.
        OSError: The folder does not exist, or cannot be read.
    """
    location = Location.parse(path)
    with _files(location, _settings()) as files:
        if not files.status(location).is_folder:
            raise NotADirectoryError(f"{location} is a file; name its folder")
        return [status.location.name for status in files.listdir(location)]


def glob(path: str) -> list[str]:
    """Return the files that `local_copy` would copy, as URLs or paths, sorted.

    `*`, `?` and `[...]` match parts of a name, never a "/".

    Raises:
        OSError: The data cannot be read, as for `local_copy`.
    """
    location = Location.parse(path)
    with _files(location, _settings()) as files:
        return [str(status.location) for status in _expand(files, location)]


def parquet(path: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the rows of parquet files as an Arrow table, from this host's copies.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        columns: Columns to read. Default: all.

    Raises:
        OSError: The data cannot be read, as for `local_copy`.
    """
    return _table(local_copy(path), columns)


def in_memory(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    features: Mapping[str, tensorflow.io.FixedLenFeature] | None = None,
    compression: str | None = None,
) -> pyarrow.Table:
    """Return the rows of files as an Arrow table that all trials of a host share.

    The files are decoded once per host into one file of Arrow's own format, which every trial maps
    into its memory: all trials share its pages, and nothing is decoded again.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        columns: Columns to keep, in this order. Default: all.
        features: Features to read from TFRecord files of `tf.train.Example` records, as for
            `tf.io.parse_example`; this starts TensorFlow's runtime, so call `tf.config` before.
            Without them the files are parquet.
        compression: Compression of TFRecord files: None, 'GZIP' or 'ZLIB'.

    Returns:
        The table. With `features` each column is one chunk: `table['label'].chunk(0).to_numpy()`
        is a scalar feature and `table['image'].chunk(0).to_numpy_ndarray()` one with a shape,
        without a copy and so read-only; strings are bytes, those with a shape lists of bytes.

    Raises:
        InvalidArgument: A feature that is no `tf.io.FixedLenFeature` of a known shape, a column
            that is no feature, or a compression for parquet files.
        ValueError: A record lacks a feature, or has one of another type or shape.
        OSError: The data cannot be read, as for `local_copy`, or a file is no TFRecord file.
    """
    chosen = None if columns is None else list(columns)
    if compression not in ((None,) if features is None else (None, "GZIP", "ZLIB")):
        expected = "None, or for features 'GZIP' or 'ZLIB'"
        raise InvalidArgument("compression", expected, shown(compression))
    if features is None:
        return _mapped(path, ["arrow", chosen], lambda copies: _table(copies.values(), chosen))
    from spark_jobs.data import tf_examples

    wanted = tf_examples.selected(features, chosen)
    tf_examples.start_runtime()
    key = ["examples", compression, *tf_examples.specification(wanted)]
    return _mapped(path, key, lambda copies: tf_examples.parsed(copies, wanted, compression))


def _mapped(
    path: str,
    key: Sequence[object],
    decode: Callable[[dict[Location, Path]], pyarrow.Table | pyarrow.RecordBatch],
) -> pyarrow.Table:
    """Return a table that is decoded once on this host, mapped into memory.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        key: The arguments of the decoding, as JSON.
        decode: Returns the table for the copies of the files.
    """
    import pyarrow

    location, settings = Location.parse(path), _settings()
    with _files(location, settings) as files:
        found = _expand(files, location)

        def make(part: Path) -> None:
            copies = _copied(files, found, settings)
            names = [status.location for status in found]
            rows = decode(dict(zip(names, copies, strict=True)))
            with (
                pyarrow.OSFile(str(part), "wb") as sink,
                pyarrow.ipc.new_file(sink, rows.schema) as writer,
            ):
                writer.write(rows)

        whole_key = [*key, *(identity(status) for status in found)]
        size = sum(status.length for status in found)
        cache = HostCache(settings.cache)
        table = _held(*cache.build(whole_key, "table.arrow", str(location), size, make))
    with pyarrow.memory_map(str(table)) as source:
        return pyarrow.ipc.open_file(source).read_all()


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
        frame.write.parquet(f"file://{location}" if location.scheme == "file" else str(location))
    return str(location)


def record_batches(path: str, size: int = 128) -> Iterator[list[bytes]]:
    """Yield the records of TFRecord files in lists, streamed: for data larger than the disk.

    No copy is made on this host, so each epoch reads everything again. The records' checksums are
    not checked: HDFS has its own, and so has the connection.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`; without compression.
        size: Records per list; the last list may have fewer.

    Raises:
        InvalidArgument: A size below 1.
        OSError: The data cannot be read, as for `local_copy`, or a file is no TFRecord file.
    """
    if size < 1:
        raise InvalidArgument("size", "at least 1", shown(size))
    return _batches(Location.parse(path), size)


def examine_data(path: str, settings: DataSettings) -> tuple[list[int], int]:
    """Check that data is readable without copying it: list it, and read the first file's start.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        settings: The data settings.

    Returns:
        The sizes of the files in bytes, and the number of bytes read.

    Raises:
        OSError: The data cannot be read, as for `local_copy`.
    """
    location, read = Location.parse(path), bytearray()
    with _files(location, settings) as files:
        found = _expand(files, location)
        files.read(replace(found[0], length=min(found[0].length, _GLANCE)), read.extend)
    return [status.length for status in found], len(read)


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
            raise OSError(f"{status.location}: no TFRecord file, or a truncated one")
        if len(buffer) < wanted:
            upto = min(max(reached + _STREAM, reached + wanted - len(buffer)), status.length)
            files.read(replace(status, length=upto), buffer.extend, reached)
            reached = upto
            continue
        yield bytes(buffer[12 : wanted - 4])
        del buffer[:wanted]


def _table(copies: Iterable[Path], columns: Sequence[str] | None) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    chosen = None if columns is None else list(columns)
    tables = [pyarrow.parquet.read_table(copy, columns=chosen) for copy in copies]
    return pyarrow.concat_tables(tables)


def _settings() -> DataSettings:
    """Return the trial's data settings; on the driver those of its session."""
    trial = current()
    if trial is not None:
        return trial.data
    from spark_jobs.session import active_data_settings

    return active_data_settings()


@contextlib.contextmanager
def _files(location: Location, settings: DataSettings) -> Iterator[Files]:
    with contextlib.closing(files_at(location, settings.hadoop)) as files:
        yield files


def _expand(files: Files, location: Location) -> list[FileStatus]:
    """Return the files of a path, a pattern or a folder."""
    if _MAGIC.search(location.path):
        found = [status for status in _matching(files, location) if not status.is_folder]
        kind = "matches"
    else:
        status = files.status(location)
        if not status.is_folder:
            return [status]
        found = [s for s in files.listdir(location) if not s.is_folder and _counts(s.location.name)]
        kind = "is in"
    if not found:
        raise FileNotFoundError(f"no file {kind} {location}")
    return sorted(found, key=lambda status: status.location.path)


def _matching(files: Files, location: Location) -> list[FileStatus]:
    """Return the files that match a pattern, one level of folders after the other."""
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
            if fnmatch.fnmatchcase(entry.location.name, part)
            and (part[0] == "." or entry.location.name[0] != ".")
        ]
    return folders


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


def _copied(files: Files, found: list[FileStatus], settings: DataSettings) -> list[Path]:
    """Return this host's copies of files; files of this host are not copied."""
    cache = HostCache(settings.cache)
    return [
        Path(status.location.path)
        if status.location.scheme == "file"
        else _held(*cache.fetch(files, status))
        for status in found
    ]


def _held(copy: Path, descriptor: int) -> Path:
    """Keep a copy until the trial ends; outside a trial, until this process ends."""
    trial = current()
    if trial is not None:
        trial.held.append(descriptor)
    return copy
