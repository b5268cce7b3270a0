"""The ends of attempts, by outcomes and by losses of slots, through the coordinator."""

import itertools

import pytest

from search.stopping.rules import Threshold
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import (
    Attempt,
    Hello,
    Stop,
    Wait,
)
from tests.experiment.driver.searches import (
    finished,
    lose_by_the_end_of_the_job,
    lose_by_the_task,
    points,
)


def test_an_outcome_of_another_slots_attempt_is_ignored(start):
    search = start(points(2), "1.0.0", "1.1.0")
    first, second = search.ask("1.0.0"), search.ask("1.1.0")
    assert search.finish("1.0.0", second) == first
    assert search.hand_in("1.0.0", 2, finished(first.trial.id)) == first
    assert search.ended == []
    assert search.records("finished") == []


@pytest.mark.parametrize("lose", [lose_by_the_task, lose_by_the_end_of_the_job])
def test_a_trial_of_a_lost_slot_runs_again_as_the_next_attempt(start, lose):
    search = start(points(2), "1.0.0")
    work = search.ask("1.0.0")
    slot = lose(search)
    assert len(search.coordinator.trials.status.running) == 0
    assert not search.coordinator.trials.done
    again = search.ask(slot)
    assert again == Attempt(work.trial, 2)
    [lost] = search.records("lost")
    assert (lost["trial"], lost["attempt"], lost["slot"]) == (work.trial.id, 1, "1.0.0")
    assert lost["kind"] == "lost executor"
    assert "host" in lost["message"]
    search.finish(slot, again)
    [result] = search.coordinator.trials.results
    assert result.logdir == str(search.paths.attempt(work.trial.id, 2).folder)
    assert search.records("finished")[0]["attempt"] == 2


@pytest.mark.parametrize("lose", [lose_by_the_task, lose_by_the_end_of_the_job])
def test_a_lost_attempt_is_no_failure_of_its_trial(start, lose):
    search = start(points(1), "1.0.0", max_failures=0)
    search.ask("1.0.0")
    slot = lose(search)
    assert search.coordinator.trials.problem is None
    assert search.coordinator.trials.results == []
    assert search.run_to_the_end(slot) == ([0], Stop())
    assert search.coordinator.trials.done


@pytest.mark.parametrize("lose", [lose_by_the_task, lose_by_the_end_of_the_job])
def test_a_late_outcome_of_an_attempt_that_was_given_up_is_ignored(start, lose):
    search = start(points(1), "1.0.0")
    work = search.ask("1.0.0")
    slot = lose(search)
    again = search.ask(slot)
    search.finish("1.0.0", work, 7.0)
    assert search.hand_in(slot, 1, finished(0, 7.0)) == again
    assert search.coordinator.trials.results == []
    search.finish(slot, again, 1.0)
    assert [result.value for result in search.coordinator.trials.results] == [1.0]
    assert len(search.records("finished")) == 1


def test_a_trial_can_be_lost_as_often_as_it_may_be_retried(start):
    search = start(points(2), "1.0.0", retries=5)
    for number in range(1, 6):
        assert search.ask(f"1.0.{number - 1}") == Attempt(Trial(0, {"x": 0}), number)
        search.coordinator.ends.slots_lost([f"1.0.{number - 1}"])
        search.hello(f"1.0.{number}")
    assert search.run_to_the_end("1.0.5") == ([0, 1], Stop())
    assert [record["attempt"] for record in search.records("lost")] == [1, 2, 3, 4, 5]
    assert search.coordinator.trials.done


def test_a_trial_that_was_lost_too_often_has_failed(start):
    search = start(points(2), "1.0.0", retries=1)
    for number in range(2):
        assert search.ask(f"1.0.{number}").trial.id == 0
        search.hello(f"1.0.{number + 1}")
        search.coordinator.ends.slots_lost([f"1.0.{number}"])
    assert search.run_to_the_end("1.0.2") == ([1], Stop())
    lost, other = search.coordinator.trials.results
    assert (lost.status, lost.error.kind) == ("failed", "lost executor")
    assert "host" in lost.error.message
    assert lost.logdir == str(search.paths.attempt(0, 2).folder)
    assert other.status == "finished"


