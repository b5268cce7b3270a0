"""The calls that all members of a gang make in step: all-reduce, broadcast, barrier."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from search.checks import plain
from search.errors import ExperimentError, InvalidArgument, shown
from spark_jobs.communicator.arrays import Array, Flat, read_array, type_of
from spark_jobs.communicator.connection import framed
from spark_jobs.communicator.in_step import halves
from spark_jobs.communicator.in_step.calls import Call, difference
from spark_jobs.communicator.in_step.rings import Reduction, Rings
from spark_jobs.communicator.membership import GangBroken, MembersDisagree, Membership

Operation = Literal["mean", "sum", "min", "max"]

Compression = Literal["float16"]

_UFUNCS: dict[str, np.ufunc] = {
    "mean": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
}
_KINDS = {"mean": "fc", "sum": "fciu", "min": "fiu", "max": "fiu"}


class Collectives:
    """A member's collective calls. Thread safe: one call at a time.

    Args:
        membership: This member's place.
        rings: Its rings, which it closes; None in a gang of one.
    """

    def __init__(self, membership: Membership, rings: Rings | None) -> None:
        self._membership = membership
        self._rings = rings
        self._lock = threading.Lock()
        self._number = 0
        self._error: BaseException | None = None
        self._cause: ExperimentError | None = None

    def all_reduce(
        self,
        arrays: Sequence[npt.ArrayLike],
        op: Operation,
        rings: int,
        compress: Compression | None,
    ) -> list[Array]:
        """See `Communicator.all_reduce`."""
        read, size = _read(arrays), self._membership.size
        _check(op, read)
        rings = plain(rings)
        _check_rings(rings, size)
        _check_compression(compress, read)
        wide = compress is not None or op == "mean"  # 16 bits may hold a mean, and not its sum
        flat = Flat([halves.summed(array) for array in read] if wide else read)
        reduction = Reduction(
            _UFUNCS[op], size if op == "mean" else 1, rings=rings, compress=compress is not None
        )
        lost: tuple[int, float] | None = None
        with self._call(_name(op, rings, compress), read) as arrived:
            if self._rings is not None:
                if rings > len(self._rings):
                    self._meet(arrived)
                    self._rings.open(rings)
                overflow = [self._rings.all_reduce(buffer, reduction) for buffer in flat.buffers]
                if compress:
                    lost = self._lost(read, flat.arrays(), max(overflow, default=0.0))
        if lost is not None:
            raise halves.too_large(*lost)
        reduced = zip(flat.arrays(), read, strict=True)
        return [array.astype(mine.dtype, copy=False) for array, mine in reduced]

    def broadcast(self, arrays: Sequence[npt.ArrayLike], root: int) -> list[Array]:
        """See `Communicator.broadcast`."""
        size = self._membership.size
        root = plain(root)
        if not isinstance(root, int) or root not in range(size):
            raise InvalidArgument("root", f"a rank from 0 to {size - 1}", shown(root))
        read = _read(arrays)
        flat = Flat(read)
        with self._call(f"broadcast from worker {root}", read):
            if self._rings is not None:
                for buffer in flat.buffers:
                    self._rings.first.broadcast(buffer, root)
        return flat.arrays()

    def barrier(self) -> None:
        """See `Communicator.barrier`."""
        with self._call("barrier", []) as arrived:
            self._meet(arrived)

    def patient(self, seconds: float | None) -> None:
        """Set for how long the rank before may be silent; None: until its connection ends."""
        with self._lock:
            if self._rings is not None and self._error is None:
                self._rings.before.be_patient(seconds)

    def fail(self, error: ExperimentError) -> None:
        """End the call that another thread waits in, and all later ones, with an error."""
        self._cause = error
        if self._rings is not None:
            self._rings.cut()

    def close(self) -> None:
        """End the ring's connections, and the threads that send."""
        if self._rings is None:
            return
        self._rings.cut()  # a call of another thread ends with an error
        with self._lock:
            rank = self._membership.rank
            self._error = self._error or self._membership.broken(rank, "has left the gang")
            self._rings.close()

    @contextlib.contextmanager
    def _call(self, name: str, arrays: Sequence[Array]) -> Iterator[Call]:
        """Make a call in step with the others; yield the call of the rank before."""
        types, rank = tuple(map(type_of, arrays)), self._membership.rank
        with self._lock:
            call = Call(number=self._number, name=name, arrays=types, rank=rank)
            self._number += 1
            if self._rings is None:
                yield call
                return
            try:
                if self._error is not None:
                    raise self._error
                self._rings.sender.send(framed(call))
                yield self._received(call)
                self._rings.sender.flush()
            except BaseException as error:  # what others have sent of this call may still arrive
                raise self._failed(name, error) from None

    def _meet(self, arrived: Call) -> None:
        """Wait until all members have made this call.

        Args:
            arrived: The call of the rank before; those of the others come through it.
        """
        for _ in range(self._membership.size - 2):
            assert self._rings is not None
            self._rings.sender.send(framed(arrived))
            arrived = self._received(arrived)

    def _lost(
        self, given: Sequence[Array], reduced: Sequence[Array], overflow: float
    ) -> tuple[int, float] | None:
        """Return which array has an infinite result, and the number too large for 16 bits.

        A result that is infinite is so in all members. They then exchange the largest number that
        was too large, and where their arrays were infinite before the call: those results are
        infinite for that reason.

        Args:
            given: The arrays of this member.
            reduced: The results.
            overflow: The largest number that was too large in this member; 0 without one.
        """
        assert self._rings is not None
        infinite = [(index, ~np.isfinite(array)) for index, array in enumerate(reduced)]
        infinite = [(index, found) for index, found in infinite if found.any()]
        if not infinite:
            return None
        largest = np.array([overflow])
        self._rings.all_reduce(largest, Reduction(np.maximum))
        if not largest[0]:
            return None
        for index, found in infinite:
            before = np.array(~np.isfinite(given[index]), np.uint8).reshape(-1)
            self._rings.all_reduce(before, Reduction(np.maximum))
            if (found.reshape(-1) & (before == 0)).any():
                return index, float(largest[0])
        return None

    def _received(self, own: Call) -> Call:
        assert self._rings is not None
        other = self._rings.before.receive_message(Call)
        if text := difference(own, other):
            raise MembersDisagree(text)
        return other

    def _failed(self, name: str, error: BaseException) -> BaseException:
        """End the rings, whose connections hold parts of a call; return the error to raise."""
        assert self._rings is not None
        self._rings.cut()
        if isinstance(error, GangBroken) and self._cause is not None:
            error = self._cause  # `fail` has cut the connections for it
        else:
            error = self._rings.cause(error)
        if self._error is None:
            self._error = error
        if isinstance(error, GangBroken):
            return GangBroken(f"{name}: {error}", error.rank, error.address)
        return error


