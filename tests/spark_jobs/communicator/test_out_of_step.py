"""Published arrays, and shared vectors, of members that are not in step."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from search.errors import InvalidArgument
from spark_jobs.communicator import mesh, remote
from spark_jobs.communicator.membership import GangBroken
from spark_jobs.communicator.requests import Published
from tests.properties import examples
from tests.spark_jobs.communicator.gangs import LIMIT, Gang, results


def add(values, change):
    values += change


LARGE = 10_000_000  # bytes: far more than the kernel keeps for a connection


def test_the_latest_of_what_a_member_has_published():
    def body(communicator):
        other = 1 - communicator.rank
        nothing = communicator.latest(other, "weights")
        communicator.barrier()
        for number in range(3):
            communicator.publish("weights", np.full((2, 3), communicator.rank + number))
        communicator.publish("loss", 0.5)
        communicator.barrier()
        found = communicator.latest(other, "weights")
        own = communicator.latest(communicator.rank, "weights")
        loss = communicator.latest(other, "loss")
        communicator.barrier()
        return nothing, found.version, found.values.tolist(), own.values[0, 0], float(loss.values)

    assert results(2, body) == [
        (None, 3, [[3] * 3] * 2, 2, 0.5),
        (None, 3, [[2] * 3] * 2, 3, 0.5),
    ]


@examples(20)
@given(npst.arrays(npst.floating_dtypes(endianness="="), npst.array_shapes(min_dims=0, min_side=0)))
def test_published_arrays_arrive_as_they_were(array):
    def body(communicator):
        communicator.publish("x", array)
        communicator.barrier()
        found = communicator.latest(1 - communicator.rank, "x")
        communicator.barrier()
        return found

    for found in results(2, body):
        assert found.values.dtype == array.dtype
        assert found.values.shape == array.shape
        np.testing.assert_array_equal(found.values, array)


def test_what_was_published_does_not_change_with_the_array():
    def body(communicator):
        array = np.zeros(2)
        communicator.publish("x", array)
        array += 1
        return communicator.latest(0, "x").values.tolist()

    assert results(1, body) == [[0, 0]]


def test_what_a_member_withdraws_is_kept_no_longer():
    def body(communicator):
        communicator.publish("old", np.zeros(2))
        communicator.publish("new", np.ones(2))
        communicator.withdraw("old")
        communicator.withdraw("old")
        communicator.barrier()
        found = [communicator.latest(1 - communicator.rank, name) for name in ("old", "new")]
        communicator.barrier()
        return found[0], found[1].values.tolist(), len(communicator._home._published)

    assert results(2, body) == [(None, [1, 1], 1)] * 2


def test_no_more_than_the_limit_is_allocated(monkeypatch):
    monkeypatch.setattr(remote, "LARGEST_ARRAY", 100)

    def body(communicator):
        communicator.publish("x", np.zeros(13))
        communicator.barrier()
        with pytest.raises(GangBroken, match="not numbers of at most 100 bytes"):
            communicator._remote.latest(1 - communicator.rank, "x")
        communicator.barrier()

    results(2, body)


@examples(20)
@given(st.integers(1, 4), st.integers(0, 9), st.sampled_from([np.float32, np.float64]))
def test_a_shared_vector_gets_the_changes_of_all(size, length, dtype):
    initial = np.arange(length, dtype=dtype)

    def body(communicator):
        # That of rank 0 counts.
        shared = communicator.share(initial * (communicator.rank == 0), add)
        before = shared.fetch()
        communicator.barrier()
        shared.push(np.full(length, communicator.rank + 1, dtype))
        communicator.barrier()
        after = shared.fetch()
        communicator.barrier()
        return before, after

    for before, after in results(size, body):
        np.testing.assert_array_equal(before, initial)
        assert after.dtype == dtype
        np.testing.assert_array_equal(after, initial + size * (size + 1) / 2)


@pytest.mark.parametrize(("size", "length"), [(1, 5), (2, 7), (3, 11), (4, 12), (4, 2)])
def test_a_shared_vector_is_cut_by_size(size, length):
    """Each member keeps a part of it, in the order of their ranks, none a larger one."""

    def body(communicator):
        communicator.share(np.arange(length), add)
        communicator.barrier()
        [chunk] = communicator._home._chunks.values()
        return chunk.read()[0].tolist()

    chunks = results(size, body)
    assert np.concatenate(chunks).tolist() == list(range(length))
    assert max(map(len, chunks)) - min(map(len, chunks)) <= 1


def test_the_staleness_counts_the_changes_of_others_since_the_last_fetch():
    def body(communicator):
        shared = communicator.share(np.zeros(5), add)
        shared.fetch()
        communicator.barrier()
        if communicator.rank == 1:
            assert [shared.push(np.ones(5)) for _ in range(3)] == [0, 0, 0]
        communicator.barrier()
        stale = shared.push(np.ones(5)) if communicator.rank == 0 else None
        shared.fetch()
        communicator.barrier()
        fresh = shared.push(np.ones(5)) if communicator.rank == 0 else None
        communicator.barrier()
        return stale, fresh

    assert results(2, body)[0] == (3, 0)


SLOW = """
shared = communicator.share(np.zeros(4), lambda values, change: None)
say("ready")
sys.stdin.readline()
"""


def test_a_member_that_answers_nothing_for_a_while_is_waited_for(monkeypatch):
    """As one whose host is busy. Without its chunk the vector is lost, and so is the training."""
    monkeypatch.setattr(mesh, "_AGAIN", 0.1)

    def body(communicator):
        shared = communicator.share(np.ones(4), add)
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        later = threading.Timer(0.5, os.kill, [process.pid, signal.SIGCONT])
        later.start()
        values = shared.fetch().tolist()
        later.join()
        print(file=process.stdin, flush=True)
        return values

    with Gang(2) as gang, gang.process(1, SLOW) as process:
        assert gang.together(body, ranks=[0]) == [[1.0] * 4]


LARGE_CHUNK = f"""
shared = communicator.share(np.zeros({2 * LARGE}, np.uint8), lambda values, change: None)
say("ready")
sys.stdin.readline()
"""


def test_a_member_that_has_no_room_for_a_change_is_waited_for(monkeypatch):
    """The kernel would end the connection, though the host of the member is there."""
    monkeypatch.setattr(mesh, "_DELIVERY", 0.1)

    def body(communicator):
        shared = communicator.share(np.zeros(2 * LARGE, np.uint8), add)
        assert process.stdout.readline() == "ready\n"
        shared.fetch()  # opens the connection
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        later = threading.Timer(1.5, os.kill, [process.pid, signal.SIGCONT])
        later.start()
        stale = shared.push(np.ones(2 * LARGE, np.uint8))
        later.join()
        print(file=process.stdin, flush=True)
        return stale

    with Gang(2) as gang, gang.process(1, LARGE_CHUNK) as process:
        assert gang.together(body, ranks=[0]) == [0]


PUBLISHED = """
communicator.publish("x", [1.0])
say("ready")
sys.stdin.readline()
"""


def test_a_member_that_was_silent_is_asked_again(monkeypatch):
    """As one whose code has kept Python's lock for some seconds."""

    def body(communicator):
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        monkeypatch.setattr(mesh, "_AGAIN", 0.1)
        silent = communicator.latest(1, "x")
        monkeypatch.setattr(mesh, "_AGAIN", LIMIT)
        os.kill(process.pid, signal.SIGCONT)
        found = communicator.latest(1, "x")
        print(file=process.stdin, flush=True)
        return silent, found.values.tolist()

    with Gang(2) as gang, gang.process(1, PUBLISHED) as process:
        assert gang.together(body, ranks=[0]) == [(None, [1.0])]


