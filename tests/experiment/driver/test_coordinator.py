import copy
import dataclasses
import tempfile
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.status import Output
from experiment.run_files.journal import Journal, read_journal
from experiment.run_files.journal_records import Lost, read_records
from experiment.run_files.left_outcomes import LeftBehind
from experiment.run_files.loading import RunReader, read_run
from experiment.run_files.manifest import write_manifest
from search.direction import Direction
from search.errors import InvalidArgument
from search.grid import GridSearch, PointSearch
from search.searcher import drive
from search.space.spaces import Space
from search.stopping.racing import StudentRacing
from search.stopping.rules import AnyOf, SuccessiveHalving, Threshold
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import (
    Attempt,
    Heard,
    Hello,
    Next,
    ProtocolError,
    Report,
    Reports,
    Stop,
    Wait,
)
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.driver.searches import (
    Cluster,
    Ears,
    Search,
    assert_journal_adds_up,
    evaluate,
    evolution,
    finished,
    points,
    searchers,
    steps,
)
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_search
from tests.properties import examples


def test_all_trials_of_a_grid_end_once(start):
    search = start(GridSearch(Space.of_grid({"a": [1, 2, 3], "b": [(4,), (5,)]})), "1.0.0", "1.1.0")
    works = {slot: search.ask(slot) for slot in ("1.0.0", "1.1.0")}
    while any(isinstance(work, Attempt) for work in works.values()):
        for slot, work in works.items():
            if isinstance(work, Attempt):
                assert not search.coordinator.trials.done
                works[slot] = search.finish(slot, work, value=float(work.trial.id))
    assert set(works.values()) == {Stop()}
    assert search.coordinator.trials.done
    assert search.coordinator.trials.problem is None
    results = search.coordinator.trials.results
    assert [result.params for result in sorted(results, key=lambda result: result.id)] == [
        {"a": a, "b": b} for a in (1, 2, 3) for b in ((4,), (5,))
    ]
    assert Counter(r["trial"]["id"] for r in search.records("planned")) == Counter(range(6))
    assert Counter(r["outcome"]["trial"] for r in search.records("finished")) == Counter(range(6))
    assert search.records("lost") == []


def test_a_result_has_the_folder_and_the_outcome_of_its_attempt(start):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    assert search.finish("1.0.0", work, 0.5) == Stop()
    [result] = search.coordinator.trials.results
    assert (result.id, result.params, result.value) == (0, {"x": 0}, 0.5)
    assert (result.status, result.error, result.seconds) == ("finished", None, 0.5)
    assert result.metrics == {"metric": 0.5}
    assert result.logdir == str(search.paths.attempt(0).folder)


def test_many_slots_report_and_ask_less_often(start):
    slots = [f"1.{number}.0" for number in range(1_200)]
    search = start(evolution(), *slots)
    works = {slot: search.ask(slot) for slot in slots[:5]}
    assert works[slots[4]] == Wait(longer=2.0)
    work = works[slots[0]]
    message = Reports(slot=slots[0], trial=work.trial.id, attempt=1, reports=())
    assert search.coordinator.report(message) == Heard(pause=12.0, last_only=True)


def test_stopping_rules_get_each_report_also_of_many_slots(start):
    slots = [f"1.{number}.0" for number in range(1_200)]
    search = start(points(2), *slots, stopping=[Threshold(upper=1.0)])
    search.ask(slots[0])
    message = Reports(slot=slots[0], trial=0, attempt=1, reports=())
    assert search.coordinator.report(message) == Heard(pause=1.2)


def test_hosts_matter_to_waiting_slots_only_while_a_trial_is_to_run_again(start):
    search = start(evolution(popsize=4), "1.0.0", "1.1.0")
    search.coordinator.hello(Hello(slot="1.2.0", host="other"))
    alike = search.coordinator.alike_now
    assert alike("1.1.0") == alike("1.2.0")
    search.ask("1.0.0")
    search.coordinator.ends.slots_lost(["1.0.0"])
    assert alike("1.1.0") != alike("1.2.0")


def test_slots_that_would_get_different_answers_are_not_alike(start):
    search = start(points(3), "1.2.0")
    gpu_slots(search, "3", "5")
    set_aside(search, "1.0.0", "3")
    search.coordinator.slots_decommissioned(["1.1.0"])
    search.coordinator.hello(Hello(slot="1.3.0", host="full"))
    search.coordinator.roster.hosts.exclude("full", "no space left")
    keys = [search.coordinator.alike_now(f"1.{number}.0") for number in range(4)]
    assert len(set(keys)) == 4
    assert [search.ask(f"1.{number}.0") for number in (0, 1, 3)] == [Wait(), Stop(), Stop()]


def test_a_lost_answer_is_repeated(start):
    search = start(points(3), "1.0.0", "1.1.0")
    work = search.ask("1.0.0")
    other = search.ask("1.1.0")
    for _ in range(3):
        assert search.ask("1.0.0") == work
    assert other.trial.id != work.trial.id
    assert len(search.coordinator.trials.status.running) == 2
    assert len(search.records("planned")) == 2


def test_an_outcome_received_twice_counts_once(start):
    search = start(points(3), "1.0.0")
    work = search.ask("1.0.0")
    following = search.finish("1.0.0", work, 1.0)
    assert search.finish("1.0.0", work, 1.0) == following
    assert search.finish("1.0.0", work, 2.0) == following
    assert search.ended == [0]
    assert len(search.ears.heard) == 1
    assert len(search.records("finished")) == 1
    assert search.coordinator.trials.results[0].value == 1.0


def test_the_last_outcome_received_twice_counts_once(start):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    assert search.finish("1.0.0", work) == Stop()
    assert search.finish("1.0.0", work) == Stop()
    assert search.ended == [0]
    assert search.coordinator.trials.done


def test_a_second_hello_of_the_same_slot_loses_nothing(start):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    search.hello("1.0.0", warnings=("slow",))
    assert search.ask("1.0.0") == work
    assert search.records("lost") == []


@pytest.mark.parametrize("slot", ["1.0.1", "1.1.1", "2.0.1", "11.0.1"])
def test_a_hello_of_another_slot_loses_nothing(start, slot):
    """Nor that of the same task's next attempt, which may be a speculative copy."""
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    search.hello(slot)
    assert search.ask("1.0.0") == work
    assert search.records("lost") == []


@pytest.mark.fault(21)
def test_a_slot_does_not_end_while_another_of_its_task_has_a_trial(start):
    """Spark kills that one when a task has ended well, and it may have run for hours."""
    search = start(points(2), "1.0.0", "1.1.0", "1.0.1")
    work, other = search.ask("1.0.0"), search.ask("1.1.0")
    assert search.ask("1.0.1") == Wait()
    assert search.finish("1.1.0", other) == Stop()
    assert search.finish("1.0.0", work) == Stop()
    assert search.ask("1.0.1") == Stop()
    assert search.records("lost") == []


