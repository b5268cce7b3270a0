"""Files of `tf.train.Example` records: written from a Spark DataFrame, read into Arrow.

TensorFlow encodes and parses the examples and frames the records; callers must have it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.errors import InvalidArgument, shown
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from spark_jobs.session.session import Session

_LISTS = {
    **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), "int64_list"),
    **dict.fromkeys(("float", "double"), "float_list"),
    **dict.fromkeys(("string", "char", "varchar", "binary"), "bytes_list"),
}
"""Spark's types to the lists of `tf.train.Feature`, as in the spark-tensorflow-connector."""

_INSTEAD = {
    "array": "use pyspark.sql.functions.flatten",
    "decimal": "cast it to double",
    "map": "select its entries as columns of their own",
    "struct": "select its fields as columns of their own",
    "vectorudt": "use pyspark.ml.functions.vector_to_array",
}
_BATCH = 4096  # records that are parsed in one call


def write(frame: DataFrame, folder: Location, session: Session) -> None:
    """Write a DataFrame as TFRecord files of `tf.train.Example`s, one per partition with rows.

    Tasks write to a temporary folder. For each partition the file of the task that Spark counts is
    published, so tasks that Spark runs twice or kills leave nothing. `_SUCCESS` comes last.

    Args:
        frame: The DataFrame; a null leaves its feature out.
        folder: A new or empty folder that executors can write to.
        session: The frame's session.

    Raises:
        InvalidArgument: A column of a type that examples lack, or a folder that is neither on this
            host nor on HDFS.
        FileExistsError: The folder is not empty, or is a file.
        OSError: The folder cannot be written to.
    """
    columns = feature_lists([(field.name, field.dataType) for field in frame.schema])
    hadoop = session.data_settings().hadoop
    temporary = folder.below(f"_temporary-{secrets.token_hex(4)}")
    with contextlib.closing(writable_files_at(folder, hadoop)) as files:
        _check_vacant(files, folder)
        files.make_folder(temporary)
        try:
            task = functools.partial(_write_partition, columns, temporary, hadoop)
            parts = session.map_in_arrow(frame, task, "partition int, name string")
            for part in parts.sort_by("partition").to_pylist():
                target = folder.below(f"part-{part['partition']:05d}.tfrecord")
                files.rename(temporary.below(part["name"]), target)
            files.write(folder.below("_SUCCESS"), b"")
        finally:
            with contextlib.suppress(OSError):  # readers skip it
                files.remove(temporary)


