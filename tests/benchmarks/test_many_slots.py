"""The simulated slots of `make bench-slots`, fewer of them, for whole searches."""

from tests.benchmarks.many_slots import Driver, generations, points, wait_for


def run(folder, search, slots):
    """Return the results of a whole search on simulated slots."""
    with Driver(folder, search, slots).running() as driver:
        assert driver.coordinator.trials.status.slots == slots
        assert not driver.coordinator.trials.results, "the gate is closed"
        driver.open()
        wait_for(lambda: driver.coordinator.trials.done)
        return driver.coordinator.trials.results


def test_more_slots_than_trials_run_each_trial_once(tmp_path):
    results = run(tmp_path, points(30, 0.01, reports=1), slots=60)
    assert sorted(result.id for result in results) == list(range(30))
    assert all(result.status == "finished" for result in results)


def test_slots_that_wait_for_a_generation_get_the_next_one(tmp_path):
    results = run(tmp_path, generations(20, 2), slots=20)
    assert sorted(result.id for result in results) == list(range(60))