def test_a_resumed_search_counts_attempts_as_the_first_did(tmp_path):
    first = Search(tmp_path, points(1), retries=1)
    first.hello("1.0.0")
    first.ask("1.0.0")
    first.coordinator.ends.job_ended(1)
    first.hello("2.0.0")
    first.ask("2.0.0")
    first.coordinator.ends.slots_lost(["2.0.0"])
    first.journal.close()
    records = list(read_records(read_journal(first.paths.journal), "the journal"))
    assert [record.counts for record in records if isinstance(record, Lost)] == [False, True]
    later = make_coordinator(points(1), first.paths, Journal(first.paths.journal, 2), retries=1)
    later.trials.begin(begun(len(records), 1), records)
    assert later.trials.progress == 1


def test_observers_get_the_same_results_again_when_a_search_is_resumed(tmp_path):
    class Counting:
        def __init__(self):
            self.heard = []

        def ended(self, result, status):
            self.heard.append((result.id, status.ended, status.in_flight))

    live, again = Counting(), Counting()
    first = Search(tmp_path, points(3), observers=[live])
    for slot in ("1.0.0", "1.1.0"):
        first.hello(slot)
    first.ask("1.0.0")
    work = first.ask("1.1.0")
    first.coordinator.ends.slots_lost(["1.0.0"])
    first.finish("1.1.0", work)
    first.run_to_the_end("1.1.0")
    first.journal.close()
    records = list(read_records(read_journal(first.paths.journal), "the journal"))
    with Journal(first.paths.journal) as journal:
        later = make_coordinator(points(3), first.paths, journal, observers=[again])
        later.trials.begin(begun(len(records), 3), records)
    assert again.heard == live.heard == [(1, 1, 0), (0, 2, 0), (2, 3, 0)]


def test_a_slot_whose_executor_leaves_ends_its_trial_and_gets_no_more(start):
    search = start(points(4), "1.0.0", "1.1.0")
    work, other = search.ask("1.0.0"), search.ask("1.1.0")
    search.coordinator.slots_decommissioned(["1.0.0"])
    assert search.ask("1.0.0") == work  # its last answer got lost
    assert search.coordinator.trials.status.slots == 2
    assert search.finish("1.0.0", work) == Stop()
    assert search.ask("1.0.0") == Stop()
    assert list(search.coordinator.roster.let_go) == ["1.0.0"]
    assert search.coordinator.trials.status.slots == 1
    assert search.finish("1.1.0", other).trial.id == 2
    assert search.run_to_the_end("1.1.0") == ([2, 3], Stop())
    assert search.ended == [0, 1, 2, 3]
    assert search.records("lost") == []
    assert list(search.coordinator.roster.let_go) == ["1.0.0"]


def test_a_slot_that_waits_and_whose_executor_leaves_ends(start):
    search = start(evolution(4, 1), "1.0.0", "1.1.0")
    search.ask("1.0.0")
    work = search.ask("1.1.0")
    for _ in range(3):
        work = search.finish("1.1.0", work)
    assert work == Wait()
    search.coordinator.slots_decommissioned(["1.1.0"])
    assert search.coordinator.alike("1.1.0") != search.coordinator.alike("1.0.0")
    assert search.ask("1.1.0") == Stop()


@pytest.mark.fault(21)
def test_a_slot_that_leaves_does_not_end_while_another_of_its_task_has_a_trial(start):
    search = start(points(3), "1.0.0", "1.0.1")
    work, other = search.ask("1.0.0"), search.ask("1.0.1")
    search.coordinator.slots_decommissioned(["1.0.1"])
    assert search.finish("1.0.1", other) == Wait()
    assert search.run_to_the_end("1.0.0")[0] == [work.trial.id, 2]
    assert search.ask("1.0.1") == Stop()


@pytest.fixture
def bad_copy(start):
    """Return a search whose slot 1.0.0 has a copy, 1.0.1, on a host that gets no more trials."""

    def search(searcher):
        search = start(searcher, "1.0.0", "1.1.0")
        search.coordinator.roster.hosts.exclude("bad", "host bad: no space left")
        search.coordinator.hello(Hello(slot="1.0.1", host="bad"))
        return search

    return search


@pytest.mark.fault(21)
def test_a_slot_on_an_excluded_host_does_not_end_while_another_of_its_task_has_a_trial(bad_copy):
    search = bad_copy(points(1))
    work = search.ask("1.0.0")
    assert search.ask("1.0.1") == Wait()
    assert search.coordinator.alike_now("1.0.1") != search.coordinator.alike_now("1.2.0")
    assert search.finish("1.0.0", work) == Stop()
    assert search.ask("1.0.1") == Stop()


@pytest.mark.fault(21)
def test_a_slot_on_an_excluded_host_does_not_end_while_another_of_its_task_may_get_a_trial(
    bad_copy,
):
    """Between its stop and the end of its task, the other one might get a trial."""
    search = bad_copy(evolution(4, 1))
    works = [search.ask("1.1.0"), search.ask("1.0.0")]
    for _ in range(3):
        works[1] = search.finish("1.0.0", works[1])
    assert works[1] == Wait()
    assert search.ask("1.0.1") == Wait()
    search.finish("1.1.0", works[0])
    assert search.run_to_the_end("1.1.0")[1] == Stop()
    assert search.ask("1.0.1") == Stop()


@pytest.mark.fault(21)
def test_a_slot_whose_host_is_excluded_later_does_not_end_while_another_of_its_task_has_a_trial(
    start,
):
    search = start(points(3), "1.0.0")
    search.coordinator.hello(Hello(slot="1.0.1", host="bad"))
    work, other = search.ask("1.0.0"), search.ask("1.0.1")
    search.coordinator.roster.hosts.exclude("bad", "host bad: no space left")
    assert search.finish("1.0.1", other) == Wait()
    assert [record["why"] for record in search.records("waiting")] == ["nothing left"]
    assert search.run_to_the_end("1.0.0")[0] == [work.trial.id, 2]
    assert search.ask("1.0.1") == Stop()


@pytest.mark.fault(21)
def test_slots_of_one_task_on_excluded_hosts_do_not_wait_for_each_other(bad_copy):
    search = bad_copy(points(2))
    work = search.ask("1.0.0")
    search.coordinator.roster.hosts.exclude("host", "host host: no space left")
    assert search.ask("1.0.1") == Wait()
    assert search.finish("1.0.0", work) == Stop()
    assert search.ask("1.0.1") == Stop()


@pytest.mark.fault(21)
def test_a_slot_that_cannot_run_trials_does_not_end_while_another_of_its_task_has_one(start):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    search.coordinator.hello(Hello(slot="1.0.1", host="bad", problem="host bad: no space left"))
    assert search.ask("1.0.1") == Wait()
    assert search.finish("1.0.0", work) == Stop()
    assert search.ask("1.0.1") == Stop()
    assert search.records("lost") == []


def test_an_executor_that_leaves_is_noted_once(start):
    search = start(points(5), "1.0.0", "1.1.0")
    search.coordinator.slots_decommissioned(["1.1.0", "1.0.0", "1.2.0"])  # which has not come
    search.coordinator.slots_decommissioned(["1.1.0", "1.0.0", "1.2.0"])
    assert list(search.coordinator.trials.status.notes) == [
        "executor on host host is decommissioned, it gets no more trials"
    ]


def test_lost_trials_come_before_new_ones(start):
    search = start(points(4), "1.0.0", "1.1.0")
    search.ask("1.0.0")
    search.ask("1.1.0")
    search.coordinator.ends.slots_lost(["1.1.0"])
    search.hello("1.1.1")
    search.coordinator.ends.slots_lost(["1.1.0", "1.0.0"])
    trials, _ = search.run_to_the_end("1.1.1")
    assert trials == [1, 0, 2, 3]