def _name(op: Operation, rings: int, compress: Compression | None) -> str:
    name = f"all_reduce with op={op!r}"
    if rings > 1:
        name += f", rings={rings}"
    return name if compress is None else f"{name}, compress={compress!r}"


def _read(arrays: Sequence[npt.ArrayLike]) -> list[Array]:
    if isinstance(arrays, np.ndarray | str | bytes) or not isinstance(arrays, Sequence):
        raise InvalidArgument("arrays", "a list of arrays", type(arrays).__name__)
    return [read_array(f"arrays[{index}]", array) for index, array in enumerate(arrays)]


def _check(op: object, arrays: Sequence[Array]) -> None:
    if not isinstance(op, str) or op not in _KINDS:
        raise InvalidArgument(
            "op", f"one of {', '.join(map(repr, get_args(Operation)))}", shown(op)
        )
    for index, array in enumerate(arrays):
        if array.dtype.kind not in _KINDS[op]:
            hint = "convert them first, or use op='sum'"
            wanted = "floating-point numbers" if op == "mean" else "real numbers"
            raise InvalidArgument(
                f"arrays[{index}]", f"{wanted} for op={op!r}", str(array.dtype), hint
            )


def _check_rings(rings: int, size: int) -> None:
    if isinstance(rings, bool) or not isinstance(rings, int) or rings < 1:
        raise InvalidArgument("rings", "an integer from 1", shown(rings))
    most = max(1, size - 1)
    # A program for several workers runs on one, too.
    if rings > most and size > 1:
        least = f"1 to {most}" if most > 1 else "1"
        hint = "for any number of workers use min(rings, max(1, experiment.world_size() - 1))"
        raise InvalidArgument("rings", f"{least}, as there are {size} workers", str(rings), hint)


def _check_compression(compress: object, arrays: Sequence[Array]) -> None:
    if compress is None:
        return
    if compress not in get_args(Compression):
        raise InvalidArgument("compress", "'float16' or None", shown(compress))
    for index, array in enumerate(arrays):
        if array.dtype.kind != "f":
            expected = f"floating-point numbers for compress={compress!r}"
            hint = "convert them first, or leave out compress"
            raise InvalidArgument(f"arrays[{index}]", expected, str(array.dtype), hint)
