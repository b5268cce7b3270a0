"""Members that meet late, at different points, or never."""

from __future__ import annotations

import errno
import os
import signal
import threading

import pytest

from spark_jobs.communicator import meeting, mesh
from spark_jobs.communicator.membership import GangBroken, MembersDisagree
from spark_jobs.communicator.remote import Remote
from tests.spark_jobs.communicator.gangs import LIMIT, Gang, results


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch):
    monkeypatch.setattr(meeting, "_LOOK", 0.01)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_members_meet_after_as_many_steps_of_their_own(size):
    def body(communicator):
        for _ in range(3):
            for _ in range(5):
                communicator.begin_step()
            communicator.meet()
        return communicator.all_reduce([[communicator.rank]], "sum")[0].tolist()

    assert results(size, body) == [[sum(range(size))]] * size


def test_a_member_that_is_later_than_the_patience_is_waited_for():
    waits = threading.Event()

    def body(communicator):
        if communicator.rank == 1:
            assert waits.wait(LIMIT)
            for _ in range(3):  # the other one has waited longer than its patience
                threading.Event().wait(0.2)
        else:
            waits.set()
        communicator.meet()
        return communicator.rank

    with Gang(2) as gang:
        assert gang.together(body, patience=0.2) == [0, 1]


@pytest.mark.parametrize("size", [2, 4])
def test_a_member_that_waits_in_a_step_that_others_do_not_make_is_named(size):
    """So it is at the end of an epoch, of a repeat, or of the training."""
    failed = threading.Event()

    def body(communicator):
        communicator.begin_step()
        if communicator.rank == 0:
            communicator.begin_step()
            assert failed.wait(LIMIT)
            return
        try:
            communicator.meet()
        finally:
            failed.set()

    with Gang(size) as gang:
        found = gang.together(body)
    disagreeing = [error for error in found if isinstance(error, MembersDisagree)]
    assert disagreeing
    for error in disagreeing:
        assert "waits for the other workers after 1 steps that all make together" in str(error)
        assert "but worker 0 has begun another one, in which it waits for worker" in str(error)
    assert all(isinstance(error, GangBroken | MembersDisagree) for error in found[1:])


def test_a_member_goes_on_with_steps_after_it_has_met_the_others():
    """A step after the meeting is no step that another one lacks."""

    def body(communicator):
        for _ in range(30):
            communicator.meet()
            communicator.begin_step()
        return True

    assert results(3, body) == [True] * 3


@pytest.mark.slow
@pytest.mark.contract
def test_a_member_that_ends_before_it_comes_breaks_the_gang_of_all(monkeypatch):
    """Also of those that no ring connects to it, while its neighbours do something else."""
    monkeypatch.setattr(meeting, "_LATE", 0.01)
    failed = threading.Event()

    def body(communicator):
        if communicator.rank == 2:
            return "left"
        if communicator.rank != 0:
            assert failed.wait(LIMIT)
            return "busy"
        try:
            communicator.meet()
        finally:
            failed.set()

    with Gang(4) as gang:
        found = gang.together(body)
    assert found[1:] == ["busy", "left", "busy"]
    assert isinstance(found[0], GangBroken)
    assert found[0].rank == 2


def test_a_member_that_has_left_meets_nobody():
    def body(communicator):
        communicator.close()
        with pytest.raises(GangBroken, match="barrier: worker 0 at .* has left the gang"):
            communicator.meet()

    with Gang(2) as gang:
        assert gang.together(lambda c: None if c.rank else body(c)) == [None, None]


def test_a_member_without_descriptors_takes_no_other_one_for_lost(monkeypatch):
    """It asks again, and meets the others over the connections that it has."""
    monkeypatch.setattr(mesh, "_AGAIN", 0.0)
    monkeypatch.setattr(meeting, "_LATE", 0.0)
    tries, asked_again = [], threading.Event()

    def exhausted(*arguments):
        tries.append(arguments)
        if len(tries) > 1:
            asked_again.set()
        raise OSError(errno.EMFILE, "Too many open files")

    def body(communicator):
        communicator.barrier()
        monkeypatch.setattr(mesh, "connected", exhausted)
        if communicator.rank == 1:
            assert asked_again.wait(LIMIT)
        try:
            communicator.meet()
        finally:
            asked_again.set()
        return "met"

    with Gang(2) as gang:
        assert gang.together(body) == ["met", "met"]


LATE = """
communicator.publish("x", [1.0])
say("ready")
sys.stdin.readline()
communicator.meet()
sys.stdin.readline()
"""


def test_a_member_that_answers_nothing_for_a_while_is_waited_for(monkeypatch):
    """As one whose native code keeps Python's lock; and later requests reach it again."""
    monkeypatch.setattr(mesh, "_AGAIN", 0.1)
    monkeypatch.setattr(meeting, "_LATE", 0.01)
    silent, latest = threading.Event(), Remote.latest

    def asked(remote, rank, name):
        try:
            return latest(remote, rank, name)
        except GangBroken:
            silent.set()
            raise

    def go_on():
        assert silent.wait(LIMIT)
        monkeypatch.setattr(mesh, "_AGAIN", LIMIT)
        os.kill(process.pid, signal.SIGCONT)
        print(file=process.stdin, flush=True)

    def body(communicator):
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        communicator.meet()
        return communicator.latest(1, "x").values.tolist()

    monkeypatch.setattr(Remote, "latest", asked)
    with Gang(2) as gang, gang.process(1, LATE) as process:
        later = threading.Thread(target=go_on)
        later.start()
        assert gang.together(body, ranks=[0]) == [[1.0]]
        later.join()