def test_slots_wait_at_the_end_of_a_generation_and_stop_at_the_end_of_all(start):
    search = start(evolution(4, 1), "1.0.0", "1.1.0")
    slow = search.ask("1.0.0")
    work = search.ask("1.1.0")
    for _ in range(3):
        work = search.finish("1.1.0", work)
    assert work == Wait()
    assert search.ask("1.1.0") == Wait()
    work = search.finish("1.0.0", slow)
    assert (work.trial.id, work.trial.generation) == (4, 1)
    for _ in range(3):
        work = search.finish("1.0.0", work)
    assert work.trial.id == 7
    assert search.ask("1.1.0") == Stop()
    assert not search.coordinator.trials.done
    assert search.finish("1.0.0", work) == Stop()
    assert search.coordinator.trials.done
    assert sorted(search.ended) == list(range(8))
    assert [record["trial"]["generation"] for record in search.records("planned")] == [0] * 4 + [
        1
    ] * 4


def test_a_slot_that_waits_gets_the_trial_that_another_lost(start):
    search = start(evolution(4, 1), "1.0.0", "1.1.0")
    slow = search.ask("1.0.0")
    work = search.ask("1.1.0")
    for _ in range(3):
        work = search.finish("1.1.0", work)
    assert work == Wait()
    search.coordinator.ends.slots_lost(["1.0.0"])
    again = search.ask("1.1.0")
    assert again == Attempt(slow.trial, 2)
    search.hello("1.0.1")
    assert search.ask("1.0.1") == Wait()
    assert search.finish("1.1.0", again).trial.generation == 1


@pytest.mark.parametrize("most", [0, 2])
def test_more_failures_than_allowed_end_the_search(start, most):
    search = start(points(9), "1.0.0", "1.1.0", max_failures=most)
    other = search.ask("1.1.0")
    answer = search.ask("1.0.0")
    for _ in range(most):
        answer = search.fail("1.0.0", answer)
        assert isinstance(answer, Attempt)
    assert search.coordinator.trials.problem is None
    assert search.fail("1.0.0", answer) == Stop()
    assert search.coordinator.trials.problem == (
        f"{most + 1} trials failed, more than max_failures={most}"
    )
    assert search.finish("1.1.0", other) == Stop()
    assert search.ended[-1] == other.trial.id  # trials in flight still count
    assert not search.coordinator.trials.done


def test_failures_without_a_limit_do_not_end_the_search(start):
    search = start(points(30), "1.0.0")
    answer = search.ask("1.0.0")
    while isinstance(answer, Attempt):
        answer = search.fail("1.0.0", answer)
    assert search.coordinator.trials.problem is None
    assert search.coordinator.trials.done
    assert {result.status for result in search.coordinator.trials.results} == {"failed"}
    assert search.records("finished")[0]["outcome"]["error"] == {
        "kind": "user error",
        "message": "ValueError: no",
        "traceback": "",
        "unreached": False,
        "of_store": False,
    }


def test_an_ambiguous_objective_ends_the_search_with_its_message(start):
    search = start(points(5), "1.0.0", max_failures=4)
    message = "set optimization_key to one of 'a', 'b'"
    answer = search.fail("1.0.0", search.ask("1.0.0"), "ambiguous objective", message)
    assert answer == Stop()
    assert search.coordinator.trials.problem == message


def test_a_key_that_the_first_trials_lack_ends_the_search_and_a_later_one_fails(tmp_path):
    message = "want the key 'acc', got the keys 'accuracy'"
    first = Search(tmp_path / "first", points(3), optimization_key="acc")
    first.hello("0.0.0")
    first.fail("0.0.0", first.ask("0.0.0"))
    assert first.fail("0.0.0", first.ask("0.0.0"), "ambiguous objective", message) == Stop()
    assert first.coordinator.trials.problem == message

    later = Search(tmp_path / "later", points(3), optimization_key="acc")
    later.hello("0.0.0")
    later.finish("0.0.0", later.ask("0.0.0"), objective="acc")
    later.fail("0.0.0", later.ask("0.0.0"), "ambiguous objective", message)
    later.finish("0.0.0", later.ask("0.0.0"), objective="acc")
    assert later.coordinator.trials.problem is None
    assert later.coordinator.trials.results[1].error.kind == "invalid value"


def test_a_value_that_the_driver_finds_invalid_is_retried_as_one(start):
    search = start(
        points(3), "1.0.0", optimization_key="acc", retry_on=("invalid value",), retries=1
    )
    search.finish("1.0.0", search.ask("1.0.0"), objective="acc")
    first = search.ask("1.0.0")
    second = search.fail("1.0.0", first, "ambiguous objective", "want the key 'acc'")
    assert second == Attempt(first.trial, 2)
    search.finish("1.0.0", second, objective="loss")
    assert search.coordinator.trials.results[1].error.kind == "invalid value"


def test_a_search_ends_if_no_host_can_run_slots(start):
    search = start(points(5))
    for job in (1, 2, 3):
        for task, host in enumerate("abb"):
            slot = f"{job}.{task}.0"
            search.coordinator.hello(
                Hello(slot=slot, host=host, problem=f"host {host} does not see the folder")
            )
            assert search.ask(slot) == Stop()
        assert search.coordinator.trials.problem is None  # there may be more of them
        search.coordinator.ends.job_ended(job)
    assert search.coordinator.trials.problem == (
        "host a does not see the folder; host b does not see the folder"
    )
    assert search.warnings == []


def test_refused_jobs_do_not_end_a_search_with_other_slots(start):
    search = start(points(2), "1.0.0")
    work = search.ask("1.0.0")
    for job in (2, 3, 4, 5):
        search.coordinator.hello(
            Hello(slot=f"{job}.0.0", host="b", problem="host b does not see the folder")
        )
        assert search.coordinator.roster.has_come(job)
        search.coordinator.ends.job_ended(job)
        assert not search.coordinator.roster.has_come(job)
    assert search.coordinator.trials.problem is None
    assert isinstance(search.finish("1.0.0", work), Attempt)


def test_the_trials_left_are_those_that_may_still_start(start):
    search = start(points(3), "1.0.0", "2.0.0")
    assert search.coordinator.trials.left == 3
    work = search.ask("1.0.0")
    other = search.ask("2.0.0")
    assert search.coordinator.trials.left == 1
    search.coordinator.ends.slots_lost(["2.0.0"])
    assert search.coordinator.trials.left == 2
    again = search.finish("1.0.0", work)
    assert (again.trial.id, search.coordinator.trials.left) == (other.trial.id, 1)
    last = search.finish("1.0.0", again)
    assert search.coordinator.trials.left == 0
    search.finish("1.0.0", last)
    assert search.coordinator.trials.left == 0


def test_a_host_that_cannot_run_slots_is_warned_of_and_others_run_the_trials(start):
    search = start(points(3))
    search.coordinator.hello(
        Hello(slot="1.0.0", host="a", problem="host a does not see the folder")
    )
    assert search.warnings == []
    search.coordinator.hello(Hello(slot="1.1.0", host="b"))
    assert search.warnings == ["host a does not see the folder; this host gets no more trials"]
    assert search.ask("1.0.0") == Stop()
    assert search.run_to_the_end("1.1.0") == ([0, 1, 2], Stop())
    assert search.coordinator.trials.done


