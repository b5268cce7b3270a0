"""Calls of functions in processes of their own: what travels there, and what comes back.

A call goes to its process in files of the run's folder, since the messages between driver and slots
are small. Each file is called by the SHA-256 of its content, so one content is sent once, and a
process unpickles nothing but what the driver has named to it through the channel. The way back is a
file of plain values in the folder of the attempt.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from spark_jobs.context import current
from spark_jobs.files import Files, WritableFiles, files_at
from spark_jobs.locations import Location
from spark_jobs.objective import UnusableReturn
from spark_jobs.paths import RETURNED
from spark_jobs.plain_values import NotPlain, decode, encode
from spark_jobs.run_folder import with_patience
from spark_jobs.storage import make_folder, write_whole

LARGE = 1 << 16
"""Bytes from which on a buffer, such as that of an array, gets a file of its own."""

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


class _Call(msgspec.Struct, frozen=True):
    """A file that says what to call: names of files, a pickle's first and then its buffers'."""

    function: tuple[str, ...]
    arguments: tuple[str, ...]


class Outbox:
    """Puts calls where their processes find them. Not for several threads at once.

    Args:
        files: Of the run.
        folder: For the files of calls; made when first needed.
    """

    def __init__(self, files: WritableFiles, folder: Location) -> None:
        self._files, self._folder = files, folder
        self._sent: set[str] = set()

    def put(self, function: Pickled, arguments: Pickled) -> str:
        """Write what is not there yet; return the location of the call, for `run_call`."""
        if not self._sent:
            self._files.make_folder(self._folder)
        call = _Call(self._put_all(function), self._put_all(arguments))
        return str(self._folder.below(self._put(msgspec.json.encode(call))))

    def close(self) -> None:
        """Remove all calls, and let go of connections."""
        with contextlib.closing(self._files):
            self._files.remove(self._folder)

    def _put_all(self, pickled: Pickled) -> tuple[str, ...]:
        return tuple(self._put(data) for data in (pickled.data, *pickled.buffers))

    def _put(self, data: Any) -> str:
        name = hashlib.sha256(data).hexdigest()
        if name not in self._sent:
            self._files.write(self._folder.below(name), bytes(data))
            self._sent.add(name)
        return name


def run_call(function: str, call: str) -> dict[str, float]:
    """Run a call: the train function of an executor's trials.

    What it returns lies in a file of the trial's folder then, and so does what it raises where that
    is an exception of Python's own. The metric is the size of what it returned.

    Args:
        function: What it is called, for people.
        call: Where `Outbox` has put it.
    """
    trial = current()
    assert trial is not None, "only trials run calls"
    location, returned = Location.parse(call), trial.folder / RETURNED
    try:
        with contextlib.closing(files_at(location, trial.data.hadoop)) as files:
            called, (args, kwargs) = with_patience(lambda: _unpickled(files, location), print)
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


def _unpickled(files: Files, location: Location) -> tuple[Callable[..., Any], Any]:
    call = msgspec.json.decode(_read(files, location), type=_Call)
    function, arguments = (
        [_read(files, location.parent.below(name)) for name in names]
        for names in (call.function, call.arguments)
    )
    # The content of each file is that which the driver named.
    return (
        pickle.loads(function[0], buffers=function[1:]),
        pickle.loads(arguments[0], buffers=arguments[1:]),
    )


def _read(files: Files, location: Location) -> bytearray:
    data = bytearray()  # which arrays can be written to in
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
