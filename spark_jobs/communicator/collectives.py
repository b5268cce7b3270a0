"""The calls that all members of a gang make in step: all-reduce, broadcast, barrier."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from search.errors import InvalidArgument
from spark_jobs.communicator.arrays import Array, Flat, read_array, type_of
from spark_jobs.communicator.calls import Call, difference
from spark_jobs.communicator.connection import Connection, framed
from spark_jobs.communicator.membership import GangBroken, MembersDisagree, Membership
from spark_jobs.communicator.ring import Ring, Sender

Operation = Literal["mean", "sum", "min", "max"]

_UFUNCS: dict[str, np.ufunc] = {
    "mean": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
}
_KINDS = {"mean": "fc", "sum": "fciu", "min": "fiu", "max": "fiu"}


class Links(NamedTuple):
    """A member's connections in the ring: from the rank before, and to the next one."""

    before: Connection
    after: Connection


class Collectives:
    """A member's collective calls. Thread safe: one call at a time.

    Args:
        membership: This member's place.
        links: Its connections in the ring, which it closes; None in a gang of one.
    """

    def __init__(self, membership: Membership, links: Links | None) -> None:
        self._membership = membership
        self._links = links
        self._lock = threading.Lock()
        self._number = 0
        self._error: BaseException | None = None
        if links is not None:
            self._sender = Sender(links.after, links.before.cut)
            self._ring = Ring(membership.rank, membership.size, self._sender, links.before)

    def all_reduce(self, arrays: Sequence[npt.ArrayLike], op: Operation) -> list[Array]:
        """See `Communicator.all_reduce`."""
        read = _read(arrays)
        _check(op, read)
        flat, size = Flat(read), self._membership.size
        with self._call(f"all_reduce with op={op!r}", read):
            for buffer in flat.buffers if self._links else ():
                self._ring.all_reduce(buffer, _UFUNCS[op], size if op == "mean" else 1)
        return flat.arrays()

    def broadcast(self, arrays: Sequence[npt.ArrayLike], root: int) -> list[Array]:
        """See `Communicator.broadcast`."""
        size = self._membership.size
        if root not in range(size):
            raise InvalidArgument("root", f"a rank from 0 to {size - 1}", repr(root))
        read = _read(arrays)
        flat = Flat(read)
        with self._call(f"broadcast from worker {root}", read):
            for buffer in flat.buffers if self._links else ():
                self._ring.broadcast(buffer, root)
        return flat.arrays()

    def barrier(self) -> None:
        """See `Communicator.barrier`."""
        with self._call("barrier", []) as arrived:
            # The call of the rank before; those of the others come through it.
            passed_on = arrived
            for _ in range(self._membership.size - 2):
                self._sender.send(framed(passed_on))
                passed_on = self._received(passed_on)

    def close(self) -> None:
        """End the ring's connections, and the thread that sends."""
        if self._links is None:
            return
        for link in self._links:
            link.cut()  # a call of another thread ends with an error
        with self._lock:
            rank = self._membership.rank
            self._error = self._error or self._membership.broken(rank, "has left the gang")
            self._sender.close()
        for link in self._links:
            link.close()

    @contextlib.contextmanager
    def _call(self, name: str, arrays: Sequence[Array]) -> Iterator[Call]:
        """Make a call in step with the others; yield the call of the rank before."""
        types, rank = tuple(map(type_of, arrays)), self._membership.rank
        with self._lock:
            call = Call(number=self._number, name=name, arrays=types, rank=rank)
            self._number += 1
            if self._links is None:
                yield call
                return
            try:
                if self._error is not None:
                    raise self._error
                self._sender.send(framed(call))
                yield self._received(call)
                self._sender.flush()
            except BaseException as error:  # what others have sent of this call may still arrive
                raise self._failed(name, error) from None

    def _received(self, own: Call) -> Call:
        assert self._links is not None
        other = self._links.before.receive_message(Call)
        if text := difference(own, other):
            raise MembersDisagree(text)
        return other

    def _failed(self, name: str, error: BaseException) -> BaseException:
        """End the ring, whose connections hold parts of a call; return the error to raise."""
        assert self._links is not None
        for link in self._links:
            link.cut()
        if isinstance(error, GangBroken) and self._sender.error is not None:
            error = self._sender.error  # `Sender` has cut the other connection for it
        if self._error is None:
            self._error = error
        if isinstance(error, GangBroken):
            return GangBroken(f"{name}: {error}", error.rank, error.address)
        return error


def _read(arrays: Sequence[npt.ArrayLike]) -> list[Array]:
    if isinstance(arrays, np.ndarray | str | bytes) or not isinstance(arrays, Sequence):
        raise InvalidArgument("arrays", "a list of arrays", type(arrays).__name__)
    return [read_array(f"arrays[{index}]", array) for index, array in enumerate(arrays)]


def _check(op: str, arrays: Sequence[Array]) -> None:
    if op not in _KINDS:
        raise InvalidArgument("op", f"one of {', '.join(map(repr, get_args(Operation)))}", repr(op))
    for index, array in enumerate(arrays):
        if array.dtype.kind not in _KINDS[op]:
            hint = "convert them first, or use op='sum'"
            wanted = "floating-point numbers" if op == "mean" else "real numbers"
            raise InvalidArgument(
                f"arrays[{index}]", f"{wanted} for op={op!r}", str(array.dtype), hint
            )