def gpu_slots(search, *gpus):
    for number, gpu in enumerate(gpus):
        search.hello(f"1.{number}.0", gpus=(gpu,))


def set_aside(search, slot, gpu):
    search.hello(slot, gpus=(gpu,), set_aside={gpu: f"GPU {gpu} of host host keeps 4.2 GiB"})


def test_slots_of_a_gpu_that_is_set_aside_wait_while_others_run(start):
    search = start(points(6), slots=3)
    gpu_slots(search, "3", "3", "5")
    works = [search.ask(f"1.{number}.0") for number in range(3)]
    set_aside(search, "1.0.0", "3")
    set_aside(search, "1.1.0", "3")
    assert search.finish("1.0.0", works[0]) == Wait()
    assert search.finish("1.1.0", works[1]) == Wait()  # Spark would give the GPU to another task
    work = search.finish("1.2.0", works[2])
    while work.trial.id < 5:
        assert search.ask("1.0.0") == search.ask("1.1.0") == Wait()
        work = search.finish("1.2.0", work)
    assert search.ask("1.0.0") == search.ask("1.1.0") == Stop()  # nothing is left to hand out
    assert search.finish("1.2.0", work) == Stop()
    assert search.coordinator.trials.done
    assert search.warnings == ["GPU 3 of host host keeps 4.2 GiB and gets no more trials"]


def test_a_gpu_stays_set_aside_for_the_slots_of_the_next_job(start):
    search = start(points(2), slots=2)
    gpu_slots(search, "3", "5")
    set_aside(search, "1.0.0", "3")
    search.coordinator.ends.job_ended(1)
    search.hello("2.0.0", gpus=("3",))
    search.hello("2.1.0", gpus=("5",))
    assert search.ask("2.0.0") == Wait()
    assert search.run_to_the_end("2.1.0") == ([0, 1], Stop())


def test_the_same_address_on_another_host_is_another_gpu(start):
    search = start(points(1))
    gpu_slots(search, "3")
    set_aside(search, "1.0.0", "3")
    search.coordinator.hello(Hello(slot="1.1.0", host="other", gpus=("3",)))
    assert search.ask("1.1.0") == Attempt(Trial(0, {"x": 0}), 1)


def test_when_all_gpus_are_set_aside_the_search_ends_after_the_last_trial_that_runs(start):
    search = start(points(9), slots=2)
    gpu_slots(search, "3", "5")
    works = [search.ask("1.0.0"), search.ask("1.1.0")]
    set_aside(search, "1.0.0", "3")
    set_aside(search, "1.1.0", "5")
    assert search.finish("1.0.0", works[0]) == Wait()
    assert search.coordinator.trials.problem is None
    assert search.finish("1.1.0", works[1]) == Stop()
    assert search.coordinator.trials.problem == (
        "GPU 3 of host host keeps 4.2 GiB and gets no more trials; "
        "GPU 5 of host host keeps 4.2 GiB and gets no more trials"
    )
    assert search.ended == [0, 1]
    assert search.ask("1.0.0") == Stop()


def test_missing_slots_have_a_minute_to_connect_before_the_search_ends(start):
    now = 0.0
    search = start(points(9), slots=2, clock=lambda: now)
    gpu_slots(search, "3")
    set_aside(search, "1.0.0", "3")
    assert search.ask("1.0.0") == Wait()
    now = 59.0
    assert search.ask("1.0.0") == Wait()
    search.hello("1.1.0", gpus=("5",))
    assert search.ask("1.0.0") == Wait()
    search.coordinator.ends.slots_lost(["1.1.0"])
    now = 100.0
    assert search.ask("1.0.0") == Wait()
    now = 160.0
    assert search.ask("1.0.0") == Stop()
    assert "GPU 3 of host host" in search.coordinator.trials.problem


def test_a_trial_with_another_objective_fails(start):
    search = start(points(3), "1.0.0")
    answer = search.finish("1.0.0", search.ask("1.0.0"), 1.0, "loss")
    answer = search.finish("1.0.0", answer, 5.0, "accuracy")
    assert search.finish("1.0.0", answer, 2.0, "loss") == Stop()
    assert [result.status for result in search.coordinator.trials.results] == [
        "finished",
        "failed",
        "finished",
    ]
    odd = search.coordinator.trials.results[1]
    assert (odd.value, odd.metrics, odd.seconds) == (None, {}, 0.5)
    assert odd.error.kind == "invalid value"
    assert odd.error.message == "the objective is 'accuracy', it was 'loss' before"
    assert search.records("finished")[1]["outcome"]["status"] == "failed"
    assert {objective for _, objective, _ in search.ears.heard} == {"loss"}


def test_a_trial_with_another_objective_counts_as_a_failure(start):
    search = start(points(3), "1.0.0", max_failures=0)
    answer = search.finish("1.0.0", search.ask("1.0.0"), 1.0, "loss")
    assert search.finish("1.0.0", answer, 1.0, "accuracy") == Stop()
    assert search.coordinator.trials.problem == "1 trials failed, more than max_failures=0"


def test_the_objective_is_unknown_until_a_trial_names_it(start):
    search = start(points(2), "1.0.0")
    answer = search.fail("1.0.0", search.ask("1.0.0"))
    search.finish("1.0.0", answer, 1.0, "loss")
    assert [objective for _, objective, _ in search.ears.heard] == [None, "loss"]


def test_observers_get_results_after_the_journal_and_in_their_order(start):
    order = []

    class Named:
        def __init__(self, name):
            self.name = name

        def ended(self, result, status):
            order.append((self.name, result.id))

    search = start(points(2), "1.0.0", observers=[Named("a"), Named("b")])
    answer = search.ask("1.0.0")
    while isinstance(answer, Attempt):
        assert search.records("planned")[-1]["trial"]["id"] == answer.trial.id
        answer = search.finish("1.0.0", answer)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [in_journal for _, _, in_journal in search.ears.heard] == [[0], [0, 1]]
    assert [result for result, _, _ in search.ears.heard] == search.coordinator.trials.results


class FullDisk:
    """A journal that refuses one kind of record."""

    def __init__(self, event):
        self.event = event

    def append(self, record):
        if type(record).__name__.lower() == self.event:
            raise OSError("No space left on device")


def test_observers_get_no_result_that_the_journal_could_not_write(tmp_path):
    ears = Ears(None)
    coordinator = make_coordinator(
        points(2), RunPaths(tmp_path), FullDisk("finished"), observers=[ears]
    )
    coordinator.hello(Hello(slot="1.0.0", host="host"))
    work = coordinator.next(Next("1.0.0"))
    with pytest.raises(OSError, match="No space left"):
        coordinator.next(Next("1.0.0", 1, finished(work.trial.id)))
    assert ears.heard == []
    assert coordinator.trials.results == []
    assert not coordinator.trials.done


