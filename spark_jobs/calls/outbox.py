"""Writes calls for the processes that run them: the driver's side of `spark_jobs.calls.calls`.

A file costs HDFS a tenth of a second and more, and each call alone would need two. So a thread
writes calls in the background, and calls that wait meanwhile share a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from search.errors import shown
from spark_jobs.calls.calls import LARGE, Batch, CallParts, Pickled
from spark_jobs.run_folder.writing import with_patience
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location

LARGEST_BATCH = 256 << 10
"""Maximum bytes of a batch of several calls: the process of each call reads all of it."""

LARGEST_BACKLOG = 256 << 20
"""Maximum bytes that wait to be written; callers that are faster have to wait."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The place of a call, for `run_call`.

    Attributes:
        batch: The location of its batch, whose name is the SHA-256 of its content.
        index: The call's index in the batch, from 0.
    """

    batch: str
    index: int


Tell = Callable[[Sent | OSError], None]


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Content:
    """A content that one or several calls need; dropped with the last of them."""

    name: str
    data: bytes


@dataclass(eq=False, slots=True, kw_only=True)
class _Post:
    function: list[_Content]
    arguments: list[_Content]
    size: int  # bytes of its new contents
    tell: Tell

    @property
    def contents(self) -> list[_Content]:
        return [*self.function, *self.arguments]


class Outbox:
    """Writes calls to the run's folder, in the order in which they came.

    Thread safe. The caller may change the arguments of `put` as soon as it has returned.

    Args:
        files: The run's store, used by the outbox alone.
        folder: The folder for the files of calls, created when needed.
        largest_backlog: Maximum bytes that wait to be written.
    """

    def __init__(
        self, files: WritableFiles, folder: Location, largest_backlog: int = LARGEST_BACKLOG
    ) -> None:
        self._files = files
        self._folder = folder
        self._largest = largest_backlog
        self._posts: deque[_Post] = deque()
        self._waiting: weakref.WeakValueDictionary[str, _Content] = weakref.WeakValueDictionary()
        self._sent: set[str] = set()
        self._has_folder = False
        self._closed = False
        self._backlog = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._write_behind, name="experiment-calls", daemon=True
        )
        self._thread.start()

    def put(self, function: Pickled, arguments: Pickled, tell: Tell) -> None:
        """Queue a call for writing; blocks while the backlog is full, except inside a `tell`.

        Args:
            function: The function to call.
            arguments: Its arguments.
            tell: Called from the outbox's thread with the call's place, or the error of writing it;
                never after `close`.
        """
        parts = [[(_name(data), data) for data in p.parts] for p in (function, arguments)]
        with self._changed:
            new = {n: len(d) for n, d in (*parts[0], *parts[1])}
            size = sum(length for name, length in new.items() if not self._is_known(name))
            if threading.current_thread() is not self._thread:  # which would wait for itself
                self._changed.wait_for(lambda: self._closed or self._has_room(size))
            if self._closed:
                return
            taken = [[self._content(*part) for part in of_one] for of_one in parts]
            self._posts.append(_Post(function=taken[0], arguments=taken[1], size=size, tell=tell))
            self._backlog += size
            self._changed.notify_all()

    def close(self) -> None:
        """Stop writing, remove all calls, and close the connections."""
        with self._changed:
            self._closed = True
            self._posts.clear()
            self._changed.notify_all()
        self._thread.join()
        with contextlib.closing(self._files):
            self._files.remove(self._folder)

    def _has_room(self, size: int) -> bool:
        return not self._backlog or self._backlog + size <= self._largest

    def _is_known(self, name: str) -> bool:
        return name in self._sent or name in self._waiting

    def _content(self, name: str, data: bytes | memoryview) -> _Content:
        """Return the content of some data; copies the data if it is new."""
        if name in self._sent:
            return _Content(name, b"")
        content = self._waiting.get(name)
        if content is None:
            content = self._waiting[name] = _Content(name, bytes(data))
        return content

    def _write_behind(self) -> None:
        while posts := self._next():
            try:
                sent = with_patience(
                    lambda: self._write(posts),
                    lambda trouble: None,  # the progress shows that the run's store fails
                    lambda: self._closed,
                )
            except OSError as error:
                self._tell((post, error) for post in posts)
            except Exception as error:  # an unexpected error: the calls must not wait for ever
                self._tell((post, OSError(shown(error))) for post in posts)
            else:
                self._tell(zip(posts, sent, strict=True))
            with self._changed:
                self._backlog -= sum(post.size for post in posts)
                self._changed.notify_all()
            del posts  # and so the contents that no other call needs

    def _tell(self, results: Iterable[tuple[_Post, Sent | OSError]]) -> None:
        for post, result in results:
            if not self._closed:
                post.tell(result)

    def _next(self) -> list[_Post]:
        """Return the calls of the next batch; empty when the outbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._posts)
            posts: list[_Post] = []
            size = 0
            brought: set[str] = set()  # names of contents, each once per batch
            while self._posts:
                small = (content for content in self._posts[0].contents if _is_small(content))
                new = {c.name: len(c.data) for c in small if c.name not in brought}
                size += sum(new.values())
                if posts and size > LARGEST_BATCH:
                    break
                brought |= new.keys()
                posts.append(self._posts.popleft())
            return posts

    def _write(self, posts: list[_Post]) -> list[Sent]:
        if not self._has_folder:
            self._files.make_folder(self._folder)
            self._has_folder = True
        small: dict[str, int] = {}  # content to its index in the batch
        contents: list[bytes] = []
        calls = []
        for post in posts:
            for content in post.contents:
                if not _is_small(content):
                    self._put(content.name, content.data)
                elif content.name not in small:
                    small[content.name] = len(contents)
                    contents.append(content.data)
            function, arguments = (
                tuple(small.get(content.name, content.name) for content in contents_of)
                for contents_of in (post.function, post.arguments)
            )
            calls.append(CallParts(function, arguments))
        batch = msgspec.msgpack.encode(Batch(contents, calls))
        name = _name(batch)
        self._put(name, batch)
        location = str(self._folder.below(name))
        return [Sent(location, index) for index in range(len(posts))]

    def _put(self, name: str, data: bytes) -> None:
        if name not in self._sent:
            self._files.write(self._folder.below(name), data)
            self._sent.add(name)


def _is_small(content: _Content) -> bool:
    return 0 < len(content.data) < LARGE


def _name(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
