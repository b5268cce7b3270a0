"""Tables of parquet and TFRecord files, decoded once per host where wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.errors import InvalidArgument, shown
from spark_jobs.data.copies import copied, held, local_copy, released, user_of
from spark_jobs.data.finding import data_settings, expanded, opened
from spark_jobs.storage.host_cache import HostCache, identity
from spark_jobs.storage.locations import Location

if TYPE_CHECKING:
    import pyarrow
    import tensorflow


def parquet(path: str, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the rows of parquet files as an Arrow table, from this host's copies.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        columns: Columns to read. Default: all.

    Raises:
        InvalidArgument: `columns` is one name, not a list of names.
        OSError: The data cannot be read, as for `local_copy`.
    """
    chosen = _names(columns)
    return _table(local_copy(path), chosen)


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
            that is no feature, one name in place of a list, or a compression for parquet files.
        ValueError: A record lacks a feature, or has one of another type or shape.
        OSError: The data cannot be read, as for `local_copy`, or a file is no TFRecord file.
    """
    if compression not in ((None,) if features is None else (None, "GZIP", "ZLIB")):
        expected = "None, or for features 'GZIP' or 'ZLIB'"
        raise InvalidArgument("compression", expected, shown(compression))
    if features is None:
        chosen = _names(columns)
        return _mapped(path, ["arrow", chosen], lambda copies: _table(copies.values(), chosen))
    from spark_jobs.data import tf_examples

    wanted = tf_examples.selected(features, columns)
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

    location, settings = Location.parse(path), data_settings()
    with opened(location, settings) as files:
        found = expanded(files, location)

        def make(part: Path) -> None:
            names = [status.location for status in found]
            with released() as keep:  # only the table is read later
                copies = copied(files, found, settings, keep)
                rows = decode(dict(zip(names, copies, strict=True)))
            # Files, and parts of one, may have different categories; Arrow's format has one set.
            options = pyarrow.ipc.IpcWriteOptions(unify_dictionaries=True)
            with (
                pyarrow.OSFile(str(part), "wb") as sink,
                pyarrow.ipc.new_file(sink, rows.schema, options=options) as writer,
            ):
                writer.write(rows)

        whole_key = [*key, *(identity(status, user_of(status, settings)) for status in found)]
        size = sum(status.length for status in found)
        cache = HostCache(settings.cache)
        table, descriptor = cache.build(whole_key, "table.arrow", str(location), size, make)
    held(descriptor)
    with pyarrow.memory_map(str(table)) as source:
        return pyarrow.ipc.open_file(source).read_all()


def _names(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise InvalidArgument("columns", "a list of names", shown(columns), f"pass [{columns!r}]")
    return None if columns is None else list(columns)


def _table(copies: Iterable[Path], columns: list[str] | None) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(copy, columns=columns) for copy in copies]
    return pyarrow.concat_tables(tables)
