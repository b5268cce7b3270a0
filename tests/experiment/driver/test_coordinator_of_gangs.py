"""A coordinator whose trials run on several slots, with a real journal and a simulated clock."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.status import Output
from experiment.run_files.left_outcomes import look_for_outcomes
from experiment.run_files.loading import RunReader
from experiment.run_files.manifest import write_manifest
from experiment.setup.workers import Workers
from search.stopping.rules import Threshold
from search.trial import Outcome, Trial
from spark_jobs import time_limits
from spark_jobs.messages import (
    Attempt,
    Heard,
    Hello,
    MemberAddress,
    Next,
    Report,
    Reports,
    SlotId,
    Stop,
    Wait,
    encode,
)
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.driver.searches import (
    Search,
    assert_journal_adds_up,
    evaluate,
    evolution,
    points,
)
from tests.experiment.runs import GRACE, make_manifest, make_search
from tests.properties import examples


class Gang(Search):
    """A search whose trials run on two slots, at the time `now`."""

    def __init__(self, root, searcher, *slots, workers=2, host=lambda slot: "host", **settings):
        self.now = 0.0
        workers = Workers.read("workers", workers)
        super().__init__(root, searcher, workers=workers, clock=lambda: self.now, **settings)
        self.host = host
        for slot in slots:
            self.hello(slot)

    def hello(self, slot, **said):
        self.coordinator.hello(Hello(slot=slot, host=self.host(slot), **said))

    def ask(self, slot, number=0, outcome=None):
        port = 20_000 + 2 * (100 * SlotId.parse(slot).partition + SlotId.parse(slot).attempt)
        address = MemberAddress(links=f"h:{port}", server=f"h:{port + 1}")
        return self.coordinator.next(Next(slot, number, outcome, address=address))

    def hand_in(self, slot, attempt, outcome):
        return self.ask(slot, attempt, outcome)

    def runs(self, slot, work, *reports, output=""):
        message = Reports(
            slot=slot,
            trial=work.trial.id,
            attempt=work.number,
            reports=reports,
            output=output,
        )
        return self.coordinator.report(message)


@pytest.fixture
def start(tmp_path):
    searches = []

    def start(searcher, *slots, **settings):
        searches.append(Gang(tmp_path / str(len(searches)), searcher, *slots, **settings))
        return searches[-1]

    yield start
    for search in searches:
        search.journal.close()


TWO = ("1.0.0", "1.1.0")


def begin(search, *slots):
    """Let slots ask in this order; return the attempt of the gang that the last one completes."""
    *others, last = slots
    assert all(search.ask(slot) == Wait() for slot in others)
    work = search.ask(last)
    assert isinstance(work, Attempt)
    assert search.coordinator.assigned() == others
    return work


def cancelled(work):
    return Outcome(work.trial.id, "cancelled")


def test_a_trial_starts_when_enough_slots_wait_and_each_gets_its_place(start):
    search = start(points(1), *TWO)
    first = begin(search, *TWO)
    second = search.coordinator.next(Next("1.0.0"))
    assert (first.rank, second.rank) == (0, 1)
    assert first.gang.members == second.gang.members
    (running,) = search.coordinator.trials.status.running
    assert running.slots == ("1.1.0", "1.0.0")
    assert search.coordinator.trials.status.at_once == 1
    (planned,) = search.records("planned")
    assert (planned["slot"], planned["slots"]) == ("1.1.0", ["1.1.0", "1.0.0"])
    assert "key" not in planned


def test_slots_that_wait_for_different_gangs_wait_for_different_work(start):
    """Else one that is still kept would stop the wake of those whose gang is over."""
    search = start(points(3), *(slots := [f"1.{partition}.0" for partition in range(6)]))
    gangs = [slots[:2], slots[2:4], slots[4:]]
    works = [begin(search, *gang) for gang in gangs]
    alike = search.coordinator.alike
    before = [alike(first) for first, _ in gangs]
    assert len(set(before)) == 1
    for (first, _), work in zip(gangs, works, strict=True):
        assert search.ask(first, work.number, cancelled(work)) == Wait()
    assert len({alike(first) for first, _ in gangs} | set(before)) == 4
    search.coordinator.ends.slots_lost([last for _, last in gangs[1:]])
    assert [alike(first) == before[0] for first, _ in gangs] == [False, True, True]
    assert isinstance(search.ask(gangs[1][0]), Attempt)
    assert search.coordinator.assigned() == [gangs[2][0]]


def test_the_next_trial_starts_when_all_slots_of_the_last_have_ended(start):
    search = start(points(2), *TWO)
    work = begin(search, *TWO)
    assert search.finish("1.1.0", work) == Wait()
    assert search.ended == [0]
    following = search.hand_in("1.0.0", 1, cancelled(work))
    assert (following.trial.id, following.rank) == (1, 0)
    assert search.coordinator.assigned() == ["1.1.0"]
    assert search.records("waiting")[1:] == [], "slots wait only a moment between trials"


def test_a_slot_without_others_waits_for_them_and_the_journal_says_so(start):
    search = start(points(1), "1.0.0")
    assert search.ask("1.0.0") == Wait()
    assert [record["why"] for record in search.records("waiting")] == ["too few slots"]
    assert search.coordinator.missing() == (1, 1)


def test_nothing_is_missing_while_a_trial_runs(start):
    search = start(points(2), *TWO)
    assert search.coordinator.missing() == (2, 0)
    begin(search, *TWO)
    search.coordinator.ends.slots_lost(["1.0.0"])
    assert search.coordinator.missing() == (1, 0)


def test_slots_stay_while_a_gang_may_break_and_end_when_none_can(start):
    search = start(points(1), *TWO, "1.2.0")
    work = begin(search, *TWO)
    assert search.ask("1.2.0") == Wait()
    search.coordinator.ends.slots_lost(["1.0.0"])
    again = search.hand_in("1.1.0", 1, cancelled(work))
    assert (again.trial.id, again.number, again.rank) == (0, 2, 0)
    assert search.coordinator.assigned() == ["1.2.0"]
    assert search.finish("1.1.0", again) == Stop()
    assert search.hand_in("1.2.0", 2, cancelled(again)) == Stop()


def test_a_copy_of_the_task_of_a_worker_that_still_ends_waits(start):
    """If it ended, Spark would kill the worker, which may still have output to keep."""
    search = start(points(1), *TWO, "1.0.1")
    work = begin(search, *TWO)
    assert search.ask("1.0.1") == Wait()
    assert search.finish("1.1.0", work) == Stop()
    assert search.ask("1.0.1") == Wait()
    assert search.hand_in("1.0.0", 1, cancelled(work)) == Stop()
    assert search.ask("1.0.1") == Stop()


def test_members_of_a_broken_gang_have_to_end_and_the_trial_runs_again(start):
    search = start(points(1), *TWO, "1.2.0")
    work = begin(search, *TWO)
    assert search.runs("1.1.0", work) == Heard()
    search.coordinator.ends.slots_lost(["1.0.0"])
    assert search.runs("1.1.0", work) == Heard(end="worker 1 of 2 has failed")
    assert search.records("lost") == [], "others may have failed for a better reason"
    assert search.hand_in("1.1.0", 1, cancelled(work)) == Wait()
    (lost,) = search.records("lost")
    assert (lost["slot"], lost["kind"], lost["counts"]) == ("1.0.0", "lost executor", True)
    assert lost["message"] == "worker 1 of 2, on host: its executor was lost"
    assert list(search.coordinator.trials.status.notes) == [
        "worker 1 of 2, on host: its executor was lost, trial 0 runs again"
    ]


def test_a_failure_is_that_of_the_member_to_blame(start):
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    peer = Outcome.failed(0, "user error", "UnavailableError: Socket closed")
    assert search.hand_in("1.1.0", 1, peer) == Wait()
    search.hand_in("1.0.0", work.number, Outcome.failed(0, "exit", "signal 9 (SIGKILL)"))
    [result] = search.coordinator.trials.results
    assert (result.error.kind, result.error.message) == (
        "exit",
        "worker 1 of 2, on host: signal 9 (SIGKILL)",
    )


def test_the_verdict_on_a_member_that_is_silent_comes_without_a_message(start):
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    search.fail("1.1.0", work, "exit", "exit 3")
    search.now = 2 * GRACE + time_limits.GANG_END + 0.1
    assert search.coordinator.trials.results == []
    assert search.coordinator.gangs.are_ending
    assert search.coordinator.missing() == (2, 0)  # as the driver asks now and then
    assert not search.coordinator.gangs.are_ending
    [result] = search.coordinator.trials.results
    assert result.error.message == "worker 0 of 2, on host: exit 3"


def test_a_member_that_stores_its_files_is_not_silent(start):
    """Else the trial would run again meanwhile, from an older checkpoint."""
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    search.fail("1.0.0", work, "machine", "no space left")
    for _ in range(4):
        search.now += time_limits.GANG_END
        assert search.runs("1.1.0", work) == Heard(end="worker 1 of 2 has failed")
        assert search.coordinator.next(Next("1.0.0")) == Wait()
    assert search.records("lost") == []
    search.hand_in("1.1.0", 1, cancelled(work))
    assert len(search.records("lost")) == 1


def test_a_member_that_is_silent_is_blamed_for_errors_of_its_loss_in_others(start):
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    search.fail("1.0.0", work, "user error", "UnavailableError: Socket closed")
    search.now = 2 * GRACE + time_limits.GANG_END + 1
    assert search.coordinator.next(Next("1.0.0")) == Wait()
    [lost] = search.records("lost")
    assert (lost["slot"], lost["kind"]) == ("1.1.0", "lost executor")
    assert lost["message"] == (
        f"worker 0 of 2, on host: it has not ended {search.now:.0f} s after worker 1 of 2 has "
        "failed: UnavailableError: Socket closed"
    )
    search.coordinator.ends.slots_lost(["1.1.0"])
    assert len(search.records("lost")) == 1
    search.hello("1.1.1")
    assert begin(search, "1.0.0", "1.1.1").number == 2


def test_a_trial_that_failed_on_a_machine_avoids_its_host_if_enough_slots_are_elsewhere(start):
    slots = [f"1.{number}.0" for number in range(4)]
    hosts = dict(zip(slots, "aabb", strict=True))
    search = start(points(1), *slots, host=hosts.get)
    work = begin(search, *slots[:2])
    search.fail(slots[1], work, "machine", "no space left")
    search.hand_in(slots[0], 1, cancelled(work))
    assert search.ask(slots[2]) == Wait()
    again = search.ask(slots[3])
    assert (again.number, search.coordinator.assigned()) == (2, [slots[2]])


def test_a_trial_that_failed_on_a_machine_runs_there_again_if_too_few_slots_are_elsewhere(start):
    slots = [f"1.{number}.0" for number in range(3)]
    hosts = dict(zip(slots, "aab", strict=True))
    search = start(points(1), *slots, host=hosts.get)
    work = begin(search, *slots[:2])
    search.fail(slots[1], work, "machine", "no space left")
    assert search.hand_in(slots[0], 1, cancelled(work)).number == 2


def test_only_the_reports_of_rank_0_are_judged_and_only_it_is_asked_to_stop(start):
    search = start(points(1), *TWO, stopping=[Threshold(upper=1.0)])
    work = begin(search, *TWO)
    assert search.runs("1.1.0", work, Report(1, {"loss": 5.0})).stop.startswith("step 1: 5")
    assert search.runs("1.0.0", work) == Heard()
    search.runs("1.0.0", work, output="oh\n")
    search.runs("1.1.0", work, output="ah\n")
    assert list(search.coordinator.trials.status.output) == [
        Output(0, "oh\n", 1),
        Output(0, "ah\n", 0),
    ]


def test_members_have_some_time_after_rank_0_and_are_then_ended(start):
    search = start(points(2), *TWO)
    work = begin(search, *TWO)
    search.finish("1.1.0", work)
    assert search.runs("1.0.0", work) == Heard()
    search.now = GRACE
    assert search.runs("1.0.0", work) == Heard(end="worker 0 of 2 has returned")


def test_a_member_that_was_given_up_by_mistake_has_to_end(start):
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    search.coordinator.ends.slots_lost(["1.0.0"])
    said = "its slot was given up"
    assert search.runs("1.0.0", work) == Heard(stop=said, end=said)


def test_a_failure_that_rank_0_of_a_gang_has_left_is_not_the_trials(start):
    search = start(points(2), *TWO)
    write_manifest(search.paths, make_manifest(make_search(2), workers_per_trial=2))
    work = begin(search, *TWO)
    files = search.paths.attempt(0)
    files.folder.mkdir(parents=True)
    files.trial.write_bytes(encode(work.without_gang()))
    files.outcome.write_bytes(encode(Outcome.failed(0, "user error", "UnavailableError: ")))
    state = RunReader(search.paths).state()
    assert state.in_gangs == {(0, 1)}
    root = Location.parse(str(search.paths.root))
    (left,) = look_for_outcomes(LocalFiles(), root, set(), state.lost | state.in_gangs)
    assert (left.trial, left.attempts, left.ends) == (0, 1, ())


def test_a_trial_that_has_lost_a_slot_runs_on_those_that_are_left(start):
    slots = ("1.0.0", "1.1.0", "1.2.0")
    search = start(points(1), *slots, workers=(2, 3))
    work = begin(search, *slots)
    assert work.workers == 3
    search.coordinator.ends.slots_lost(["1.0.0"])
    search.now = 9.0
    assert search.hand_in("1.1.0", 1, cancelled(work)) == Wait()
    again = search.hand_in("1.2.0", 1, cancelled(work))
    assert (again.number, again.workers) == (2, 2)
    assert [len(planned["slots"]) for planned in search.records("planned")] == [3, 2]


def test_a_trial_waits_a_while_for_as_many_slots_as_it_may_have(start):
    search = start(points(1), *TWO, workers=(2, 3))
    assert [search.ask(slot) for slot in TWO] == [Wait(), Wait()]
    assert search.coordinator.missing() == (2, 0)
    search.now = 9.0
    search.hello("1.2.0")
    assert search.ask("1.0.0") == Wait()
    assert search.ask("1.2.0").workers == 3


def test_small_trials_are_no_more_at_once_than_the_user_wants(start):
    slots = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
    search = start(points(2), *TWO, workers=(2, 4), at_once=1)
    assert [search.ask(slot) for slot in TWO] == [Wait(), Wait()]
    search.now = 61.0
    work = search.ask("1.0.0")
    assert work.workers == 2
    for slot in slots[2:]:
        search.hello(slot)
        assert search.ask(slot) == Wait()
    search.now = 122.0
    assert search.ask("1.2.0") == Wait()
    assert {record["why"] for record in search.records("waiting")[2:]} == {"no trial yet"}
    search.finish("1.0.0", work)
    assert search.hand_in("1.1.0", 1, cancelled(work)).workers == 4


def test_the_state_forgets_the_gangs_of_trials_that_have_ended(start):
    search = start(points(1), *TWO)
    work = begin(search, *TWO)
    search.hand_in("1.1.0", 1, Outcome.failed(0, "machine", "no space left"))
    again = search.hand_in("1.0.0", 1, cancelled(work))
    state = search.coordinator.trials.state
    assert state.in_gangs == {(0, 1), (0, 2)}
    search.finish("1.0.0", again)
    assert state.in_gangs == set()


class Slots:
    """Slots of a job that ask, end, fail with their gang, are lost, and come again."""

    def __init__(self, search, count):
        self.search, self.tries = search, [0] * count
        self.work = [None] * count
        for partition in range(count):
            search.hello(self.slot(partition))

    def slot(self, partition):
        return f"1.{partition}.{self.tries[partition]}"

    def send(self, partition, number=0, outcome=None):
        answer = self.search.ask(self.slot(partition), number, outcome)
        self.work[partition] = answer if isinstance(answer, Attempt) else None
        for slot in self.search.coordinator.assigned():
            other = SlotId.parse(slot).partition
            if slot == self.slot(other):
                self.work[other] = self.search.coordinator.next(Next(slot))
        self.check()

    def check(self):
        """No trial runs on a part of its gang, unless members have ended."""
        busy = {}
        for partition, work in enumerate(self.work):
            if work is not None:
                busy.setdefault((work.trial.id, work.number), []).append((partition, work.rank))
        for members in busy.values():
            assert len({rank for _, rank in members}) == len(members)

    def step(self, partition, *, fails=False):
        """Ask, or end the attempt as it has to, and ask."""
        work, slot = self.work[partition], self.slot(partition)
        if work is None:
            self.send(partition)
            return
        heard = self.search.runs(slot, work)
        if heard.end:
            outcome = cancelled(work)
        elif fails:
            outcome = Outcome.failed(work.trial.id, "machine", "no space left")
        else:
            outcome = evaluate(work.trial) if work.rank == 0 else cancelled(work)
        self.send(partition, work.number, outcome)

    def fail(self, partition):
        self.step(partition, fails=True)

    def die(self, partition):
        self.search.coordinator.ends.slots_lost([self.slot(partition)])
        self.tries[partition] += 1
        self.work[partition] = None
        self.search.hello(self.slot(partition))

    def wait(self, partition):
        self.search.now += 10.0 * partition

    def finish(self):
        for _ in range(40 * self.search.searcher.total):
            if self.search.coordinator.trials.done:
                return
            self.search.now += 5.0
            for partition in range(len(self.tries)):
                self.step(partition)


steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["step"] * 6 + ["fail", "die", "die", "wait"])),
    max_size=60,
)


@examples(60)
@given(
    steps,
    st.sampled_from([1, 2, 3, (1, 2), (2, 4)]),
    st.sampled_from([lambda: points(4), lambda: evolution(4, 1)]),
)
def test_whatever_slots_do_every_trial_ends_once_and_the_journal_adds_up(steps, size, make):
    with tempfile.TemporaryDirectory() as folder:
        search = Gang(Path(folder), make(), workers=size, retries=len(steps))
        write_manifest(search.paths, make_manifest(make_search(4), workers_per_trial=size))
        slots = Slots(search, 5)
        for partition, action in steps:
            getattr(slots, action)(partition)
            assert RunReader(search.paths).state() == search.coordinator.trials.state
        slots.finish()
        search.journal.close()
        assert search.coordinator.trials.done
        assert search.coordinator.trials.problem is None
        if size == 1:
            assert_journal_adds_up(search)
        values = {result.id: result.value for result in search.coordinator.trials.results}
        assert values == {t: evaluate_id(search, t) for t in range(search.searcher.total)}


def evaluate_id(search, trial):
    (result,) = [r for r in search.coordinator.trials.results if r.id == trial]
    return evaluate(Trial(trial, result.params)).value
