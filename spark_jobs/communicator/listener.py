"""Accepting the other members: strangers are dropped, and nobody waits for a silent one."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable

from spark_jobs.communicator.connection import configure

_HANDSHAKE = 10.0  # seconds for a handshake
_MOST_AT_ONCE = 256  # handshakes; then the oldest is dropped
_PAUSE = 0.1  # seconds, where this process has no descriptor left to accept with


class Listener:
    """Accepts TLS connections in a thread of its own.

    A connection that sends nothing, or no valid handshake, takes a descriptor for some seconds and
    no thread, so a port scan delays no member.

    Args:
        plain: The bound socket, which the listener closes at its end.
        context: The context for accepting, which checks the other side's certificate.
        arrived: Called with each connection after its handshake, in the listener's thread.
    """

    def __init__(
        self,
        plain: socket.socket,
        context: ssl.SSLContext,
        arrived: Callable[[ssl.SSLSocket], None],
    ) -> None:
        self._plain = plain
        self._context = context
        self._arrived = arrived
        self._handshakes: dict[ssl.SSLSocket, float] = {}  # with the end of each, oldest first
        self._selector = selectors.DefaultSelector()
        self._ending = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="gang-listener", daemon=True)

    def start(self) -> None:
        """Listen, and start the thread.

        Raises:
            RuntimeError: There can be no more threads; the listener is closed.
        """
        self._plain.listen(_MOST_AT_ONCE)
        self._plain.setblocking(False)
        self._selector.register(self._plain, selectors.EVENT_READ)
        self._selector.register(self._ending, selectors.EVENT_READ)
        try:
            self._thread.start()
        except RuntimeError:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening, drop unfinished handshakes, and wait for the thread."""
        os.eventfd_write(self._ending, 1)
        if self._thread.ident is not None:
            self._thread.join()
        for tls in list(self._handshakes):
            self._drop(tls)
        self._selector.close()
        self._plain.close()
        os.close(self._ending)

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            ends = min(self._handshakes.values(), default=None)
            found = self._selector.select(None if ends is None else max(0.0, ends - now))
            for key, _ in found:
                if key.fileobj == self._ending:
                    return
                if key.fileobj is self._plain:
                    self._accept()
                elif isinstance(key.fileobj, ssl.SSLSocket):
                    self._go_on(key.fileobj)
            now = time.monotonic()
            for tls in [tls for tls, end in self._handshakes.items() if end <= now]:
                self._drop(tls)

    def _accept(self) -> None:
        try:
            plain, _ = self._plain.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has left again
            return
        except OSError:
            time.sleep(_PAUSE)
            return
        try:
            configure(plain)
            plain.setblocking(False)
            tls = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError:
            plain.close()
            return
        if len(self._handshakes) >= _MOST_AT_ONCE:
            self._drop(next(iter(self._handshakes)))
        self._handshakes[tls] = time.monotonic() + _HANDSHAKE
        self._selector.register(tls, selectors.EVENT_READ)

    def _go_on(self, tls: ssl.SSLSocket) -> None:
        if tls not in self._handshakes:  # dropped for a newer one in this round
            return
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:  # a stranger that reads nothing; a member's socket has room
            self._drop(tls)
        except OSError:
            self._drop(tls)
        else:
            self._selector.unregister(tls)
            del self._handshakes[tls]
            self._arrived(tls)

    def _drop(self, tls: ssl.SSLSocket) -> None:
        del self._handshakes[tls]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(tls)
        tls.close()
