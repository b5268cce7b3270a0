"""The slots that may get trials, without a search."""

from __future__ import annotations

import pytest

from experiment.driver.slots.roster import Roster
from spark_jobs.messages import Hello


@pytest.fixture
def roster():
    return Roster(requested=2)


def join(roster, slot, host, **fields):
    message = Hello(slot=slot, host=host, **fields)
    assert roster.hear(message)
    roster.gpus.hear(message)
    return roster.join(slot, host)


def test_a_trial_avoids_the_host_where_it_died_while_there_are_others(roster):
    join(roster, "1.0.0", "a")
    join(roster, "1.1.0", "b")
    roster.hosts.died("a", 0, "no space left")
    assert roster.avoided(0) == {"a"}
    assert roster.avoided(1) == set()


def test_a_trial_that_died_on_all_hosts_avoids_none(roster):
    for number, host in enumerate("ab"):
        join(roster, f"1.{number}.0", host)
        roster.hosts.died(host, 0, "no space left")
    assert roster.avoided(0) == set()


def test_a_trial_avoids_no_host_whose_only_other_slot_leaves(roster):
    join(roster, "1.0.0", "a")
    join(roster, "1.1.0", "b")
    roster.hosts.died("a", 0, "no space left")
    assert roster.decommission(["1.1.0"]) == ["b"]
    assert roster.avoided(0) == set()


def test_a_trial_avoids_no_host_whose_only_other_slot_has_a_gpu_that_is_set_aside(roster):
    join(roster, "1.0.0", "a", gpus=("0",))
    join(roster, "1.1.0", "b", gpus=("0",), set_aside={"0": "GPU 0 of host b keeps 4.2 GiB"})
    roster.hosts.died("a", 0, "no space left")
    assert roster.avoided(0) == set()


def test_slots_of_the_same_host_and_gpus_are_alike(roster):
    for slot, gpus in (("1.0.0", ("0",)), ("1.1.0", ("0",)), ("1.2.0", ("1",)), ("1.3.0", ())):
        join(roster, slot, "a", gpus=gpus)
    assert roster.alike("1.0.0") == roster.alike("1.1.0")
    assert len({roster.alike(slot) for slot in ("1.0.0", "1.2.0", "1.3.0")}) == 3
    roster.decommission(["1.1.0"])
    assert roster.alike("1.0.0") != roster.alike("1.1.0")
