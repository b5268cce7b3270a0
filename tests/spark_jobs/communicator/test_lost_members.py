"""A member that ends, stops or leaves raises GangBroken in the others, within a limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from spark_jobs.communicator import mesh as module
from spark_jobs.communicator.in_step.rings import Rings
from spark_jobs.communicator.membership import GangBroken
from spark_jobs.communicator.mesh import Mesh
from tests.spark_jobs.communicator.gangs import LIMIT, Gang

LARGE = 50_000_000  # bytes: far more than the kernel keeps for a connection

HALF_A_CHUNK = f"""
from spark_jobs.communicator.in_step.calls import Call
from spark_jobs.communicator.arrays import ArrayType
after = communicator._collectives._rings._links[0].after
array = ArrayType("uint8", ({LARGE},))
after.send_message(Call(number=1, name="all_reduce with op='sum'", arrays=(array,), rank=rank))
after.send(memoryview(bytes(1000)))
say("half")
time.sleep(600)
"""


def sum_of_large(communicator):
    return communicator.all_reduce([np.zeros(LARGE, np.uint8)], "sum")


@pytest.mark.parametrize("size", [2, 3])
def test_a_member_killed_in_the_middle_of_a_message(size):
    with Gang(size) as gang, gang.process(size - 1, HALF_A_CHUNK) as process:

        def body(communicator):
            if communicator.rank == 0:
                assert process.stdout.readline() == "half\n"
                process.kill()
            sum_of_large(communicator)

        found = gang.together(body, ranks=range(size - 1))
    for error in found:
        assert isinstance(error, GangBroken)
        assert "all_reduce with op='sum': worker" in str(error)
        assert "has ended or left the gang" in str(error)
    assert {error.rank for error in found} <= {size - 1, *range(size)}
    assert size > 2 or found[0].rank == 1


@pytest.mark.parametrize("code", [HALF_A_CHUNK, "say('half'); time.sleep(600)"])
def test_a_member_that_stops(code):
    with Gang(2) as gang, gang.process(1, code) as process:

        def body(communicator):
            assert process.stdout.readline() == "half\n"
            os.kill(process.pid, signal.SIGSTOP)
            sum_of_large(communicator)

        (error,) = gang.together(body, ranks=[0], patience=0.5)
    assert isinstance(error, GangBroken)
    assert error.rank == 1
    assert "data for 0.5 s" in str(error)


IN_TWO_RINGS = f"""
from spark_jobs.communicator.in_step.calls import Call
from spark_jobs.communicator.arrays import ArrayType
ones = np.ones({LARGE}, np.uint8)
communicator.all_reduce([ones], "sum", rings=2)
links = communicator._collectives._rings._links
array = ArrayType("uint8", ({LARGE},))
name = "all_reduce with op='sum', rings=2"
links[0].after.send_message(Call(number=2, name=name, arrays=(array,), rank=rank))
links[1].after.send(memoryview(bytes(1000)))
say("half")
time.sleep(600)
"""


def test_a_member_killed_in_the_middle_of_a_message_in_the_second_ring():
    with Gang(3) as gang, gang.process(2, IN_TWO_RINGS) as process:

        def body(communicator):
            ones = np.ones(LARGE, np.uint8)
            (found,) = communicator.all_reduce([ones], "sum", rings=2)
            assert (found == 3).all()
            if communicator.rank == 0:
                assert process.stdout.readline() == "half\n"
                process.kill()
            communicator.all_reduce([ones], "sum", rings=2)

        found = gang.together(body, ranks=[0, 1])
    for error in found:
        assert isinstance(error, GangBroken)
        assert "all_reduce with op='sum', rings=2: worker" in str(error)
        assert "has ended or left the gang" in str(error)


def test_a_member_that_leaves_before_a_second_ring_is_open():
    with Gang(3) as gang:

        def body(communicator):
            if communicator.rank != 1:
                communicator.all_reduce([np.ones(3)], rings=2)

        found = gang.together(body)
    assert found[1] is None
    assert all(isinstance(error, GangBroken) for error in (found[0], found[2]))


def test_a_thread_that_cannot_be_started_is_no_lost_member(monkeypatch):
    """And those that were started have ended: they would change the arrays of a later call."""
    start, cut = threading.Thread.start, Rings.cut
    rank_0, started = [], []

    def start_one(thread):
        if thread.name == "gang-ring" and threading.get_ident() in rank_0:
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    def cut_and_wait(rings):  # so that the other thread's error is there when this one is judged
        cut(rings)
        if threading.get_ident() in rank_0:
            started[0].join(LIMIT)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    monkeypatch.setattr(Rings, "cut", cut_and_wait)

    def body(communicator):
        if communicator.rank == 0:
            rank_0.append(threading.get_ident())
        communicator.all_reduce([np.ones(3)], rings=3)

    with Gang(4) as gang:
        found = gang.together(body)
    assert isinstance(found[0], RuntimeError)
    assert str(found[0]) == "can't start new thread"
    assert all(isinstance(error, GangBroken) for error in found[1:])


def test_an_interrupted_call_is_no_lost_member(monkeypatch):
    reduce = Rings.all_reduce
    rank_0 = []

    def interrupted(rings, flat, reduction):
        if threading.get_ident() in rank_0:
            rings.cut()
            with pytest.raises(GangBroken):  # its other rings end with the connections
                reduce(rings, flat, reduction)
            raise InterruptedError
        return reduce(rings, flat, reduction)

    monkeypatch.setattr(Rings, "all_reduce", interrupted)

    def body(communicator):
        if communicator.rank == 0:
            rank_0.append(threading.get_ident())
        communicator.all_reduce([np.ones(3)], rings=2)

    with Gang(3) as gang:
        found = gang.together(body)
    assert isinstance(found[0], InterruptedError)


def test_a_member_that_leaves():
    with Gang(3) as gang:

        def body(communicator):
            if communicator.rank != 1:
                communicator.barrier()

        found = gang.together(body)
    assert found[1] is None
    for error in (found[0], found[2]):
        assert isinstance(error, GangBroken)
        assert "barrier: worker" in str(error)


def test_what_was_sent_before_a_member_left_arrives():
    def body(communicator):
        (found,) = communicator.broadcast([np.full(300_000, communicator.rank)])
        return int(found.sum())

    with Gang(4) as gang:
        assert gang.together(body) == [0] * 4


def test_an_error_in_a_member_ends_the_others():
    with Gang(2) as gang:

        def body(communicator):
            if communicator.rank == 1:
                raise ZeroDivisionError
            communicator.barrier()

        found = gang.together(body)
    assert isinstance(found[0], GangBroken)
    assert isinstance(found[1], ZeroDivisionError)


def test_a_killed_member_has_published_nothing_and_its_chunk_is_gone():
    code = """
