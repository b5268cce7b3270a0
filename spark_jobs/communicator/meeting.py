"""Waiting for members that may come late, or never."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from search.errors import ExperimentError
from spark_jobs.communicator.in_step.collectives import Collectives
from spark_jobs.communicator.membership import (
    GangBroken,
    MembersDisagree,
    Membership,
    MemberSilent,
)
from spark_jobs.communicator.remote import Remote
from spark_jobs.communicator.requests import Home

_NAME = "meetings and steps"
_LOOK = 1.0  # seconds between two looks at the others
_LATE = 30.0  # seconds for the last messages of a member that has left after it came


class Meeting:
    """Calls that wait for all members, however late they come.

    A member that waits asks the others now and then what they do, in a thread. So it hears soon of
    one that has ended, or that waits for this member in a training step that it will not make; and
    none counts as gone that is only slow.

    Args:
        membership: This member's place.
        home: What it keeps for the others.
        remote: What the others keep.
        collectives: The calls in step.
        patience: Seconds without any data after which a member counts as gone in other calls.
    """

    def __init__(
        self,
        membership: Membership,
        home: Home,
        remote: Remote,
        collectives: Collectives,
        patience: float,
    ) -> None:
        self._membership = membership
        self._home = home
        self._remote = remote
        self._collectives = collectives
        self._patience = patience
        self._met = 0
        self._steps = 0

    def begin_step(self) -> None:
        """See `Communicator.begin_step`."""
        self._steps += 1
        self._publish()

    def wait(self) -> None:
        """See `Communicator.meet`."""
        self._met += 1
        self._publish()
        self._collectives.patient(None)
        with self._watched():
            self._collectives.barrier()
        self._collectives.patient(self._patience)

    def _publish(self) -> None:
        self._home.publish(_NAME, np.array([self._met, self._steps]))

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        come = threading.Event()
        watch = threading.Thread(target=self._watch, args=(come,), name="gang-watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            come.set()
            watch.join()

    def _watch(self, come: threading.Event) -> None:
        others = [rank for rank in range(self._membership.size) if rank != self._membership.rank]
        while not come.wait(_LOOK):
            for rank in others:
                if (error := self._problem_of(rank)) is None:
                    continue
                # It may have left after it came: then the call is about to end.
                if isinstance(error, MembersDisagree) or not come.wait(_LATE):
                    self._collectives.fail(error)
                return

    def _problem_of(self, rank: int) -> ExperimentError | None:
        """Return why this member would wait for another one for ever; None if it need not."""
        try:
            published = self._remote.latest(rank, _NAME)
        except MemberSilent:  # if its host has vanished, the connections of its ring end
            return None
        except GangBroken as error:
            return error if error.rank == rank else None  # this process may be out of descriptors
        met, steps = (0, 0) if published is None else map(int, published.values)
        if met >= self._met or steps <= self._steps:
            return None
        own = f"worker {self._membership.rank}"
        return MembersDisagree(
            f"{own} waits for the other workers after {self._steps} steps that all make together, "
            f"but worker {rank} has begun another one, in which it waits for {own}; let all "
            "workers train alike: as many calls of fit, epochs and batches"
        )
