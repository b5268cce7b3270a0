import warnings
from types import SimpleNamespace

import psutil
import pytest

from experiment.setup.settings import Settings
from experiment.setup.slot_count import slot_count
from search.errors import InvalidArgument
from spark_jobs.trial.memory import control_groups


def session(slots, *, on_this_host=True, may_get_more=False):
    answers = [slots]  # counting them may take seconds, so once is enough
    return SimpleNamespace(
        task_slots=lambda tick: answers.pop(),
        on_this_host=on_this_host,
        may_get_more_slots=may_get_more,
    )


def slots_of(trials, settings, session, preload=("tensorflow",)):
    return slot_count(trials, settings, session, preload=preload, warn=warnings.warn)


@pytest.fixture
def free(monkeypatch, tmp_path):
    """Set the free memory of a host on which no control group has a limit."""
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "own")

    def set_free(bytes_free):
        memory = SimpleNamespace(available=bytes_free)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    return set_free


def test_there_are_as_many_slots_as_task_slots_and_at_most_one_per_trial(free):
    free(1e12)
    assert slots_of(100, Settings(), session(8)) == 8
    assert slots_of(3, Settings(), session(8)) == 3


def test_parallelism_is_an_upper_limit(free):
    free(1e12)
    assert slots_of(100, Settings(parallelism=2), session(8)) == 2
    assert slots_of(1, Settings(parallelism=2), session(8)) == 1


def test_a_search_without_a_total_needs_another_limit_of_its_slots(free):
    free(1e12)
    assert slots_of(None, Settings(), session(8)) == 8
    assert slots_of(None, Settings(parallelism=2), session(2**31)) == 2
    with pytest.raises(InvalidArgument, match="^parallelism: .*maxExecutors$"):
        slots_of(None, Settings(), session(2**31))


def test_little_memory_on_this_host_reduces_the_slots_with_a_warning(free):
    free(2e9)
    with pytest.warns(UserWarning, match="2 trials at once instead of 8"):
        assert slots_of(100, Settings(), session(8)) == 2
    free(1e6)
    with pytest.warns(UserWarning, match="1 trials at once"):
        assert slots_of(100, Settings(), session(8)) == 1


def test_the_memory_limit_of_a_container_reduces_the_slots(free, tmp_path):
    free(64e9)
    for name, number in {"max": 2_500_000_000, "current": 500_000_000, "stat": ""}.items():
        (tmp_path / f"memory.{name}").write_text(f"{number}\n")
    with pytest.warns(UserWarning, match="2 trials at once instead of 8"):
        assert slots_of(100, Settings(), session(8)) == 2


@pytest.mark.parametrize(
    ("settings", "preload", "on_this_host"),
    [
        (Settings(isolation="none"), ("tensorflow",), True),
        (Settings(), (), True),
        (Settings(parallelism=8), ("tensorflow",), True),
        (Settings(), ("tensorflow",), False),
    ],
)
def test_memory_counts_only_where_modules_are_imported_on_this_host(
    free, settings, preload, on_this_host
):
    free(1e6)
    slots = slots_of(100, settings, session(8, on_this_host=on_this_host), preload)
    assert slots == 8


def test_trials_of_different_sizes_use_all_slots_that_they_can(free):
    free(1e12)
    some = {"workers_per_trial": (2, 4)}
    assert slots_of(100, Settings(**some), session(7)) == 7
    assert slots_of(1, Settings(**some), session(7)) == 4
    assert slots_of(100, Settings(parallelism=2, **some), session(3)) == 8
    assert slots_of(100, Settings(workers_per_trial=(3, 4)), session(5)) == 4
    assert slots_of(9, Settings(**some), session(1, may_get_more=True)) == 2
    with pytest.raises(InvalidArgument, match=r"at most 1, the slots .* got \(2, 4\); use fewer"):
        slots_of(9, Settings(**some), session(1))
    free(2.5e9)
    with pytest.warns(UserWarning, match="3 slots instead of 7: .* for each of their 2 to 4 work"):
        assert slots_of(100, Settings(**some), session(7)) == 3


def test_slots_are_whole_gangs(free):
    free(1e12)
    two = {"workers_per_trial": 2}
    assert slots_of(100, Settings(**two), session(7)) == 6
    assert slots_of(2, Settings(**two), session(7)) == 4
    assert slots_of(100, Settings(parallelism=3, **two), session(7)) == 6
    assert slots_of(2, Settings(parallelism=3, **two), session(7)) == 4


def test_more_workers_than_slots_are_refused_with_both_numbers(free):
    free(1e12)
    said = (
        "workers_per_trial: expected at most 3, the slots that this cluster can have, got 4; use "
        "fewer, or give Spark more executors or cores"
    )
    for parallelism in (None, 1):
        with pytest.raises(InvalidArgument) as refused:
            slots_of(9, Settings(workers_per_trial=4, parallelism=parallelism), session(3))
        assert str(refused.value) == said


def test_more_workers_than_slots_are_waited_for_where_more_may_come(free):
    """As on a standalone cluster, whose workers join one by one; startup_timeout ends it."""
    free(1e12)
    four = {"workers_per_trial": 4}
    assert slots_of(9, Settings(**four), session(3, may_get_more=True)) == 4
    assert slots_of(9, Settings(parallelism=2, **four), session(1, may_get_more=True)) == 8


def test_little_memory_leaves_room_for_one_trial_with_all_its_workers(free):
    free(4.2e9)
    said = "1 trials at once instead of 2: .* at 0.8 GB for each of their 4 workers"
    with pytest.warns(UserWarning, match=said):
        assert slots_of(100, Settings(workers_per_trial=4), session(8)) == 4
    free(1e6)
    with pytest.warns(UserWarning, match="1 trials at once"):
        assert slots_of(100, Settings(workers_per_trial=4), session(8)) == 4
