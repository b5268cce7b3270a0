"""The simulated slots of `make bench-slots`, fewer of them, for whole searches."""

import pytest

from tests.benchmarks.slots import growth
from tests.benchmarks.slots.many_slots import Driver, generations, points, wait_for


def run(folder, search, slots, per_relay):
    """Return the results of a whole search on simulated slots."""
    with Driver(folder, search, slots, per_relay).running() as driver:
        assert driver.coordinator.trials.status.slots == slots
        assert not driver.coordinator.trials.results, "the gate is closed"
        driver.open()
        wait_for(lambda: driver.coordinator.trials.done)
        return driver.coordinator.trials.results


ways = pytest.mark.parametrize("per_relay", [0, 7], ids=["themselves", "relays"])


@pytest.mark.slow
@pytest.mark.contract
@ways
def test_more_slots_than_trials_run_each_trial_once(tmp_path, per_relay):
    results = run(tmp_path, points(30, 0.01, reports=1), 60, per_relay)
    assert sorted(result.id for result in results) == list(range(30))
    assert all(result.status == "finished" for result in results)


@pytest.mark.slow
@pytest.mark.contract
@ways
def test_slots_that_wait_for_a_generation_get_the_next_one(tmp_path, per_relay):
    results = run(tmp_path, generations(20, 2), 20, per_relay)
    assert sorted(result.id for result in results) == list(range(60))


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("search", [growth.points(60, 20), growth.evolution(10, 5)])
def test_the_growth_of_costs_is_measured_over_whole_searches(search):
    found = growth._cost(search, 10, [20, 60])
    assert len(found) == 2
    assert all(cpu > 0 for cpu, _ in found)