def test_no_slot_gets_a_trial_that_the_journal_could_not_write(tmp_path):
    coordinator = make_coordinator(points(2), RunPaths(tmp_path), FullDisk("planned"))
    coordinator.hello(Hello(slot="1.0.0", host="host"))
    with pytest.raises(OSError, match="No space left"):
        coordinator.next(Next("1.0.0"))
    assert not coordinator.trials.status.running


def test_each_warning_is_shown_once(start):
    search = start(points(1))
    search.hello("1.0.0", warnings=("slow", "old"))
    search.hello("1.1.0", warnings=("old", "new"))
    search.hello("1.1.1", warnings=("slow",))
    assert search.warnings == ["slow", "old", "new"]


def test_only_the_first_slots_detour_is_warned_of(start):
    search = start(points(1))
    search.hello("1.0.0")
    assert search.warnings == []
    search.hello("1.1.0", detour="host a goes round")
    search.hello("1.1.0", detour="host a goes round", warnings=("slow",))
    search.hello("1.2.0", detour="host b goes round")
    assert search.warnings == ["host a goes round", "slow"]


def test_a_warning_of_several_slots_is_shown_once(start):
    search = start(points(1), "1.0.0")
    search.hello("1.0.0", warnings=("slow", "full"))
    search.hello("1.1.0", warnings=("slow",))
    search.hello("1.2.0", warnings=("full", "old"))
    assert search.warnings == ["slow", "full", "old"]


def test_gpus_that_spark_does_not_assign_are_warned_of_once(start):
    search = start(points(8), slots=5)
    search.hello("1.0.0", free_gpus=0)
    assert search.warnings == []
    search.hello("1.1.0", free_gpus=4)
    search.hello("1.2.0", free_gpus=2)
    search.hello("1.1.0", free_gpus=4, warnings=("slow",))
    gpus, slow = search.warnings
    assert slow == "slow"
    assert gpus.startswith("5 slots, 4 GPUs on host host: ")
    assert "spark.task.resource.gpu.amount" in gpus


def test_warnings_go_to_the_warnings_module_by_default(tmp_path):
    coordinator = make_coordinator(points(1), RunPaths(tmp_path), FullDisk(None))
    with pytest.warns(UserWarning, match="^slow$"):
        coordinator.hello(Hello(slot="1.0.0", host="host", warnings=("slow",)))


def test_a_search_is_not_done_while_trials_are_in_flight_or_wait_to_run_again(start):
    search = start(points(1), "1.0.0")
    assert not search.coordinator.trials.done
    search.ask("1.0.0")
    assert not search.coordinator.trials.done
    search.coordinator.ends.job_ended(1)
    assert not search.coordinator.trials.done
    search.hello("2.0.0")
    assert search.run_to_the_end("2.0.0") == ([0], Stop())
    assert search.coordinator.trials.done


@examples(60)
@given(steps, searchers)
def test_whatever_slots_do_every_trial_ends_once_and_as_without_slots(steps, make_searcher):
    alone = make_searcher()
    trials = {}

    def remember(trial):
        trials[trial.id] = trial
        return evaluate(trial)

    expected = drive(alone, remember)
    with tempfile.TemporaryDirectory() as folder:
        search = Search(Path(folder), make_searcher(), retries=len(steps))
        cluster = Cluster(search, 3)
        for partition, action in steps:
            getattr(cluster, action)(partition)
        cluster.finish()
        search.journal.close()
        assert search.coordinator.trials.done
        assert search.coordinator.trials.problem is None
        assert_journal_adds_up(search)
    results = sorted(search.coordinator.trials.results, key=lambda result: result.id)
    assert [result.id for result in results] == list(range(alone.total))
    assert [result.params for result in results] == [trials[n].params for n in range(alone.total)]
    assert [result.value for result in results] == [outcome.value for outcome in expected]


@pytest.mark.parametrize("slot", ["", "1.0", "1.0.0.0"])
def test_an_invalid_slot_name_is_a_protocol_error(start, slot):
    with pytest.raises(ProtocolError):
        start(points(1), slot)


def test_an_observer_that_raises_is_left_out_and_ends_nothing(start):
    class Full:
        heard = 0

        def ended(self, result, status):
            Full.heard += 1
            raise OSError("No space left on device")

    search = start(points(3), "1.0.0", observers=[Full()])
    assert search.run_to_the_end("1.0.0") == ([0, 1, 2], Stop())
    assert Full.heard == 1
    (warning,) = search.warnings
    assert "No space left on device" in warning
    assert len(search.ears.heard) == 3


def test_a_cancelled_trial_that_waits_to_run_again_keeps_its_last_attempt(start):
    search = start(points(1), "1.0.0")
    search.ask("1.0.0")
    search.coordinator.ends.slots_lost(["1.0.0"])
    search.coordinator.trials.cancel_rest()
    [result] = search.coordinator.trials.results
    assert result.logdir == search.paths.shown_attempt(0, 1)
    assert [record["attempt"] for record in search.records("finished")] == [1]


def stopped(trial, value=0.25, objective="metric", reason="step 3: too bad"):
    metrics = {objective: value}
    return Outcome(trial, "stopped", value, objective, metrics, seconds=0.5, reason=reason, step=3)


def test_the_seconds_of_a_trial_count_from_when_its_slot_is_prepared(start):
    now = 100.0
    search = start(points(3), "1.0.0", clock=lambda: now)
    first = search.ask("1.0.0")
    (running,) = search.coordinator.trials.status.running
    assert (running.since, running.seconds(130.0)) == (None, 0.0)
    now = 120.0  # it has imported TensorFlow meanwhile
    assert (
        search.coordinator.report(
            Reports(slot="1.0.0", trial=first.trial.id, attempt=1, reports=())
        )
        == Heard()
    )
    (running,) = search.coordinator.trials.status.running
    assert (running.since, running.seconds(130.0)) == (120.0, 10.0)
    now = 125.0
    search.coordinator.report(Reports(slot="1.0.0", trial=first.trial.id, attempt=1, reports=()))
    assert search.coordinator.trials.status.running[0].since == 120.0
    search.hand_in("1.0.0", 1, Outcome(first.trial.id, "finished", 1.0, "metric", {"metric": 1.0}))
    (running,) = search.coordinator.trials.status.running
    assert running.since == 125.0  # the slot is prepared by now


def test_a_report_is_judged_and_recorded(start):
    search = start(points(2), "1.0.0", stopping=[Threshold(upper=1.0)])
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 0, loss=0.5) == ""
    reason = search.report("1.0.0", work, 1, loss=2.5)
    assert reason == "step 1: 2.5 is above the threshold 1"
    assert search.report("1.0.0", work, 2, loss=0.5) == reason
    assert [(r["trial"], r["attempt"], r["reports"]) for r in search.records("reported")] == [
        (0, 1, [{"step": 0, "metrics": {"loss": 0.5}}]),
        (0, 1, [{"step": 1, "metrics": {"loss": 2.5}}]),
        (0, 1, [{"step": 2, "metrics": {"loss": 0.5}}]),
    ]
    (running,) = search.coordinator.trials.status.running
    assert running.last == Report(2, {"loss": 0.5})


def test_reports_without_stopping_rules_are_shown_and_not_recorded(start):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 7, loss=0.5, accuracy=0.25) == ""
    assert search.coordinator.trials.problem is None
    assert search.coordinator.trials.status.running[0].last.step == 7
    assert search.records("reported") == []