def feature_lists(columns: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return which list of `tf.train.Feature` holds each column.

    Args:
        columns: Column names and Spark's types.

    Raises:
        InvalidArgument: A type that examples lack, or two columns of one name.
    """
    found: dict[str, str] = {}
    for name, kind in columns:
        if name in found:
            raise InvalidArgument("frame", "columns of different names", f"two named {name!r}")
        item = kind.elementType if kind.typeName() == "array" else kind
        if item.typeName() not in _LISTS:
            instead = _INSTEAD.get(item.typeName(), "cast it to one of them")
            raise InvalidArgument(
                f"column {name!r}",
                "a number, a boolean, a string, binary, or an array of these",
                kind.simpleString(),
                f"{instead}, or drop it",
            )
        found[name] = _LISTS[item.typeName()]
    return found


def _check_vacant(files: WritableFiles, folder: Location) -> None:
    try:
        vacant = files.status(folder).is_folder and not files.listdir(folder)
    except FileNotFoundError:
        return
    if not vacant:
        reason = "exists and is not an empty folder; remove it or name another folder"
        raise FileExistsError(errno.EEXIST, reason, str(folder))


def _write_partition(
    columns: Mapping[str, str],
    folder: Location,
    hadoop: HadoopSettings,
    batches: Iterable[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    """Write a partition to a file of this task's own, and yield the file's name; runs in a task."""
    import pyarrow
    import tensorflow as tf
    from pyspark import TaskContext

    task: Any = TaskContext.get()
    name, rows = f"{task.taskAttemptId()}.tfrecord", 0
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            for batch in batches:
                rows += batch.num_rows
                for record in encoded(batch, columns):
                    writer.write(record)
        if not rows and task.partitionId():
            return  # as in Spark, only the first partition leaves a file without rows
        with contextlib.closing(writable_files_at(folder, hadoop)) as files:
            files.write(folder.below(name), Path(file.name))
    row = {"partition": pyarrow.array([task.partitionId()], "int32"), "name": [name]}
    yield pyarrow.RecordBatch.from_pydict(row)


def encoded(batch: pyarrow.RecordBatch, columns: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the rows of a batch as examples.

    Args:
        batch: The rows.
        columns: Column name to its list of `tf.train.Feature`.

    Raises:
        ValueError: An array has a null in it.
    """
    import tensorflow as tf

    values = [_values(name, batch.column(name), columns[name]) for name in columns]
    for row in zip(*values, strict=True):
        example = tf.train.Example()
        for (name, kind), value in zip(columns.items(), row, strict=True):
            if value is not None:
                items = getattr(example.features.feature[name], kind)
                items.SetInParent()  # an empty array is not a null
                items.value.extend(value)
        yield example.SerializeToString()


def _values(name: str, column: pyarrow.Array, kind: str) -> Iterator[list[Any] | None]:
    """Yield a column's values of each row, as a list, or None."""
    import pyarrow.compute

    item = {"int64_list": "int64", "float_list": "float64", "bytes_list": "large_binary"}[kind]
    if not hasattr(column, "flatten"):
        for value in column.cast(item).to_pylist():
            yield None if value is None else [value]
        return
    flat = column.flatten()
    if flat.null_count:
        raise ValueError(f"column {name!r}: an array has a null in it, which examples cannot hold")
    items = pyarrow.compute.cast(flat, item).to_numpy(zero_copy_only=False).tolist()
    end = 0
    for length in pyarrow.compute.list_value_length(column).to_pylist():
        start, end = end, end + (length or 0)
        yield None if length is None else items[start:end]


def selected(features: Mapping[str, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    """Return the features to parse.

    Args:
        features: Name to `tf.io.FixedLenFeature`.
        columns: Names of the features to parse, in this order. Default: all.

    Raises:
        InvalidArgument: A feature of another kind or without a known shape, or a column that is no
            feature.
    """
    import tensorflow as tf

    if not isinstance(features, Mapping) or not features:
        expected = "a dict of names to tf.io.FixedLenFeature"
        raise InvalidArgument("features", expected, shown(features))
    for name, feature in features.items():
        known = isinstance(feature, tf.io.FixedLenFeature)
        if not known or not tf.TensorShape(feature.shape).num_elements():
            expected = "a tf.io.FixedLenFeature of a known shape"
            raise InvalidArgument(f"features[{name!r}]", expected, shown(feature))
        if feature.dtype not in (tf.float32, tf.int64, tf.string):
            expected = "tf.float32, tf.int64 or tf.string, which examples hold"
            raise InvalidArgument(f"features[{name!r}].dtype", expected, shown(feature.dtype))
    names = list(features) if columns is None else list(columns)
    if not names or any(name not in features for name in names):
        raise InvalidArgument("columns", f"some of {shown(list(features))}", shown(names))
    return {name: features[name] for name in names}


def start_runtime() -> None:
    """Start TensorFlow's runtime, so that later calls of `tf.config` fail in every trial.

    Otherwise they would fail only in the one trial of a host that parses the files.
    """
    import tensorflow as tf

    tf.config.list_logical_devices("CPU")


def specification(features: Mapping[str, Any]) -> list[list[Any]]:
    """Return the identity of features, as JSON."""
    import numpy as np
    import tensorflow as tf

    return [
        [
            name,
            tf.as_dtype(feature.dtype).name,
            tf.TensorShape(feature.shape).as_list(),
            repr(np.asarray(feature.default_value, object).tolist()),
        ]
        for name, feature in features.items()
    ]


def parsed(
    copies: Mapping[Location, Path], features: Mapping[str, Any], compression: str | None
) -> pyarrow.RecordBatch:
    """Return the features of all records of files.

    Args:
        copies: This host's copies of the files.
        features: Name to `tf.io.FixedLenFeature`.
        compression: None, 'GZIP' or 'ZLIB'.

    Returns:
        A row per record, in their order. Scalars are plain columns; other numbers are fixed-shape
        tensors, other strings lists.

    Raises:
        ValueError: A record that lacks a feature, or has one of another type or shape.
        OSError: A file is no TFRecord file.
    """
    import numpy as np
    import pyarrow
    import tensorflow as tf

    found: dict[str, list[Any]] = {
        name: [
            np.empty((0, *tf.TensorShape(feature.shape)), tf.as_dtype(feature.dtype).as_numpy_dtype)
        ]
        for name, feature in features.items()
    }
    for location, copy in copies.items():
        with _said_in_a_sentence(location), tf.device("CPU:0"):
            for records in tf.data.TFRecordDataset(str(copy), compression).batch(_BATCH):
                for name, values in tf.io.parse_example(records, dict(features)).items():
                    found[name].append(values.numpy())
    # Column by column, since each is in memory twice for a moment.
    columns = {name: _column(np.concatenate(found.pop(name))) for name in list(features)}
    return pyarrow.RecordBatch.from_pydict(columns)


def _column(values: Any) -> pyarrow.Array:
    """Return values, one per row, as a column; the numbers are not copied."""
    import pyarrow

    _, *shape = values.shape
    flat = values.reshape(-1)
    strings = flat.dtype == object
    items = pyarrow.array(flat.tolist(), "large_binary") if strings else pyarrow.array(flat)
    if not shape:
        return items
    lists = pyarrow.FixedSizeListArray.from_arrays(items, math.prod(shape))
    if strings:
        return lists
    tensor = pyarrow.fixed_shape_tensor(items.type, shape)
    return pyarrow.ExtensionArray.from_storage(tensor, lists)


@contextlib.contextmanager
def _said_in_a_sentence(location: Location) -> Iterator[None]:
    """Turn TensorFlow's errors of a file into Python's own, which name the file."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.DataLossError:
        raise OSError(f"{location}: no TFRecord file, or a truncated one") from None
    except tf.errors.InvalidArgumentError as error:
        # "{{function_node ...}} Name: <unknown>, Key: x, Index: 3.  Data types don't match. ..."
        # The index counts from the start of a batch.
        message = error.message.split("\n")[0].split(" [Op:")[0]
        reason = re.sub(r"^({{.*?}} *)?(Name: <unknown>, )?|, Index: \d+(?=\.)", "", message)
        raise ValueError(f"{location}: {reason.rstrip('.')[:300]}") from None
