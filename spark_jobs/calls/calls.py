"""Calls of functions in processes of their own: their arguments and their results.

A call is sent to its process in files of the run's folder, since the messages between driver and
slots are small; `spark_jobs.calls.outbox` writes them. The name of each file is the SHA-256 of its
content, so each content is sent once. A process unpickles only files that the driver has named to
it through the channel, or that such a file names. The result is a file of plain values in the
attempt's folder.
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
from spark_jobs.storage.files import Files, StoreUnavailable, content_of
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at
from spark_jobs.trial.context import MachineError, current
from spark_jobs.trial.memory.out_of_memory import restored
from spark_jobs.trial.objective import UnusableReturn

LARGE = 1 << 16
"""Bytes from which a pickle, or a buffer such as an array's, gets a file of its own."""

LARGEST_RESULT = 256 << 20
"""Maximum bytes of a returned value, which the driver keeps in memory."""


class Pickled(msgspec.Struct, frozen=True):
    """An object on its way to the process that unpickles it.

    Attributes:
        data: Its pickle.
        buffers: The pickle's out-of-band buffers.
    """

    data: bytes
    buffers: Sequence[Any] = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The pickle and its buffers."""
        return (self.data, *self.buffers)


class CallParts(msgspec.Struct, frozen=True):
    """The contents of a call: of each pickle, and then of its buffers.

    A number is an index in the batch, a string the name of a file beside it.
    """

    function: tuple[int | str, ...]
    arguments: tuple[int | str, ...]


class Batch(msgspec.Struct, frozen=True):
    """A file of calls, as msgpack."""

    contents: list[bytes]
    calls: list[CallParts]


def run_call(function: str, batch: str, index: int) -> dict[str, float]:
    """Run a call: the train function of an executor's trials.

    The returned value is written to a file of the trial's folder, and so is a raised exception if
    it is one of Python's own. The metric is the size of the returned value.

    Args:
        function: The function's name, for people.
        batch: The location of the call's batch.
        index: The call's index in the batch.
    """
    trial = current()
    assert trial is not None, "only trials run calls"
    location, returned = Location.parse(batch), trial.folder / RETURNED
    try:
        with contextlib.closing(files_at(location, trial.data.hadoop)) as files:
            sent = with_patience(lambda: _sent(files, location, index), print)
    except OSError as error:
        kind = StoreUnavailable if isinstance(error, StoreUnavailable) else MachineError
        raise kind(f"the call cannot be read: {error}") from error
    try:
        called, (args, kwargs) = _unpickled(sent)
        del sent  # it may be large
        result = called(*args, **kwargs)
    except Exception as error:
        with contextlib.suppress(NotPlain, OSError):  # the error itself counts, copied or not
            make_folder(trial.folder)  # the call may have removed it
            write_whole(returned, encode(_to_plain(error)))
        raise
    try:
        data = encode(result)
    except NotPlain as error:
        raise UnusableReturn(" ".join(f"the returned value: {error}".split())) from None
    if len(data) > LARGEST_RESULT:
        raise UnusableReturn(
            f"the returned value: expected at most {LARGEST_RESULT >> 20} MiB, got "
            f"{len(data) >> 20} MiB; write it to a file and return its path"
        )
    try:
        make_folder(trial.folder)  # the call may have removed it
        write_whole(returned, data)
    except OSError as error:
        raise MachineError(f"what the call returned cannot be written: {error}") from error
    return {"returned bytes": len(data)}


def _sent(files: Files, location: Location, index: int) -> list[list[Any]]:
    """Return the pickles of function and arguments, each with its buffers.

    Each file has the content that the driver named.

    Raises:
        OSError: A file cannot be read, or has another content.
    """
    batch = msgspec.msgpack.decode(_read(files, location), type=Batch)
    call = batch.calls[index]
    return [
        [_content(files, location, batch, part) for part in parts]
        for parts in (call.function, call.arguments)
    ]


def _unpickled(sent: list[list[Any]]) -> tuple[Callable[..., Any], Any]:
    function, arguments = (pickle.loads(data, buffers=buffers) for data, *buffers in sent)
    return function, arguments


def _content(files: Files, location: Location, batch: Batch, part: int | str) -> Any:
    if isinstance(part, int):
        return bytearray(batch.contents[part])  # so that arrays are writable
    return _read(files, location.parent.below(part))


def _read(files: Files, location: Location) -> bytearray:
    data = content_of(files, files.status(location))  # writable, as in `_content`
    if hashlib.sha256(data).hexdigest() != location.name:
        raise OSError(f"{location}: its content is not the driver's")
    return data


def _to_plain(error: BaseException) -> Any:
    """Return name and arguments of an exception; any MemoryError is Python's own.

    Raises:
        NotPlain: It is not one of Python's own types.
    """
    error = restored(error)
    if isinstance(error, MemoryError) and type(error) is not MemoryError:  # such as numpy's
        error = MemoryError(str(error))
    kind = type(error)
    if kind.__module__ != builtins.__name__:
        raise NotPlain(f"not one of Python's own exceptions: {kind.__name__}")
    return [kind.__name__, error.__reduce__()[1]]  # more than `args`, such as an OSError's file


def read_returned(files: Files, folder: Location) -> Any:
    """Return the value that a call has returned.

    Args:
        files: The run's store.
        folder: The attempt's folder.

    Raises:
        OSError: The value cannot be read.
        NotPlain: The file has no plain value.
    """
    status = files.status(folder.below(RETURNED))
    if status.length > LARGEST_RESULT:
        raise NotPlain(f"{status.location}: {status.length} bytes, more than {LARGEST_RESULT}")
    return decode(content_of(files, status))


def read_raised(files: Files, folder: Location) -> Exception | None:
    """Return the exception that a call has raised; None if it is not one of Python's own.

    Arguments as for `read_returned`.
    """
    try:
        match read_returned(files, folder):
            case [str(name), tuple(arguments)]:
                kind = getattr(builtins, name, None)
                if isinstance(kind, type) and issubclass(kind, Exception):
                    return kind(*arguments)
    # The last three: the class refuses the arguments. The failure's message is shown anyway.
    except (OSError, NotPlain, TypeError, ValueError, OverflowError):
        pass
    return None
