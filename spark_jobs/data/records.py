"""The records of TFRecord files: as a dataset from copies, or streamed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from search.errors import InvalidArgument, shown
from spark_jobs.data.copies import copied
from spark_jobs.data.finding import data_settings, expanded, opened
from spark_jobs.storage.files import CHANGED, Files, FileStatus
from spark_jobs.storage.locations import Location
from spark_jobs.trial.context import DataSettings

if TYPE_CHECKING:
    import tensorflow


_STREAM = 8 << 20  # bytes per request of streamed data


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

    location, settings = Location.parse(path), data_settings()
    with opened(location, settings) as files:
        found = {status.location.url: status for status in expanded(files, location)}
        own = [found[name] for name in shard(list(found), shards, index, seed)]
        copies = [str(copy) for copy in copied(files, own, settings)]
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


def record_batches(path: str, size: int = 128) -> Iterator[list[bytes]]:
    """Yield the records of TFRecord files in lists, streamed: for data larger than the disk.

    No copy is made on this host, so each epoch reads everything again. The records' checksums are
    not checked: HDFS has its own, and so has the connection.

    Call it in the thread that runs the train function, or in a copy of its context
    (`contextvars.copy_context().run`): a generator that `tf.data` calls runs in another thread. Any
    thread may iterate over the result.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`; without compression.
        size: Records per list; the last list may have fewer.

    Raises:
        InvalidArgument: A size below 1.
        OSError: The data cannot be read, as for `local_copy`, a file is no TFRecord file, or it was
            changed while it was streamed.
    """
    if size < 1:
        raise InvalidArgument("size", "at least 1", shown(size))
    # The settings of this thread's trial: another one may iterate.
    return _batches(Location.parse(path), data_settings(), size)


def _batches(location: Location, settings: DataSettings, size: int) -> Iterator[list[bytes]]:
    with opened(location, settings) as files:
        batch: list[bytes] = []
        for status in expanded(files, location):
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
            if reached == status.length and files.status(status.location) != status:
                raise OSError(f"{status.location}: {CHANGED}")  # parts of two versions, perhaps
            continue
        yield bytes(buffer[12 : wanted - 4])
        del buffer[:wanted]