@pytest.mark.parametrize("kind", ["machine", "user error", "exit", "gpu memory"])
def test_a_failure_of_a_kind_in_retry_on_is_retried(start, kind):
    search = start(points(1), "1.0.0", retries=1, retry_on=(kind,))
    again = search.fail("1.0.0", search.ask("1.0.0"), kind)
    assert again == Attempt(Trial(0, {"x": 0}), 2)
    assert search.coordinator.trials.results == []
    assert search.records("lost")[0]["kind"] == kind
    assert search.fail("1.0.0", again, kind) == Stop()
    assert [result.error.kind for result in search.coordinator.trials.results] == [kind]


def test_a_user_error_is_not_retried_by_default(start):
    search = start(points(1), "1.0.0")
    assert search.fail("1.0.0", search.ask("1.0.0"), "user error") == Stop()
    assert search.coordinator.trials.done


def test_a_trial_with_a_machine_failure_runs_on_another_host(start):
    search = start(points(2), "1.0.0")
    search.coordinator.hello(Hello(slot="1.1.0", host="other"))
    first = search.ask("1.0.0")
    answer = search.fail("1.0.0", first, "machine", "host host: no space left")
    assert answer.trial.id == 1
    search.finish("1.0.0", answer)
    assert search.ask("1.0.0") == Wait()
    assert search.ask("1.1.0") == Attempt(Trial(0, {"x": 0}), 2)


def test_a_host_on_which_three_trials_died_gets_no_more_trials_and_is_named(start):
    search = start(points(9), "1.0.0")
    search.coordinator.hello(Hello(slot="1.1.0", host="other"))
    answer = search.ask("1.0.0")
    for _ in range(3):
        assert search.warnings == []
        answer = search.fail("1.0.0", answer, "machine", "host host: no space left")
    assert answer == Stop()
    (warning,) = search.warnings
    assert warning == (
        "host host: trials 0, 1, 2 died there, the last one since host host: no space left; this "
        "host gets no more trials"
    )
    search.hello("1.2.0")
    assert search.ask("1.2.0") == Stop()
    trials, answer = search.run_to_the_end("1.1.0")
    assert sorted(trials) == list(range(9))
    assert search.coordinator.trials.done


def test_a_store_that_does_not_answer_excludes_no_host(start):
    search = start(points(4), "1.0.0", retries=1)
    failure = Failure(kind="machine", message="hdfs://a/b: no WebHDFS", of_store=True)
    answer = search.ask("1.0.0")
    for trial, number in itertools.product(range(4), (1, 2)):
        assert (answer.trial.id, answer.number) == (trial, number)
        outcome = Outcome(trial, "failed", error=failure)
        answer = search.hand_in("1.0.0", number, outcome)
    assert search.warnings == []
    assert [result.error for result in search.coordinator.trials.results] == [failure] * 4


def test_a_search_ends_when_its_only_host_gets_no_more_trials(start):
    search = start(points(9), "1.0.0", retries=0)
    answer = search.ask("1.0.0")
    for _ in range(3):
        answer = search.fail("1.0.0", answer, "machine", "no space left")
    assert answer == Stop()
    search.coordinator.ends.job_ended(1)
    for job in (2, 3):
        search.hello(f"{job}.0.0")
        assert search.ask(f"{job}.0.0") == Stop()
        assert search.coordinator.trials.problem is None
        search.coordinator.ends.job_ended(job)
    assert search.coordinator.trials.problem == (
        "host host: trials 0, 1, 2 died there, the last one since no space left"
    )


def test_the_end_of_a_job_loses_only_the_attempts_of_its_slots(start):
    slots = ("1.0.0", "1.10.0", "11.0.0", "2.1.0")
    search = start(points(4), *slots)
    works = {slot: search.ask(slot) for slot in slots}
    search.coordinator.ends.job_ended(1)
    assert [record["slot"] for record in search.records("lost")] == ["1.0.0", "1.10.0"]
    assert len(search.coordinator.trials.status.running) == 2
    for slot in ("11.0.0", "2.1.0"):
        assert search.ask(slot) == works[slot]
    search.coordinator.ends.job_ended(3)
    assert len(search.coordinator.trials.status.running) == 2


def test_the_end_of_a_job_without_trials_changes_nothing(start):
    search = start(points(1), "1.0.0")
    search.run_to_the_end("1.0.0")
    search.coordinator.ends.job_ended(1)
    assert search.coordinator.trials.done
    assert search.records("lost") == []