def test_a_value_that_is_not_finite_stops_its_trial(start):
    search = start(points(1), "1.0.0", stopping=[Threshold(upper=1.0)])
    work = search.ask("1.0.0")
    reason = search.report("1.0.0", work, 0, loss=float("nan"))
    assert reason == "step 0: not a finite number"
    assert search.records("reported")[0]["reports"] == [{"step": 0, "metrics": {"loss": "nan"}}]


def test_several_metrics_without_an_optimization_key_end_the_search(start):
    search = start(points(2), "1.0.0", stopping=[Threshold(upper=1.0)])
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 0, loss=0.5, accuracy=0.1) == ""
    assert search.coordinator.trials.problem == (
        "a trial reports several metrics ('loss', 'accuracy'); say which one stopping= goes by: "
        "optimization_key='loss'"
    )
    assert search.finish("1.0.0", work) == Stop()


def test_the_optimization_key_names_the_judged_metric(start):
    rules = {"stopping": [Threshold(upper=1.0)], "optimization_key": "loss"}
    search = start(points(2), "1.0.0", **rules)
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 0, accuracy=9.0) == ""
    assert search.report("1.0.0", work, 1, accuracy=9.0, loss=0.5) == ""
    assert search.report("1.0.0", work, 2, accuracy=0.0, loss=5.0).startswith("step 2: 5 is above")


def test_a_status_is_a_value_that_can_be_copied_shown_and_compared(start):
    search = start(points(3), "1.0.0", "1.1.0")
    first, second = search.ask("1.0.0"), search.ask("1.1.0")
    trials = search.coordinator.trials
    status = trials.status
    assert [running.attempt for running in reversed(status.running)] == [second, first]
    assert copy.deepcopy(status) == status == trials.status
    assert len(dataclasses.asdict(status)["running"]) == 2
    assert "Running(attempt=" in repr(status)
    search.finish("1.0.0", first)
    assert len(status.running) == 2, "it does not change"
    assert status.in_flight == trials.overview.in_flight == 2


def test_output_of_trials_is_kept_for_display(start):
    search = start(points(2), "1.0.0")
    work = search.ask("1.0.0")
    search.report("1.0.0", work, 0, output="a\nb")
    search.report("1.0.0", work, 0, output="c\n")
    assert list(search.coordinator.trials.status.output) == [Output(0, "a\nb"), Output(0, "c\n")]


def test_a_stopped_trial_has_its_value_and_the_reason(start):
    search = start(points(2), "1.0.0", optimization_key="metric")
    answer = search.hand_in("1.0.0", 1, stopped(search.ask("1.0.0").trial.id))
    search.finish("1.0.0", answer, 0.125)
    first, second = search.coordinator.trials.results
    assert (first.status, first.value, first.reason) == ("stopped", 0.25, "step 3: too bad")
    assert first.ending == "stopped at step 3: too bad"
    assert (second.status, second.ending) == ("finished", "finished")
    assert search.coordinator.trials.status.best is first
    assert search.warnings == []


@pytest.mark.parametrize("order", ["stopped first", "stopped last"])
def test_a_reported_metric_of_another_name_is_not_the_value(start, order):
    search = start(points(2), "1.0.0")
    outcomes = [stopped(0, 5.0, "loss"), finished(1, 0.5, "metric")]
    if order == "stopped last":
        outcomes = [finished(0, 0.5, "metric"), stopped(1, 5.0, "loss")]
    search.ask("1.0.0")
    for outcome in outcomes:
        search.hand_in("1.0.0", 1, outcome)
    values = {result.status: result.value for result in search.coordinator.trials.results}
    assert values == {"stopped": None, "finished": 0.5}
    status = search.coordinator.trials.status
    assert (status.best.status, status.objective) == ("finished", "metric")
    (warning,) = search.warnings
    assert "report 'loss' and return 'metric'" in warning
    assert "optimization_key='loss'" in warning


def test_the_objective_of_stopped_trials_is_the_reported_metric(start):
    search = start(points(2), "1.0.0")
    answer = search.hand_in("1.0.0", 1, stopped(search.ask("1.0.0").trial.id, 0.25, "loss"))
    search.hand_in("1.0.0", 1, stopped(answer.trial.id, 0.5, "loss"))
    assert search.coordinator.trials.status.objective == "loss"
    assert [result.value for result in search.coordinator.trials.results] == [0.25, 0.5]


class TalkingCluster(Cluster):
    """Slots whose trials also report, and stop on request; with a judge to compare."""

    def __init__(self, search, partitions, rule):
        self.judge = AnyOf([rule.start(Direction.MAX)])
        self.steps, self.last_outcomes, self.kept = {}, {}, []
        self.asking = set()  # partitions whose answer got lost: their last trial has ended
        super().__init__(search, partitions)

    def ended(self, result, status):
        self.judge.ended(result.id, result.status)

    def send(self, partition, message, *, answer_arrives=True):
        super().send(partition, message, answer_arrives=answer_arrives)
        (self.asking.discard if answer_arrives else self.asking.add)(partition)

    def die(self, partition):
        super().die(partition)
        self.asking.discard(partition)

    def end_job(self, partition):
        super().end_job(partition)
        self.asking.clear()

    def talk(self, partition):
        work = self.work[partition]
        if work is None or partition in self.asking:
            return
        step = self.steps[work.trial.id, work.number] = (
            self.steps.get((work.trial.id, work.number), 0) + 1
        )
        value = float((work.trial.id * 7 + step) % 5)
        reason = self.judge.report(work.trial.id, step, value) or ""
        assert self.search.report(self.slot(partition), work, step, metric=value) == reason
        self.kept.append(
            (work.trial.id, work.number, [{"step": step, "metrics": {"metric": value}}])
        )
        if reason:
            self.last_outcomes[work.trial.id, work.number] = stopped(
                work.trial.id, value, ["metric", "other"][work.trial.id % 2], reason
            )

    def message(self, partition):
        work = self.work[partition]
        outcome = None if work is None else self.last_outcomes.get((work.trial.id, work.number))
        if outcome is None:
            return super().message(partition)
        return Next(self.slot(partition), work.number, outcome)

    def leave_ghost(self, partition):
        super().leave_ghost(partition)
        if self.work[partition] is not None:
            slot, work = self.slot(partition), self.work[partition]
            report = Reports(
                slot=slot,
                trial=work.trial.id,
                attempt=work.number,
                reports=(Report(99, {"metric": 1.0}),),
            )
            self.given_up = [*getattr(self, "given_up", []), report]

    def whisper(self, partition):
        for report in getattr(self, "given_up", [])[-partition - 1 :]:
            assert self.coordinator.report(report) == Heard(stop="its slot was given up")


def assert_folder_says_what_the_coordinator_knows(search):
    run = read_run(search.paths)
    status = search.coordinator.trials.status
    assert run.result.trials == sorted(status.results, key=lambda result: result.id)
    assert run.result.objective == (status.objective or "accuracy")  # the manifest's key
    by_id = sorted((out.attempt for out in status.running), key=lambda out: out.trial.id)
    assert sorted(run.running, key=lambda out: out.trial.id) == by_id
    assert RunReader(search.paths).state() == search.coordinator.trials.state


