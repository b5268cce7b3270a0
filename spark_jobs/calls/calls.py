"""Calls of functions in processes of their own: what travels there, and what comes back.

A call goes to its process in files of the run's folder, since the messages between driver and
slots are small; `spark_jobs.calls.outbox` writes them. Each file is called by the SHA-256 of its
content, so one content is sent once. A process unpickles only what is in a file that the driver has
named to it through the channel, or in one that is named there. The way back is a file of plain
values in the folder of the attempt.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from spark_jobs.calls.plain_values import NotPlain, decode, encode
from spark_jobs.run_folder.paths import RETURNED
from spark_jobs.run_folder.writing import with_patience
from spark_jobs.storage.files import Files
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at
from spark_jobs.trial.context import current
from spark_jobs.trial.objective import UnusableReturn

LARGE = 1 << 16
"""Bytes from which on a pickle, or a buffer such as that of an array, gets a file of its own."""

LARGEST_RESULT = 256 << 20
"""Bytes of what a call returns: the driver has it in memory."""


class Pickled(msgspec.Struct, frozen=True):
    """An object on its way to the process that unpickles it.

    Attributes:
        data: Its pickle.
        buffers: The buffers that belong to the pickle but are not in it.
    """

    data: bytes
    buffers: Sequence[Any] = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The pickle and its buffers."""
        return (self.data, *self.buffers)


class CallParts(msgspec.Struct, frozen=True):
    """What to call: contents, a pickle's first and then its buffers'.

    A number is an index in the batch; a name is that of a file beside it.
    """

    function: tuple[int | str, ...]
    arguments: tuple[int | str, ...]


class Batch(msgspec.Struct, frozen=True):
    """A file of calls, as msgpack."""

    contents: list[bytes]
    calls: list[CallParts]


def run_call(function: str, batch: str, index: int) -> dict[str, float]:
    """Run a call: the train function of an executor's trials.

    What it returns lies in a file of the trial's folder then, and so does what it raises where that
    is an exception of Python's own. The metric is the size of what it returned.

    Args:
        function: What it is called, for people.
        batch: Where the outbox has put it, with others.
        index: Of the call in the batch.
    """
    trial = current()
    assert trial is not None, "only trials run calls"
    location, returned = Location.parse(batch), trial.folder / RETURNED
    try:
        with contextlib.closing(files_at(location, trial.data.hadoop)) as files:
            called, (args, kwargs) = with_patience(
                lambda: _unpickled(files, location, index), print
            )
        result = called(*args, **kwargs)
    except Exception as error:
        with contextlib.suppress(NotPlain):
            write_whole(returned, encode(_to_plain(error)))
        raise
    try:
        data = encode(result)
    except NotPlain as error:
        raise UnusableReturn(" ".join(f"what a call returns: {error}".split())) from None
    if len(data) > LARGEST_RESULT:
        raise UnusableReturn(
            f"what a call returns: expected {LARGEST_RESULT >> 20} MiB at the most, got "
            f"{len(data) >> 20} MiB; write it to a file and return its path"
        )
    make_folder(trial.folder)  # which the call may have removed
    write_whole(returned, data)
    return {"returned bytes": len(data)}


def _unpickled(files: Files, location: Location, index: int) -> tuple[Callable[..., Any], Any]:
    batch = msgspec.msgpack.decode(_read(files, location), type=Batch)
    call = batch.calls[index]
    function, arguments = (
        [_content(files, location, batch, part) for part in parts]
        for parts in (call.function, call.arguments)
    )
    # The content of each file is that which the driver named.
    return (
        pickle.loads(function[0], buffers=function[1:]),
        pickle.loads(arguments[0], buffers=arguments[1:]),
    )


def _content(files: Files, location: Location, batch: Batch, part: int | str) -> Any:
    if isinstance(part, int):
        return bytearray(batch.contents[part])  # which arrays can be written to in
    return _read(files, location.parent.below(part))


def _read(files: Files, location: Location) -> bytearray:
    data = bytearray()  # as in `_content`
    files.read(files.status(location), data.extend)
    if hashlib.sha256(data).hexdigest() != location.name:
        raise OSError(f"{location}: not what the driver has written there")
    return data


def _to_plain(error: Exception) -> Any:
    """Return name and arguments of an exception.

    Raises:
        NotPlain: It is not of a type that every Python has.
    """
    kind = type(error)
    if kind.__module__ != builtins.__name__:
        raise NotPlain(f"not one of Python's own exceptions: {kind.__name__}")
    return [kind.__name__, error.__reduce__()[1]]  # more than `args`, as the file of an OSError


def read_returned(files: Files, folder: Location) -> Any:
    """Return what a call has returned.

    Args:
        files: Of the run.
        folder: Of the attempt.

    Raises:
        OSError: It cannot be read.
        NotPlain: It is nothing that a call returns.
    """
    status, data = files.status(folder.below(RETURNED)), bytearray()
    if status.length > LARGEST_RESULT:
        raise NotPlain(f"{status.location}: {status.length} bytes, more than {LARGEST_RESULT}")
    files.read(status, data.extend)
    return decode(data)


def read_raised(files: Files, folder: Location) -> Exception | None:
    """Return what a call has raised; None where it is not one of Python's own exceptions.

    Arguments as for `read_returned`.
    """
    try:
        match read_returned(files, folder):
            case [str(name), tuple(arguments)]:
                kind = getattr(builtins, name, None)
                if isinstance(kind, type) and issubclass(kind, Exception):
                    return kind(*arguments)
    except (OSError, NotPlain, TypeError, ValueError):  # the message tells it, too
        pass
    return None
