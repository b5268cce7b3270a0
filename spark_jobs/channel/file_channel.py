"""The mailbox: the channel between slots and driver through files, where the network has no way.

A slot writes a message, as a file, to a folder that the driver lists, and the driver writes the
answer to a folder that the slot lists. Each file is sealed with a key that only the slots get, so
other users of the folder can neither read nor forge a message, and a message that is written again
is ignored.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self, cast

import msgspec

from spark_jobs import time_limits
from spark_jobs.channel.credentials import Seal, SealBroken
from spark_jobs.channel.exchange import (
    CALLS,
    Call,
    ChannelClosed,
    ChannelRefused,
    Cut,
    Refusal,
    SlotChannel,
)
from spark_jobs.messages import LARGEST_MESSAGE, SLOT_NAME, ProtocolError, decode, encode
from spark_jobs.storage.files import PART, FileStatus, WritableFiles, content_of
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

_LISTING = 0.1  # seconds between two listings by the driver
_LISTING_ON_HDFS = 0.5  # where each is a request
_FIRST_PAUSE = 0.02  # seconds between a slot's first two listings; each pause is 1.5 times the last
_LONGEST_PAUSE = 0.2
_LONGEST_PAUSE_ON_HDFS = 1.0
_WORKERS = 8  # threads that read messages and write answers
_FAREWELL = 5.0  # seconds to finish writing answers at the end

_LARGEST_LETTER = LARGEST_MESSAGE + 1_000  # bytes of a message with its envelope
_LARGEST_FILE = _LARGEST_LETTER + Seal.OVERHEAD
_NAME = re.compile(rf"({SLOT_NAME})-({'|'.join(CALLS)})-([1-9][0-9]{{0,14}})")
_REQUESTS, _ANSWERS = "requests", "answers"


class FileChannelAddress(msgspec.Struct, frozen=True):
    """The address of a mailbox. Secret: `spark_jobs.handover` passes it to the slots.

    Attributes:
        folder: The mailbox's folder.
        key: The key that seals its files.
    """

    folder: str
    key: str

    def __repr__(self) -> str:
        return f"FileChannelAddress({self.folder!r})"


class Server(Protocol):
    """Answers messages."""

    def submit(
        self, call: Call, request: bytes, key: str, patience: float
    ) -> Future[tuple[bytes, str]]:
        """Answer a message, see `ChannelServer.submit`."""


class _Letter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message, and the key of the slot's attempt."""

    key: str
    message: msgspec.Raw