communicator.publish("weights", np.ones(3))
shared = communicator.share(np.zeros(4), lambda values, change: None)
say("ready")
time.sleep(600)
"""
    with Gang(2) as gang, gang.process(1, code) as process:

        def body(communicator):
            shared = communicator.share(np.zeros(4), lambda values, change: None)
            assert process.stdout.readline() == "ready\n"
            assert communicator.latest(1, "weights").values.tolist() == [1, 1, 1]
            assert shared.fetch().tolist() == [0, 0, 0, 0]
            process.kill()
            process.wait()
            assert communicator.latest(1, "weights") is None
            assert communicator.latest(1, "weights") is None
            for call in (shared.fetch, lambda: shared.push(np.ones(4))):
                with pytest.raises(GangBroken) as raised:
                    call()
                assert raised.value.rank == 1

        assert gang.together(body, ranks=[0]) == [None]


def test_a_member_that_has_left_can_call_nothing_more():
    def body(communicator):
        communicator.close()
        communicator.close()
        communicator.barrier()

    with Gang(2) as gang:
        found = gang.together(body)
        members = gang.memberships[0].members
    for rank, error in enumerate(found):
        assert str(error) == f"barrier: worker {rank} at {members[rank]} has left the gang"


def test_closing_ends_a_call_of_another_thread():
    def body(communicator):
        if communicator.rank == 1:
            return came.wait(60)
        errors = []

        def call():
            try:
                communicator.barrier()
            except GangBroken as error:
                errors.append(error)

        calling = threading.Thread(target=call)
        calling.start()
        communicator.close()
        calling.join()
        came.set()
        return len(errors)

    came = threading.Event()
    with Gang(2) as gang:
        assert gang.together(body) == [1, True]


def test_a_member_that_connects_but_does_not_come_further_is_noticed(monkeypatch):
    """It answers the others, but has not reached all of them by itself."""
    opened, open_one = [], Mesh.open

    def open_and_let_the_limit_pass(*args):
        opened.append(open_one(*args))
        return opened[-1]

    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + LIMIT * len(opened), sleep=time.sleep
    )
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Mesh, "open", open_and_let_the_limit_pass)
    with Gang(2) as gang:
        mesh = Mesh(gang.memberships[1], gang.ports[1], lambda _: None, limit=LIMIT, patience=LIMIT)
        with pytest.raises(GangBroken, match="worker 1 .* has not connected to worker 0 .* within"):
            gang.connect(0)
        mesh.close()