def test_two_shared_vectors_are_independent():
    def body(communicator):
        first = communicator.share(np.zeros(4), add)
        second = communicator.share(
            np.ones(6), lambda values, change: np.multiply(values, 2, values)
        )
        communicator.barrier()
        if communicator.rank == 0:
            first.push(np.ones(4))
            second.push(np.zeros(6))
        communicator.barrier()
        found = first.fetch().tolist(), second.fetch().tolist()
        communicator.barrier()
        return found

    assert results(3, body) == [([1] * 4, [2] * 6)] * 3


def test_a_member_frees_its_chunk():
    def body(communicator):
        vectors = [communicator.share(np.zeros(3), add) for _ in range(2)]
        communicator.barrier()
        vectors[0].close()
        vectors[0].close()
        vectors[1].push(np.ones(3))
        communicator.barrier()
        found = vectors[1].fetch().tolist()
        communicator.barrier()
        return found, len(communicator._home._chunks)

    assert results(2, body) == [([2] * 3, 1)] * 2


def test_many_changes_at_once_are_all_applied():
    def body(communicator):
        shared = communicator.share(np.zeros(1000), add)
        for _ in range(50):
            shared.push(np.ones(1000))
        communicator.barrier()
        found = shared.fetch()
        communicator.barrier()
        return found

    for found in results(3, body):
        np.testing.assert_array_equal(found, np.full(1000, 150))


def test_an_error_of_the_function_that_applies_is_told_to_who_pushed():
    def refuse(values, change):
        raise ZeroDivisionError("of the chunk")

    def body(communicator):
        shared = communicator.share(np.zeros(4), refuse if communicator.rank else add)
        communicator.barrier()
        if communicator.rank == 0:
            shared.push(np.ones(4))
        communicator.barrier()

    with Gang(2) as gang:
        error, _ = gang.together(body)
    assert isinstance(error, GangBroken)
    assert "could not apply the change: ZeroDivisionError: of the chunk" in str(error)


def test_bad_arguments_are_refused():
    def body(communicator):
        shared = communicator.share(np.zeros(3), add)
        for call, sentence in [
            (lambda: shared.push(np.zeros(2)), "change: expected float64 of shape (3,), got"),
            (lambda: shared.push(np.zeros(3, np.float32)), "got float32 of shape (3,)"),
            (lambda: communicator.share(np.zeros((2, 2)), add), "vector: expected one dimension"),
            (lambda: communicator.publish("x", "y"), "x: expected an array of numbers, got 'y'"),
            (lambda: communicator.latest(3, "x"), "rank: expected a rank from 0 to 0, got 3"),
        ]:
            with pytest.raises(InvalidArgument) as raised:
                call()
            assert sentence in str(raised.value)

    results(1, body)


def test_published_is_none_or_a_version_and_values():
    assert results(1, lambda c: c.latest(0, "x")) == [None]
    assert Published(1, np.ones(1)).version == 1


def test_a_member_that_has_left_asks_nobody():
    """A thread that still waits for others may ask them; its connection would stay open."""

    def body(communicator):
        communicator.publish("x", [1.0])
        communicator.barrier()
        other = 1 - communicator.rank
        asked = communicator.rank == 0 or communicator.latest(other, "x") is not None
        communicator.barrier()
        if communicator.rank == 0:
            communicator.close()
            assert communicator.latest(other, "x") is None
            assert not communicator._remote._connections
            left.set()
        assert left.wait(LIMIT)
        return asked

    left = threading.Event()
    assert results(2, body) == [True, True]
