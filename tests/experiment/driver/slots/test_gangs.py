"""Gangs of free slots, without a search: forming them, and what their members' ends mean."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.driver.slots.arrivals import _PREPARING, _QUIET
from experiment.driver.slots.gangs import Gangs
from experiment.setup.workers import Workers
from search.trial import Failure, Outcome, Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Heard, MemberAddress, SlotId
from tests.properties import examples

GRACE = 3.0
LOST = Failure(kind="lost executor", message="its executor was lost")


def anything(slot):
    return True


def address(slot):
    job, partition, attempt = SlotId.parse(slot)
    port = 20_000 + 100 * job + 10 * partition + attempt
    return MemberAddress(links=f"10.0.0.1:{port}", server=f"10.0.0.1:{port + 5_000}")


def finished(trial=0, value=1.0):
    return Outcome(trial, "finished", value, "metric", {"metric": value})


def failed(kind="user error", message="ValueError: no", trial=0):
    return Outcome.failed(trial, kind, message)


def cancelled(trial=0):
    return Outcome(trial, "cancelled")


def gangs_of(size, most=None, make_pair=lambda: (b"key", b"certificate")):
    return Gangs(Workers(size, most or size), grace=GRACE, make_pair=make_pair)


def waiting(size, *hosts, most=None):
    """Return gangs of a size, and free slots on these hosts: 1.0.0, 1.1.0, ..."""
    gangs, slots = gangs_of(size, most), [f"1.{number}.0" for number in range(len(hosts))]
    for slot, host in zip(slots, hosts, strict=True):
        gangs.wait(slot, host, address(slot), 0.0)
    return gangs, slots


def formed(size):
    """Return gangs with one that runs trial 0 on slots 1.0.0, 1.1.0, ..., and these slots."""
    gangs, slots = waiting(size, *["a"] * size)
    gangs.form(Attempt(Trial(0, {})), gangs.pick(slots[0], anything, 0.0))
    return gangs, slots


# Forming.


def test_a_gang_of_one_is_the_slot_that_asks_and_has_no_keys():
    gangs, (first, second) = waiting(1, "a", "a")
    assert gangs.pick(second, anything, 0.0) == (second,)
    attempt = Attempt(Trial(0, {}))
    assert gangs.form(attempt, (second,)) is attempt
    assert gangs.work(second) is attempt
    assert gangs.work(first) is None
    assert gangs.assigned() == []


def test_no_gang_is_formed_of_too_few_slots():
    gangs, (first, second) = waiting(3, "a", "a")
    assert gangs.pick(first, anything, 0.0) == ()
    gangs.wait("1.2.0", "b", address("1.2.0"), 0.0)
    assert gangs.pick(second, anything, 0.0) == (second, first, "1.2.0")


def test_each_member_gets_its_rank_and_the_addresses_of_all():
    gangs, slots = waiting(2, "a", "b")
    first = gangs.form(Attempt(Trial(7, {"x": 1}), 3), gangs.pick(slots[1], anything, 0.0))
    second = gangs.work(slots[0])
    assert gangs.work(slots[1]) == first
    for rank, attempt in enumerate((first, second)):
        assert (attempt.trial.id, attempt.number, attempt.rank, attempt.workers) == (7, 3, rank, 2)
        assert attempt.gang.members == (address(slots[1]).links, address(slots[0]).links)
        assert attempt.gang.servers == (address(slots[1]).server, address(slots[0]).server)
        assert (attempt.gang.key, attempt.gang.certificate) == ("key", "certificate")
    assert gangs.assigned() == [slots[0]]
    assert gangs.assigned() == []


def test_each_gang_has_a_key_of_its_own():
    gangs, slots = waiting(2, *"aaaa")
    gangs._make_pair = Gangs()._make_pair
    works = [
        gangs.form(Attempt(Trial(n, {})), gangs.pick(slots[2 * n], anything, 0.0)) for n in range(2)
    ]
    assert works[0].gang.key != works[1].gang.key
    assert "BEGIN PRIVATE KEY" in works[0].gang.key
    assert works[0].gang.key not in repr(works)
    assert works[0].gang.certificate not in repr(works)


def test_a_gang_runs_on_the_host_of_the_slot_that_asks_if_that_has_room():
    gangs, slots = waiting(2, "a", "b", "b", "c", "b", "a")
    assert gangs.pick(slots[0], anything, 0.0) == (slots[0], slots[5])
    assert gangs.pick(slots[2], anything, 0.0) == (slots[2], slots[1])


def test_the_other_members_are_on_the_hosts_with_the_most_free_slots():
    gangs, slots = waiting(4, "a", "c", "b", "b", "c", "b")
    assert gangs.pick(slots[0], anything, 0.0) == (slots[0], slots[2], slots[3], slots[5])
    assert gangs.pick(slots[1], anything, 0.0) == (slots[1], slots[4], slots[2], slots[3])


def test_slots_that_may_not_work_and_hosts_to_avoid_are_left_out():
    gangs, slots = waiting(2, "a", "a", "b", "c")
    assert gangs.pick(slots[0], lambda slot: slot != slots[1], 0.0) == (slots[0], slots[2])
    assert gangs.pick(slots[0], lambda slot: slot != slots[0], 0.0) == ()
    assert gangs.pick(slots[0], anything, 0.0, {"a"}) == ()
    assert gangs.pick(slots[2], anything, 0.0, {"a"}) == (slots[2], slots[3])
    assert gangs.pick(slots[2], anything, 0.0, {"a", "c"}) == ()


def test_two_attempts_of_a_task_never_meet():
    gangs = gangs_of(2)
    for slot in ("1.0.0", "1.0.1"):
        gangs.wait(slot, "a", address(slot), 0.0)
    assert gangs.pick("1.0.0", anything, 0.0) == ()
    gangs.wait("1.1.0", "b", address("1.1.0"), 0.0)
    assert gangs.pick("1.0.1", anything, 0.0) == ("1.0.1", "1.1.0")


def test_a_slot_that_is_asked_for_again_keeps_its_address():
    gangs, slots = waiting(2, "a", "a")
    for slot in slots:
        gangs.wait(slot, "a", None, 0.0)
    attempt = gangs.form(Attempt(Trial(0, {})), gangs.pick(slots[0], anything, 0.0))
    assert attempt.gang.members == (address(slots[0]).links, address(slots[1]).links)


def test_a_slot_without_an_address_joins_no_gang():
    gangs, (first,) = waiting(2, "a")
    gangs.wait("1.1.0", "a", None, 0.0)
    assert gangs.pick(first, anything, 0.0) == gangs.pick("1.1.0", anything, 0.0) == ()


def test_a_slot_that_leaves_is_not_free_any_more():
    gangs, (first, second) = waiting(2, "a", "a")
    gangs.leave(second)
    assert gangs.pick(first, anything, 0.0) == ()


# Of different sizes.


def test_a_gang_takes_as_many_slots_as_there_are():
    gangs, slots = waiting(2, *"ababb", most=4)
    assert gangs.pick(slots[0], anything, 0.0) == (slots[0], slots[2], slots[1], slots[3])
    gangs, (first, second, third) = waiting(2, *"aba", most=4)
    assert gangs.pick(first, anything, 0.0) == (first, third, second)
    gangs, (first,) = waiting(2, "a", most=4)
    assert gangs.pick(first, anything, 0.0) == ()


def test_fewer_slots_than_a_gang_may_have_wait_a_while_for_others():
    gangs = gangs_of(2, 4)
    for number, slot in enumerate(slots := ("1.0.0", "1.1.0")):
        gangs.come(slot, 10.0 + number)
        gangs.wait(slot, "a", address(slot), 10.0 + number)
    assert gangs.pick(slots[0], anything, 11.0 + _QUIET) == ()
    assert gangs.pick(slots[0], anything, 11.1 + _QUIET) == slots
    gangs.come("1.2.0", 20.0)
    assert gangs.pick(slots[0], anything, 20.1 + _QUIET) == (), "it imports what trials need"
    assert gangs.pick(slots[0], anything, 20.1 + _PREPARING) == slots
    gangs.wait("1.2.0", "a", address("1.2.0"), 30.0)
    assert gangs.pick(slots[0], anything, 30.0) == ()
    gangs.wait("1.2.0", "a", address("1.2.0"), 34.0)
    assert gangs.pick(slots[0], anything, 30.1 + _QUIET) == (*slots, "1.2.0")


def test_a_slot_that_is_lost_while_it_imports_is_not_waited_for():
    gangs, slots = waiting(2, "a", "a", most=4)
    gangs.come("1.2.0", 10.0)
    lose(gangs, "1.2.0")
    assert gangs.pick(slots[0], anything, 10.1 + _QUIET) == tuple(slots)


def test_a_gang_of_the_greatest_size_waits_for_nobody():
    gangs, slots = waiting(2, *"aaaa", most=4)
    gangs.come("1.4.0", 0.0)
    assert gangs.pick(slots[0], anything, 0.0) == tuple(slots)


def test_the_slots_of_a_gang_form_the_next_one_at_once_without_the_one_that_was_lost():
    gangs, (first, second, third) = waiting(2, *"aaa", most=4)
    attempt = gangs.form(Attempt(Trial(0, {})), gangs.pick(first, anything, 0.0))
    assert attempt.workers == 3
    assert lose(gangs, second) is None
    for slot in (third, first):
        verdict = gangs.end(slot, 1, cancelled(), 10.0)
        gangs.wait(slot, "a", address(slot), 10.0)
    assert verdict.outcome.error.message == f"worker 1 of 3, on a: {LOST.message}"
    again = gangs.form(Attempt(Trial(0, {}), 2), gangs.pick(first, anything, 10.0))
    assert (again.workers, gangs.work(third).rank) == (2, 1)


def test_a_gang_of_one_among_larger_ones_has_no_keys():
    gangs, (slot,) = waiting(1, "a", most=2)
    attempt = Attempt(Trial(0, {}))
    assert gangs.form(attempt, gangs.pick(slot, anything, 0.0)) is attempt


# Ends.


def test_the_value_of_rank_0_counts_at_once():
    gangs, (first, second) = formed(2)
    verdict = gangs.end(first, 1, finished(), 10.0)
    assert (verdict.attempt, verdict.member.slot, verdict.outcome) == (1, first, finished())
    assert not verdict.is_lost
    assert gangs.work(second).rank == 1


def test_the_value_of_another_rank_counts_for_nothing():
    gangs, (first, second) = formed(2)
    assert gangs.end(second, 1, finished(value=7.0), 10.0) is None
    assert gangs.end(first, 1, finished(value=1.0), 11.0).outcome.value == 1.0


def test_members_have_to_end_some_time_after_rank_0_has_returned():
    gangs, (first, second) = formed(2)
    gangs.end(first, 1, finished(), 10.0)
    assert gangs.order_to_end(second, 0, 1, 10.0 + GRACE - 0.1) is None
    has_returned = Heard(end="worker 0 of 2 has returned")
    assert gangs.order_to_end(second, 0, 1, 10.0 + GRACE) == has_returned


def test_members_have_to_end_at_once_when_one_has_failed():
    gangs, (first, second) = formed(2)
    assert gangs.order_to_end(first, 0, 1, 10.0) is None
    assert gangs.end(second, 1, failed(), 10.0) is None
    assert gangs.order_to_end(first, 0, 1, 10.0) == Heard(end="worker 1 of 2 has failed")


def test_the_verdict_waits_for_all_members_and_blames_the_one_that_has_failed():
    gangs, (first, second) = formed(2)
    assert gangs.end(second, 1, failed(), 10.0) is None
    verdict = gangs.end(first, 1, cancelled(), 11.0)
    assert verdict.member.slot == second
    assert verdict.outcome.error == Failure(
        kind="user error", message="worker 1 of 2, on a: ValueError: no"
    )


def test_a_failure_has_the_host_of_its_member():
    gangs, slots = waiting(3, "a", "b", "c")
    gangs.form(Attempt(Trial(0, {})), gangs.pick(slots[1], anything, 0.0))
    hosts = ("b", "a", "c")
    assert [gangs.work(slot).rank for slot in slots] == [hosts.index(host) for host in "abc"]
    gangs.end(slots[2], 1, failed(), 10.0)
    gangs.end(slots[0], 1, cancelled(), 10.0)
    verdict = gangs.end(slots[1], 1, cancelled(), 10.0)
    assert verdict.outcome.error.message == "worker 2 of 3, on c: ValueError: no"


def test_the_verdict_on_a_member_that_does_not_end_comes_in_time():
    gangs, (first, second) = formed(2)
    assert gangs.end(second, 1, failed("exit", "exit 3"), 10.0) is None
    limit = 10.0 + 2 * GRACE + time_limits.GANG_END
    assert list(gangs.overdue(limit)) == []
    (verdict,) = gangs.overdue(limit + 0.1)
    assert verdict.outcome.error.message == "worker 1 of 2, on a: exit 3"
    assert list(gangs.overdue(limit + 0.2)) == []
    assert gangs.work(first).rank == 0, "it still runs"
    assert gangs.order_to_end(first, 0, 1, limit + 1) == Heard(end="worker 1 of 2 has failed")
    assert gangs.end(first, 1, cancelled(), limit + 2) is None


def test_a_member_that_sends_messages_is_waited_for_as_it_may_store_a_checkpoint():
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, failed("exit", "exit 3"), 10.0)
    limit = 2 * GRACE + time_limits.GANG_END
    for now in (20.0, 20.0 + limit, 20.0 + 2 * limit):
        gangs.hear(first, 0, 1, now)
        assert list(gangs.overdue(now + limit)) == []
    (verdict,) = gangs.overdue(20.0 + 3 * limit + 0.1)
    assert verdict.member.slot == second


def test_a_member_that_never_ends_to_store_its_files_is_waited_for_as_long_as_an_outage():
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, failed("exit", "exit 3"), 10.0)
    limit = 10.0 + 2 * GRACE + time_limits.GANG_END + time_limits.OUTAGE
    gangs.hear(first, 0, 1, limit)
    assert list(gangs.overdue(limit)) == []
    assert len(list(gangs.overdue(limit + 0.1))) == 1


def test_a_value_of_rank_0_counts_though_another_member_has_failed():
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, failed(), 10.0)
    assert gangs.end(first, 1, finished(), 10.5).outcome == finished()


UNREACHED = Outcome(
    0,
    "failed",
    error=Failure(
        kind="machine",
        message="worker 0 on host a does not reach worker 1 at b:1 within 60 s (timed out)",
        unreached=True,
    ),
)
CAUSES = {
    "lost executor": "its executor was lost",
    "machine": "no space left",
    "memory": "signal 9 (SIGKILL) before it returned, out of memory",
    "gpu memory": "ResourceExhaustedError: OOM",
    "time": "ended at the time limit of 5 s",
    "invalid value": "want a number, got None",
    "exit": "signal 9 (SIGKILL) before it returned",
    "user error": "ValueError: rank 1 does not like this",
}
CONSEQUENCES = [
    failed("user error", "UnavailableError: Socket closed"),
    failed("user error", "InternalError: Collective ops is aborted by: a peer"),
    failed("user error", "GangBroken: worker 1 at 10.0.0.5:23456 has ended or left the gang"),
    failed("user error", "RuntimeError: [gloo/pair.cc] Connection closed by peer [10.0.0.5]"),
    failed("user error", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    failed("user error", "ConnectionRefusedError: [Errno 111] Connection refused"),
    failed("user error", "EOFError"),
    failed("user error", "RuntimeError: [gloo/unbound_buffer.cc] Timed out waiting 1800000ms"),
    failed("user error", "TimeoutError: timed out"),
    failed("user error", "torch.distributed.DistBackendError: NCCL error, ncclRemoteError: A call"),
    failed("user error", "InternalError: NCCL: remote process exited or there was a network error"),
    UNREACHED,
    cancelled(),
    finished(),
]


@given(
    st.integers(2, 5),
    st.sampled_from(sorted(CAUSES)),
    st.data(),
)
def test_the_member_that_is_the_cause_is_blamed_whoever_ends_first(size, kind, data):
    cause = data.draw(st.integers(0, size - 1))
    gangs, slots = formed(size)
    verdicts = []
    for rank in data.draw(st.permutations(range(size))):
        if rank != cause:
            others = CONSEQUENCES if rank else CONSEQUENCES[:-1]
            verdicts.append(gangs.end(slots[rank], 1, data.draw(st.sampled_from(others)), 10.0))
        elif kind == "lost executor":
            failure = Failure(kind=kind, message=CAUSES[kind])
            verdicts.append(gangs.lose(slots[rank], failure, 10.0, counts=True))
        else:
            verdicts.append(gangs.end(slots[rank], 1, failed(kind, CAUSES[kind]), 10.0))
    *undecided, verdict = verdicts
    assert undecided == [None] * (size - 1)
    assert verdict.member.slot == slots[cause]
    assert verdict.outcome.error == Failure(
        kind=kind, message=f"worker {cause} of {size}, on a: {CAUSES[kind]}"
    )
    assert verdict.is_lost == (kind == "lost executor")


def test_a_silent_member_that_another_one_has_not_reached_is_blamed():
    """Its host may be cut off, which Spark notices later."""
    gangs, (first, second) = formed(2)
    assert gangs.end(first, 1, UNREACHED, 10.0) is None
    (verdict,) = gangs.overdue(10.1 + 2 * GRACE + time_limits.GANG_END)
    assert (verdict.member.slot, verdict.is_lost) == (second, True)
    assert verdict.outcome.error.kind == "lost executor"
    assert UNREACHED.error.message in verdict.outcome.error.message


def test_a_member_that_has_not_reached_another_one_is_blamed_if_all_have_ended():
    gangs, (first, second) = formed(2)
    gangs.end(first, 1, UNREACHED, 10.0)
    verdict = gangs.end(second, 1, cancelled(), 11.0)
    assert (verdict.member.slot, verdict.is_lost) == (first, False)
    assert verdict.outcome.error.kind == "machine"


def test_a_process_that_aborts_after_another_failure_is_not_blamed():
    """TensorFlow and NCCL abort when they have lost another process."""
    aborted = failed("exit", "signal 6 (SIGABRT) before it returned")
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, failed(), 10.0)
    assert gangs.end(first, 1, aborted, 10.0).member.slot == second
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, aborted, 10.0)
    assert gangs.end(first, 1, failed(), 10.0).member.slot == second
    gangs, (first, second) = formed(2)
    gangs.end(second, 1, aborted, 10.0)
    assert gangs.end(first, 1, CONSEQUENCES[0], 10.0).member.slot == second


def test_of_two_failures_of_a_kind_the_first_is_blamed():
    """As where Spark ends the other slots of a job whose task has failed."""
    gangs, (first, second) = formed(2)
    assert gangs.lose(second, LOST, 10.0, counts=True) is None
    ended = Failure(kind="lost executor", message="Spark ended its slot's job")
    verdict = gangs.lose(first, ended, 10.0, counts=False)
    assert (verdict.member.slot, verdict.counts) == (second, True)
    assert verdict.outcome.error.message == f"worker 1 of 2, on a: {LOST.message}"


def test_a_lost_slot_of_a_gang_of_one_is_the_verdict_at_once():
    gangs, (slot,) = formed(1)
    verdict = gangs.lose(slot, LOST, 10.0, counts=False)
    assert (verdict.outcome.error, verdict.is_lost, verdict.counts) == (LOST, True, False)
    assert gangs.work(slot) is None


def test_an_outcome_of_another_attempt_and_a_repeated_one_change_nothing():
    gangs, (first, second) = formed(2)
    assert gangs.end(first, 2, finished(), 10.0) is None
    assert gangs.end(first, 1, finished(trial=1), 10.0) is None
    assert gangs.end("1.7.0", 1, finished(), 10.0) is None
    assert gangs.end(first, 1, finished(), 10.0) is not None
    assert gangs.end(first, 1, finished(), 10.0) is None
    assert gangs.order_to_end(second, 0, 1, 10.0) is None
    assert gangs.order_to_end(first, 0, 1, 10.0).stop == "its slot was given up"


def test_a_slot_waits_until_its_gang_is_over_and_then_its_slots_are_free_together():
    gangs, (first, second) = formed(2)
    gangs.end(first, 1, finished(), 10.0)
    gangs.wait(first, "a", address(first), 0.0)
    gangs.wait("1.2.0", "a", address("1.2.0"), 0.0)
    assert gangs.is_kept(first)
    assert gangs.pick("1.2.0", anything, 0.0) == ()
    gangs.end(second, 1, cancelled(), 11.0)
    assert not gangs.is_kept(first)
    gangs.wait(second, "a", address(second), 0.0)
    assert gangs.pick(second, anything, 0.0) == (second, "1.2.0")
    assert gangs.pick(first, anything, 0.0) == (first, "1.2.0")


def test_slots_whose_other_member_never_ends_are_free_after_a_while():
    gangs, (first, second) = formed(2)
    gangs.end(first, 1, finished(), 10.0)
    gangs.wait(first, "a", address(first), 0.0)
    gangs.wait("1.2.0", "a", address("1.2.0"), 0.0)
    list(gangs.overdue(11.0 + 2 * GRACE + time_limits.GANG_END))
    assert gangs.pick("1.2.0", anything, 0.0) == ("1.2.0", first)
    assert gangs.work(second).trial.id == 0


def test_a_kept_slot_that_is_lost_or_leaves_is_forgotten():
    for end in (lambda gangs, slot: gangs.leave(slot), lose):
        gangs, (first, second) = formed(2)
        gangs.end(first, 1, finished(), 10.0)
        gangs.wait(first, "a", address(first), 0.0)
        end(gangs, first)
        gangs.end(second, 1, cancelled(), 11.0)
        gangs.wait(second, "a", address(second), 0.0)
        assert gangs.pick(second, anything, 0.0) == ()


def lose(gangs, slot, now=10.0):
    return gangs.lose(slot, LOST, now, counts=True)


class Simulation:
    """Slots that come, wait, end and are lost in any order, while trials are left."""

    def __init__(self, workers, trials):
        self.workers = workers
        self.gangs = gangs_of(*workers)
        self.left = [Attempt(Trial(number, {})) for number in range(trials)]
        self.running = {}  # attempts by slot, as the slots got them
        self.slots, self.now, self.verdicts, self.next_slot = {}, 0.0, [], 0

    def come(self, choice):
        slot = f"1.{self.next_slot}.0"
        self.next_slot += 1
        self.slots[slot] = "abc"[choice % 3]
        self.gangs.come(slot, self.now)
        if choice % 2:  # else it imports
            self.ask(slot)

    def ask(self, slot):
        self.gangs.wait(slot, self.slots[slot], address(slot), self.now)
        slots = self.gangs.pick(slot, anything, self.now) if self.left else ()
        if not slots:
            return
        least, most = self.workers
        assert least <= len(set(slots)) <= most, "never a part of a gang"
        assert not set(slots) & set(self.running), "no slot in two gangs"
        assert len({SlotId.parse(other).task for other in slots}) == len(slots)
        attempt = self.left.pop(0)
        self.gangs.form(attempt, slots)
        assert set(self.gangs.assigned()) == set(slots) - {slot}
        for rank, member in enumerate(slots):
            work = self.gangs.work(member)
            assert (work.trial, work.number, work.rank) == (attempt.trial, attempt.number, rank)
            self.running[member] = work

    def ask_again(self, choice):
        idle = [slot for slot in self.slots if slot not in self.running]
        if idle:
            self.ask(idle[choice % len(idle)])

    def end(self, choice):
        busy = list(self.running)
        if not busy:
            return
        slot = busy[choice % len(busy)]
        work = self.running.pop(slot)
        why = self.gangs.order_to_end(slot, work.trial.id, work.number, self.now)
        outcomes = [finished(work.trial.id), failed(trial=work.trial.id)]
        outcome = cancelled(work.trial.id) if why else outcomes[choice % 2]
        self.settle(self.gangs.end(slot, work.number, outcome, self.now))
        self.ask(slot)

    def lose(self, choice):
        slots = list(self.slots)
        if not slots:
            return
        slot = slots[choice % len(slots)]
        del self.slots[slot]
        self.running.pop(slot, None)
        self.settle(lose(self.gangs, slot, self.now))

    def wait(self, choice):
        self.now += choice
        for verdict in self.gangs.overdue(self.now):
            self.settle(verdict)

    def settle(self, verdict):
        if verdict is None:
            return
        trial = verdict.outcome.trial
        self.verdicts.append((trial, verdict.attempt))
        if verdict.is_lost:  # runs again
            self.left.append(Attempt(Trial(trial, {}), verdict.attempt + 1))

    def finish(self):
        """Let all slots go on, with enough of them, until every trial has ended."""
        for number in range(self.workers.least):
            self.come(number)
        self.ask_all()
        while self.left or self.running:
            for number in range(len(self.running)):
                self.end(number)
            self.wait(100)
            self.ask_all()

    def ask_all(self):
        for slot in [slot for slot in self.slots if slot not in self.running]:
            self.ask(slot)


steps = st.lists(
    st.tuples(
        st.sampled_from(["come"] * 3 + ["end"] * 5 + ["lose", "ask_again", "ask_again", "wait"]),
        st.integers(0, 40),
    ),
    max_size=60,
)


@examples(200)
@given(st.integers(1, 4), st.sampled_from([0, 0, 1, 3]), st.integers(0, 6), steps)
def test_whatever_slots_do_gangs_are_whole_and_every_trial_ends_once(least, more, trials, steps):
    simulation = Simulation(Workers(least, least + more), trials)
    for action, choice in steps:
        getattr(simulation, action)(choice)
    simulation.finish()
    assert max(Counter(simulation.verdicts).values(), default=1) == 1
    assert {trial for trial, _ in simulation.verdicts} == set(range(trials))
    gangs = simulation.gangs
    assert not gangs._gangs
    assert not gangs._ending
    assert not gangs._kept
    assert set(gangs._hosts) == set(simulation.slots)


@pytest.mark.parametrize("size", [1, 3])
def test_an_attempt_that_was_given_up_is_nobodys(size):
    """A trial in a gang is ended at once: the others of its gang do not wait for it."""
    gangs, slots = formed(size)
    for slot in slots:
        lose(gangs, slot)
    assert all(gangs.work(slot) is None for slot in slots)
    given_up = "its slot was given up"
    order = Heard(stop=given_up, end=given_up if size > 1 else "")
    assert all(gangs.order_to_end(slot, 0, 1, 10.0) == order for slot in slots)