class _Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a message and the next key, or why there is no answer."""

    answer: msgspec.Raw = msgspec.Raw(b"{}")
    key: str = ""
    refusal: str = ""


class FileChannelServer:
    """The driver's side: passes messages to a server, and answers back. A context manager.

    One listing of one folder finds the messages of all slots. Entering removes mailboxes of killed
    drivers; leaving removes this one.

    Args:
        server: The server that answers the messages, in its own thread.
        location: A folder in the run's folder, for mailboxes only.
        hadoop: The Hadoop settings.

    Raises:
        OSError: The folders cannot be created.
    """

    def __init__(self, server: Server, location: Location, hadoop: HadoopSettings) -> None:
        self._server = server
        self._all = location
        self._hadoop = hadoop
        # A driver that was presumed dead and wakes must not touch the mailbox of its successor.
        self._folder = location.below(secrets.token_hex(8))
        self.address = FileChannelAddress(str(self._folder), Seal.new_key())
        self._seal = Seal(self.address.key)
        self._pause = _LISTING if location.scheme == "file" else _LISTING_ON_HDFS
        self._files: queue.SimpleQueue[WritableFiles] = queue.SimpleQueue()
        self._heard: dict[str, int] = {}  # last number by slot and call
        self._lock = threading.Lock()
        self._in_hand: set[str] = set()
        self._work: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="experiment-mailbox")
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name="experiment-mailbox", daemon=True)

    def __enter__(self) -> Self:
        for _ in range(_WORKERS + 1):
            self._files.put(writable_files_at(self._folder, self._hadoop))
        with self._borrowed() as files:
            with contextlib.suppress(OSError):  # an old mailbox; a slot may still write to it
                files.remove(self._all)
            files.make_folder(self._folder.below(_REQUESTS))
            files.make_folder(self._folder.below(_ANSWERS))
        try:
            self._thread.start()
        except BaseException:  # an interrupt: `__exit__` is not called if `__enter__` raises
            self._closing.set()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        ended = self._ended.wait(_FAREWELL)  # see SlotJob for why not the thread
        concurrent.futures.wait(set(self._work), timeout=_FAREWELL)
        self._pool.shutdown(wait=False, cancel_futures=True)
        # An answer that is written after the folder was removed would create it again.
        left = concurrent.futures.wait(set(self._work), timeout=_FAREWELL).not_done
        if ended and not left:  # else the storage fails, and removing would take long
            with contextlib.suppress(OSError), self._borrowed() as files:
                files.remove(self._folder)
                if not files.names(self._all):
                    files.remove(self._all)
            while not self._files.empty():
                self._files.get().close()

    def _main(self) -> None:
        try:
            while not self._closing.wait(self._pause):
                # The storage may recover: slots ask again for ten minutes.
                with contextlib.suppress(OSError), self._borrowed() as files:
                    self._collect(files.listdir(self._folder.below(_REQUESTS)))
        finally:
            self._ended.set()

    def _collect(self, found: list[FileStatus]) -> None:
        for status in found:
            name = status.location.name
            if name not in self._in_hand and not name.startswith(PART):
                self._in_hand.add(name)
                self._start(self._take, status)

    def _take(self, status: FileStatus) -> None:
        name = status.location.name
        try:
            with contextlib.suppress(OSError), self._borrowed() as files:  # else the next round
                try:
                    self._hand_in(name, *self._open(files, status))
                except ProtocolError:  # from a slot, as it is sealed
                    self._start(self._post, name, encode(_Reply(refusal="INVALID_ARGUMENT")))
                except SealBroken:
                    pass
                files.remove(status.location)
        finally:
            self._in_hand.discard(name)

    def _hand_in(self, name: str, call: Call, letter: _Letter) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped
            answer = self._server.submit(
                call, bytes(letter.message), letter.key, time_limits.MAILBOX_WAIT
            )
            answer.add_done_callback(functools.partial(self._answered, name))

    def _open(self, files: WritableFiles, status: FileStatus) -> tuple[Call, _Letter]:
        """Return the call and the letter in a slot's file.

        Raises:
            SealBroken: No slot wrote it, or it was received before.
            ProtocolError: The content is no letter.
            OSError: The file cannot be read.
        """
        name = status.location.name
        match = _NAME.fullmatch(name)
        if match is None:
            raise SealBroken(f"{name!r} is no message")
        data = _read(files, status)
        letter = decode(self._seal.open(data, _request(name)), _Letter, _LARGEST_LETTER)
        source, number = f"{match[1]}-{match[2]}", int(match[3])
        with self._lock:
            if number <= self._heard.get(source, 0):
                raise SealBroken(f"{name!r} was received before")
            self._heard[source] = number
        return cast(Call, match[2]), letter

    def _answered(self, name: str, answer: Future[tuple[bytes, str]]) -> None:
        """Let a worker write an answer. Called in the server's thread, which must not wait."""
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            data, key = answer.result()
            reply = _Reply(msgspec.Raw(data), key)
        else:
            reply = _Reply(refusal=error.status if isinstance(error, Refusal) else "ABORTED")
        self._start(self._post, name, encode(reply))

    def _post(self, name: str, reply: bytes) -> None:
        slot = name.partition("-")[0]
        with contextlib.suppress(OSError), self._borrowed() as files:  # the slot asks again
            target = self._folder.below(f"{_ANSWERS}/{slot}/{name}")
            files.write(target, self._seal.close(reply, _answer(name)))

    def _start(self, function: Callable[..., None], *values: object) -> None:
        with contextlib.suppress(RuntimeError):  # the pool is shut down
            work = self._pool.submit(function, *values)
            self._work.add(work)
            work.add_done_callback(self._work.discard)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[WritableFiles]:
        files = self._files.get()
        try:
            yield files
        finally:
            self._files.put(files)


class _Lane:
    """A slot's calls of one kind, one after the other."""

    def __init__(self, files: WritableFiles) -> None:
        self.files = files
        self.lock = threading.Lock()
        self.number = 0