talking_steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ["ask_or_send"] * 3
            + ["talk"] * 8
            + ["lose_answer", "repeat", "die", "end_job", "haunt", "whisper", "whisper"]
        ),
    ),
    max_size=80,
)


@examples(60)
@given(talking_steps, searchers, st.integers(2, 3))
def test_whatever_trials_report_is_judged_in_order_kept_and_read_back(steps, make, factor):
    rule = SuccessiveHalving(reduction_factor=factor)
    with tempfile.TemporaryDirectory() as folder:
        search = Search(Path(folder), make(), stopping=[rule])
        write_manifest(search.paths, make_manifest(make_search(7)))
        cluster = TalkingCluster(search, 3, rule)
        search.coordinator.trials.standing.observers.append(cluster)
        for partition, action in steps:
            getattr(cluster, action)(partition)
        assert_folder_says_what_the_coordinator_knows(search)
        cluster.finish()
        assert search.coordinator.trials.done
        assert search.coordinator.trials.problem is None
        kept = [(r["trial"], r["attempt"], r["reports"]) for r in search.records("reported")]
        assert kept == cluster.kept
        assert_folder_says_what_the_coordinator_knows(search)
        search.journal.close()


def test_a_trial_that_is_to_stop_and_is_lost_does_not_run_again(start):
    search = start(points(1), "1.0.0", stopping=[Threshold(upper=1.0)], optimization_key="metric")
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 0, metric=0.5, other=2.0) == ""
    assert "above the threshold" in search.report("1.0.0", work, 1, metric=5.0)
    search.coordinator.ends.slots_lost(["1.0.0"])
    [result] = search.coordinator.trials.results
    assert (result.status, result.value) == ("stopped", 5.0)
    assert result.metrics == {"metric": 5.0, "other": 2.0}
    assert search.records("lost") == []
    assert search.ask("1.0.1") == Stop()


@pytest.mark.parametrize(("retries", "fails"), [(3, False), (3, True), (0, True)])
def test_a_trial_that_was_to_stop_when_its_driver_died_does_not_run_again(tmp_path, retries, fails):
    rules = {"stopping": [Threshold(upper=1.0)], "optimization_key": "metric", "retries": retries}
    first = Search(tmp_path, points(2), **rules)
    for slot in ("1.0.0", "1.1.0"):
        first.hello(slot)
        work = first.ask(slot)
        first.report(slot, work, 1, metric=0.5 + 4.5 * work.trial.id)
    first.journal.close()
    failed = work, Outcome.failed(1, "machine", "the disk is full")
    left = [LeftBehind(1, 1, (failed,))] if fails else []
    records = list(read_records(read_journal(first.paths.journal), "the journal"))
    with Journal(first.paths.journal, 2) as journal:
        later = make_coordinator(points(2), first.paths, journal, **rules)
        later.trials.begin(begun(len(records), 2), records, left)
        [result] = later.trials.results
        assert (result.id, result.status, result.value) == (1, "stopped", 5.0)
        assert "above the threshold" in result.reason
        later.hello(Hello(slot="1.0.0", host="host"))
        work = later.next(Next("1.0.0"))
        assert (work.trial.id, work.number) == (0, 2)


def test_a_slot_without_a_trial_ends_none(start):
    trials = start(points(1), "1.0.0").coordinator.trials
    assert trials.give_up("1.0.0", Failure(kind="machine", message="its host is gone")) is None
    assert trials.take("1.0.0", 1, finished(0)) is False
    assert not trials.results


def test_a_trial_with_repeats_that_is_to_stop_and_is_lost_has_no_value(start):
    search = start(points(1), "1.0.0", stopping=[Threshold(upper=1.0)], repeats=3)
    work = search.ask("1.0.0")
    assert "above the threshold" in search.report("1.0.0", work, 1, metric=5.0)
    search.coordinator.ends.slots_lost(["1.0.0"])
    [result] = search.coordinator.trials.results
    assert (result.status, result.value) == ("stopped", None)


@pytest.mark.parametrize("end", ["it answers", "it is ended", "its slot is lost"])
def test_a_trial_that_lost_a_race_has_a_value_that_is_comparable_with_others(start, end):
    """Its own mean, of the repeats that were easy, would be the best one."""
    told = []

    class Listening(PointSearch):
        def tell(self, outcome):
            told.append(outcome.value)
            super().tell(outcome)

    search = start(
        Listening([{"x": number} for number in range(4)]),
        "1.0.0",
        stopping=[StudentRacing()],
        repeats=4,
        target=0.4,
    )
    best = [-1.0, 3.0, -1.0, -1.0]
    for values in (best, [-1.1, 2.95, -1.12, -1.03], [-1.2, 2.9, -1.1, -1.03]):
        work = search.ask("1.0.0")
        for step, value in enumerate(values):
            search.report("1.0.0", work, step, metric=value)
        search.finish("1.0.0", work, fmean(values))
    work = search.ask("1.0.0")
    assert search.report("1.0.0", work, 0, metric=-1.5) == ""
    assert (
        "worse than trial 0 in 3 repeats"
        in [
            search.report("1.0.0", work, step, metric=value)
            for step, value in ((1, 2.5), (2, -1.5))
        ][-1]
    )
    if end == "its slot is lost":
        search.coordinator.ends.slots_lost(["1.0.0"])
    else:
        value = fmean([-1.5, 2.5, -1.5, 2.5])
        answer = stopped(3, value) if end == "it answers" else Outcome(3, "stopped")
        search.hand_in("1.0.0", work.number, answer)
    assert told[-1] == pytest.approx(-0.5)
    result = search.coordinator.trials.results[-1]
    assert result.value == result.metrics["metric"] == told[-1]
    assert search.records("finished")[-1]["outcome"]["value"] == told[-1]


@pytest.mark.parametrize("retries", [3, 0])
def test_a_trial_that_is_to_stop_and_fails_does_not_run_again(start, retries):
    search = start(points(1), "1.0.0", stopping=[Threshold(upper=1.0)], retries=retries)
    work = search.ask("1.0.0")
    assert "above the threshold" in search.report("1.0.0", work, 1, metric=5.0)
    assert search.fail("1.0.0", work, "machine", "the disk is full") == Stop()
    [result] = search.coordinator.trials.results
    assert (result.status, result.value) == ("stopped", 5.0)
    assert search.records("lost") == []


def test_a_searcher_receives_no_value_that_may_be_withdrawn(start):
    ended = []

    class Listening(PointSearch):
        def tell(self, outcome):
            ended.append((outcome.status, outcome.value))
            super().tell(outcome)

    search = start(Listening([{"x": x} for x in range(3)]), "1.0.0")
    search.ask("1.0.0")
    for outcome in (stopped(0, 5.0), finished(1, 0.5, "metric"), stopped(2, 0.25)):
        search.hand_in("1.0.0", 1, outcome)
    assert ended == [("stopped", None), ("finished", 0.5), ("stopped", 0.25)]


def test_stopping_rules_without_reports_of_the_objective_are_warned_of_once(start):
    search = start(points(2), "1.0.0", stopping=[Threshold(upper=1.0)], optimization_key="accuracy")
    for _ in range(2):
        work = search.ask("1.0.0")
        search.report("1.0.0", work, 0, val_accuracy=0.5)
        search.hand_in("1.0.0", 1, finished(work.trial.id, 0.5, "accuracy"))
    (warning,) = search.warnings
    assert warning == (
        "stopping= needs reports of 'accuracy', but trials report 'val_accuracy', so it stops none "
        "of them"
    )