def test_a_lost_slot_gets_no_more_trials(start):
    search = start(points(2), "1.0.0", "1.1.0")
    search.ask("1.0.0")
    search.coordinator.ends.slots_lost(["1.0.0", "1.7.0"])
    search.hello("1.0.0", warnings=("slow",))
    assert search.coordinator.trials.status.slots == 1
    assert search.ask("1.0.0") == Stop()
    assert search.warnings == []


def test_a_lost_executor_is_noted_once_with_the_trials_that_run_again(start):
    search = start(points(5), "1.0.0", "1.1.0", "1.2.0", "1.3.0")
    for slot in ("1.0.0", "1.1.0", "1.2.0"):
        search.ask(slot)
    search.coordinator.ends.slots_lost(["1.2.0", "1.0.0"])
    search.coordinator.ends.slots_lost(["1.2.0", "1.0.0", "1.3.0"])  # which had no trial
    search.coordinator.ends.job_ended(1)
    assert list(search.coordinator.trials.status.notes) == [
        "executor on host host lost, trials 0 and 2 run again",
        "Spark ended the slot's job, trial 1 runs again",
    ]


def end_by_the_job(search):
    search.coordinator.ends.job_ended(1)


def end_by_the_task(search):
    search.coordinator.ends.slots_ended(["1.0.0"], counts=False)


@pytest.mark.parametrize("end", [end_by_the_job, end_by_the_task])
def test_a_trial_whose_slot_spark_has_ended_runs_again_without_retries(start, end):
    search = start(points(1), "1.0.0", retries=0, retry_on=())
    search.ask("1.0.0")
    end(search)
    assert list(search.coordinator.trials.status.notes) == [
        "Spark ended the slot's job, trial 0 runs again"
    ]
    assert search.coordinator.trials.results == []
    assert search.coordinator.trials.progress == 0  # so repeated ends of jobs are noticed
    [lost] = search.records("lost")
    assert (lost["message"], lost["counts"]) == ("Spark ended its slot's job on host host", False)
    search.hello("2.0.0")
    assert search.run_to_the_end("2.0.0") == ([0], Stop())


def test_the_end_of_a_job_counts_where_the_lost_task_is_not_known(start):
    """Else a trial that ends its slot each time would end the search."""
    search = start(points(1), "1.0.0", retries=0)
    search.ask("1.0.0")
    search.coordinator.ends.job_ended(1, counts=True)
    [result] = search.coordinator.trials.results
    assert (result.status, result.error.kind) == ("failed", "lost executor")
    assert result.error.message == "Spark ended its slot's job on host host"


def test_a_trial_that_is_not_retried_is_not_noted(start):
    search = start(points(2), "1.0.0", retries=0)
    search.ask("1.0.0")
    search.coordinator.ends.slots_lost(["1.0.0"])
    assert list(search.coordinator.trials.status.notes) == []


def test_a_trial_of_a_slot_that_leaves_too_early_runs_again(start):
    search = start(points(1), "1.0.0", "1.1.0")
    search.ask("1.0.0")
    search.coordinator.slots_decommissioned(["1.0.0"])
    search.coordinator.ends.slots_lost(["1.0.0"])
    again = search.ask("1.1.0")
    assert (again.trial.id, again.number) == (0, 2)
    assert not search.coordinator.roster.let_go


def test_a_trial_of_a_slot_that_reports_a_problem_later_runs_again(start):
    search = start(points(1), "1.0.0")
    search.ask("1.0.0")
    search.coordinator.hello(Hello(slot="1.1.0", host="other"))
    search.hello("1.0.0", problem="host host: TensorFlow cannot be imported")
    assert search.ask("1.0.0") == Stop()
    assert search.ask("1.1.0") == Attempt(Trial(0, {"x": 0}), 2)


@pytest.mark.parametrize("lose", [lose_by_the_task, lose_by_the_end_of_the_job])
def test_an_attempt_that_was_given_up_gets_a_stop(start, lose):
    search = start(points(1), "1.0.0", stopping=[Threshold(upper=1.0)])
    work = search.ask("1.0.0")
    slot = lose(search)
    again = search.ask(slot)
    assert search.report("1.0.0", work, 5, loss=9.0) == "its slot was given up"
    assert search.report(slot, work, 5, loss=9.0) == "its slot was given up"
    assert search.records("reported") == []
    assert search.report(slot, again, 0, loss=0.5) == ""