class FileChannelClient(SlotChannel):
    """A slot's side of the mailbox.

    Args:
        address: The mailbox's address.
        slot: The slot's name.
        hadoop: The Hadoop settings.

    Raises:
        OSError: The mailbox does not exist on this host, or cannot be written to.
        InvalidArgument: The store is not supported, as for `writable_files_at`.
    """

    GANG_BEAT = time_limits.MAILBOX_GANG_BEAT

    def __init__(self, address: FileChannelAddress, slot: str, hadoop: HadoopSettings) -> None:
        super().__init__(slot)
        folder = Location.parse(address.folder)
        self._requests = folder.below(_REQUESTS)
        self._answers = folder.below(f"{_ANSWERS}/{slot}")
        self._seal = Seal(address.key)
        self._longest = _LONGEST_PAUSE if folder.scheme == "file" else _LONGEST_PAUSE_ON_HDFS
        self._closed = threading.Event()
        with contextlib.closing(writable_files_at(folder, hadoop)) as files:
            files.status(self._requests)  # a missing folder must not be created here
            files.make_folder(self._answers)
        self._lanes = {call: _Lane(writable_files_at(folder, hadoop)) for call in CALLS}

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        for lane in self._lanes.values():
            lane.files.close()

    def _ask(self, call: Call, request: bytes, longer: float = 0.0) -> tuple[bytes, str]:
        if len(request) > LARGEST_MESSAGE:
            raise ChannelRefused("the driver refuses: RESOURCE_EXHAUSTED")
        lane = self._lanes[call]
        letter = encode(_Letter(self._key, msgspec.Raw(request)))
        with lane.lock:
            lane.number += 1  # also for repeated messages: each number is accepted once
            name = f"{self._slot}-{call}-{lane.number}"
            try:
                if self._closed.is_set():
                    raise ChannelClosed("the mailbox was closed here")
                reply = self._exchanged(lane.files, name, letter)
            except OSError as error:
                raise Cut(str(error)) from None
        if reply.refusal:
            raise ChannelRefused(f"the driver refuses: {reply.refusal}")
        return bytes(reply.answer), reply.key

    def _exchanged(self, files: WritableFiles, name: str, letter: bytes) -> _Reply:
        give_up, pause = time.monotonic() + time_limits.MAILBOX_ANSWER, _FIRST_PAUSE
        sealed, request = self._seal.close(letter, _request(name)), self._requests.below(name)
        files.status(self._requests)  # HDFS would create a removed folder again
        files.write(request, sealed)
        while not self._closed.wait(pause):
            for status in files.listdir(self._answers):
                if status.location.name == name and (reply := self._opened(files, status)):
                    files.remove(status.location)
                    return reply
                if _is_older(status.location.name, name):  # it came too late
                    files.remove(status.location)
            if time.monotonic() > give_up:
                files.remove(request)
                raise Cut("no answer in the mailbox")
            pause = min(1.5 * pause, self._longest)
        raise ChannelClosed("the mailbox was closed here")

    def _opened(self, files: WritableFiles, status: FileStatus) -> _Reply | None:
        """Return the driver's answer; None if the file is none."""
        with contextlib.suppress(SealBroken, ProtocolError, FileNotFoundError):
            data = self._seal.open(_read(files, status), _answer(status.location.name))
            return decode(data, _Reply, _LARGEST_LETTER)
        return None


def _read(files: WritableFiles, status: FileStatus) -> bytes:
    """Return the content of a file that may be a letter.

    Raises:
        SealBroken: It is too large for one.
        OSError: It cannot be read.
    """
    if status.is_folder or status.is_link or not 0 < status.length <= _LARGEST_FILE:
        raise SealBroken(f"{status.location} is no file of ours")
    return bytes(content_of(files, status))


def _is_older(name: str, current: str) -> bool:
    """Return whether this is the answer to an earlier call of the same kind."""
    source, _, number = current.rpartition("-")
    before, _, other = name.rpartition("-")
    return before == source and other.isdecimal() and int(other) < int(number)


def _request(name: str) -> str:
    return f"request {name}"  # a sealed request cannot pass for an answer


def _answer(name: str) -> str:
    return f"answer {name}"