# A target.


@pytest.mark.parametrize(("direction", "last"), [(Direction.MAX, 0.9), (Direction.MIN, -0.9)])
def test_no_trial_starts_once_the_target_is_reached(start, direction, last):
    search = start(points(9), "1.0.0", "1.1.0", "1.2.0", direction=direction, target=last, slots=3)
    works = [search.ask(slot) for slot in ("1.0.0", "1.1.0")]
    again = search.finish("1.0.0", works[0], last * 0.9)
    assert isinstance(again, Attempt)
    assert not search.coordinator.trials.target_reached
    assert search.finish("1.0.0", again, last) == Stop()
    assert search.coordinator.trials.target_reached
    assert not search.coordinator.trials.done
    assert search.ask("1.2.0") == Stop()
    search.coordinator.trials.cancel_rest()
    assert search.coordinator.trials.problem is None
    assert [r.status for r in search.coordinator.trials.results] == [
        "finished",
        "finished",
        "cancelled",
    ]


def test_no_trial_starts_once_the_search_is_being_ended(start):
    """Spark takes seconds to end the slots of a search that is cancelled."""
    reasons = []
    search = start(points(3), "1.0.0", "1.1.0", slots=2, is_ending=lambda: bool(reasons))
    work = search.ask("1.0.0")
    reasons.append("the deadline has passed")
    assert search.finish("1.0.0", work, 0.5) == Stop()
    assert search.ask("1.1.0") == Stop()
    search.coordinator.trials.cancel_rest()
    assert [r.status for r in search.coordinator.trials.results] == ["finished"]


def test_outcomes_found_in_trial_folders_may_end_the_search(tmp_path):
    twin, left = evolution(), []
    while trial := twin.ask():
        outcome = Outcome.failed(trial.id, "user error", "ValueError: no")
        left.append(LeftBehind(trial.id, 1, ((Attempt(trial), outcome),)))
    search = Search(tmp_path, evolution(), max_failures=1)
    search.coordinator.trials.begin(begun(trials=12), left=left)
    search.hello("1.0.0")
    assert isinstance(search.ask("1.0.0"), Stop)
    assert search.coordinator.trials.problem == "2 trials failed, more than max_failures=1"
    assert search.ended == [0, 1]


def test_an_outcome_in_a_trial_folder_that_the_driver_finds_invalid_is_retried_as_such(tmp_path):
    retried = {"optimization_key": "acc", "retry_on": ("invalid value",)}
    search = Search(tmp_path, points(2), **retried)
    found = Attempt(Trial(1, {"x": 1})), Outcome.failed(1, "ambiguous objective", "want 'acc'")
    search.coordinator.trials.begin(begun(trials=2), left=[LeftBehind(1, 1, (found,))])
    search.hello("1.0.0")
    answer = search.finish("1.0.0", search.ask("1.0.0"), objective="acc")
    assert answer == Attempt(found[0].trial, 2)


class Custom:
    """A user's searcher: proposes the given trials, and may raise in `tell`."""

    finished = False

    def __init__(self, *asked, error=None):
        self._asked, self._error, self.total = list(asked), error, len(asked)

    def ask(self):
        return self._asked.pop(0)

    def tell(self, outcome):
        if self._error:
            raise self._error


def test_a_searcher_that_proposes_too_large_a_trial_ends_the_search(tmp_path):
    search = Search(tmp_path, Custom(Trial(0, {"x": 1}), Trial(1, {"x": "a" * 2_000_000})))
    search.hello("0.0.0")
    assert search.finish("0.0.0", search.ask("0.0.0")) == Stop()
    said = "Custom.ask(): params['x'] of the trial: expected at most 1,000,000 bytes"
    assert search.coordinator.trials.problem.startswith(said)
    assert search.ended == [0]
    assert len(search.records("planned")) == 1


def test_a_searcher_that_waits_for_nothing_ends_the_search(tmp_path):
    search = Search(tmp_path, Custom(Trial(0, {"x": 1}), None))
    search.hello("0.0.0")
    assert search.finish("0.0.0", search.ask("0.0.0")) == Stop()
    said = "Custom.ask(): expected a trial, since no trial is in flight"
    assert search.coordinator.trials.problem.startswith(said)


def test_a_searcher_that_raises_in_tell_ends_the_search(tmp_path):
    error = InvalidArgument("constraint", "True or False", "KeyError: 'y', for {'x': 3}")
    search = Search(tmp_path, Custom(*(Trial(i, {"x": i}) for i in range(3)), error=error))
    search.hello("0.0.0")
    assert search.finish("0.0.0", search.ask("0.0.0")) == Stop()
    assert search.coordinator.trials.problem == str(error)
    assert search.ended == [0]


class Unsure(Custom):
    """A searcher whose `finished` or `total` raises after its first outcome."""

    def __init__(self, raising):
        super().__init__(*(Trial(number, {"x": number}) for number in range(3)))
        self._raising, self._tells = raising, 0

    def tell(self, outcome):
        self._tells += 1

    def _answer(self, name, value):
        if self._tells and name == self._raising:
            raise RuntimeError(f"{name} is not known")
        return value

    @property
    def finished(self):
        return self._answer("finished", False)

    @property
    def total(self):
        return self._answer("total", 3)

    @total.setter
    def total(self, value):
        pass


@pytest.mark.parametrize("raising", ["finished", "total"])
def test_a_searcher_whose_properties_raise_ends_the_search(tmp_path, raising):
    search = Search(tmp_path, Unsure(raising))
    coordinator = search.coordinator
    assert coordinator.trials.status.total == 3
    search.hello("0.0.0")
    search.finish("0.0.0", search.ask("0.0.0"))
    assert (coordinator.trials.done, coordinator.trials.left >= 0) == (False, True)
    assert coordinator.trials.problem.startswith(
        f"Unsure.{raising} raised RuntimeError: {raising} is not"
    )
    assert (coordinator.trials.status.total, search.ended) == (3, [0])
    assert search.ask("0.0.0") == Stop()


class Pruned(Custom):
    """A searcher whose pruner raises."""

    def __init__(self, *asked, at):
        super().__init__(*asked)
        self.judge, self._at = self, at

    def report(self, trial, step, value):
        if self._at == "report":
            raise ValueError(f"no step {step}")

    def ended(self, trial, status):
        if self._at == "ended":
            raise ValueError(f"no trial {trial}")


@pytest.mark.parametrize(
    ("at", "said"), [("report", "ValueError: no step 0"), ("ended", "ValueError: no trial 0")]
)
def test_a_pruner_that_raises_ends_the_search(tmp_path, at, said):
    search = Search(tmp_path, Pruned(*(Trial(n, {"x": n}) for n in range(3)), at=at))
    search.hello("0.0.0")
    work = search.ask("0.0.0")
    assert search.report("0.0.0", work, 0, metric=0.5) == ""
    assert search.finish("0.0.0", work) == Stop()
    assert search.coordinator.trials.problem.startswith(f"Pruned.judge.{at}() raised {said} (")
    assert search.ended == [0]
