"""The process that imports for slots.

`python -m spark_jobs.zygote.importer MODULE... --guessed MODULE... LINK KEEPER`

It does once what a zygote does at its start, runs no op, and then forks a zygote per request of its
keeper (`spark_jobs.warm.keeper`). Zygotes are never kept, so nothing of a search stays.

Single-threaded like the zygotes, and for the same reasons.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings

from spark_jobs.processes import die_with_parent, print_lines
from spark_jobs.warm.packets import FORK, Answer, close_all, receive, send
from spark_jobs.warm.sources import changed_since, marks_of, sources_of
from spark_jobs.zygote.preparing import import_for_trials
from spark_jobs.zygote.shared_import import GUESSED
from spark_jobs.zygote.zygote import Zygote


class Importer:
    """Serves one keeper, and dies with it.

    Args:
        link: The socket to the keeper.
        modules: The modules to import.
        guessed: More modules to import, unless their import raises.
    """

    def __init__(
        self, link: socket.socket, modules: tuple[str, ...], guessed: tuple[str, ...]
    ) -> None:
        self._link = link
        self._modules = modules
        self._guessed = guessed
        self._zygotes: dict[int, int] = {}  # their process ids by their pidfds

    def run(self) -> None:
        """Import, and serve until the keeper is gone or a source has changed."""
        print_lines()
        begin = time.time_ns()
        problem = self._import()
        marks = marks_of(sources_of(sys.modules, sys.path))
        # A change during the import may have come after the file was read.
        stale = changed_since(marks, begin)
        self._answer(Answer(problem=problem))
        while not problem:
            descriptors = self._next_request()
            if descriptors is None:
                return
            if stale or marks_of(marks) != marks:
                self._answer(Answer(stale=True))
                return
            self._fork(descriptors)

    def _import(self) -> str:
        """Import for zygotes; return why none may be forked, or ''."""
        try:
            return import_for_trials(self._modules, self._guessed)
        except Exception as error:
            return f"preload: {type(error).__name__}: {error}"

    def _next_request(self) -> list[int] | None:
        """Return the descriptors of the next zygote; None when the keeper is gone."""
        while True:
            poll = select.poll()
            for descriptor in (self._link.fileno(), *self._zygotes):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            for pidfd in self._zygotes.keys() & ready:
                os.waitpid(self._zygotes.pop(pidfd), 0)
                os.close(pidfd)
            if self._link.fileno() in ready:
                data, descriptors = receive(self._link)
                return descriptors if data == FORK else None

    def _fork(self, descriptors: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            close_all(descriptors)
            self._answer(Answer(problem=f"no process can be forked: {error}"))
            return
        if pid == 0:
            self._be_zygote(descriptors)
        close_all(descriptors)
        # It cannot have been reaped: only this process does so, later.
        pidfd = os.pidfd_open(pid)
        self._zygotes[pidfd] = pid
        self._answer(Answer(pid=pid), [pidfd])

    def _be_zygote(self, descriptors: list[int]) -> None:
        """Run a zygote in this forked child, with nothing of its importer open."""
        code = 1
        try:
            self._link.close()
            close_all(list(self._zygotes))
            os.setsid()
            control, lifeline, log = descriptors
            for standard in (1, 2):
                os.dup2(log, standard)
            os.close(log)
            Zygote(control, lifeline, has_imported=True).run()
        except SystemExit:
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # without the importer's atexit handlers

    def _answer(self, answer: Answer, descriptors: list[int] | None = None) -> None:
        try:
            send(self._link, answer.to_json(), descriptors or ())
        except OSError:
            os._exit(0)  # the keeper is gone


def main(words: list[str]) -> None:
    """Run an importer; the last two words are its link and its keeper's process id."""
    *modules, link, keeper = words
    first_guess = modules.index(GUESSED)
    die_with_parent(int(keeper), signal.SIGKILL)
    os.set_inheritable(int(link), False)
    preload, guessed = tuple(modules[:first_guess]), tuple(modules[first_guess + 1 :])
    try:
        Importer(socket.socket(fileno=int(link)), preload, guessed).run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # without atexit handlers, since zygotes may use what these would end


if __name__ == "__main__":
    # As in a zygote, which this process will be.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    main(sys.argv[1:])
