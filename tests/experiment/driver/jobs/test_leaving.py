"""The slots of a driver that was killed."""

import re
import time
from types import SimpleNamespace

import pytest

from experiment.driver.jobs.leaving import Leaving
from experiment.run_files.ownership import Owned, Owner
from spark_jobs.storage.locations import Location


def killed(seen):
    """Return the ownership of a killed driver that was last seen at the time `seen`."""
    return Owned(
        Location.parse("/run/owners/000002.json"),
        Owner(host="h", pid=7, application="app", ran=1.0, seen=seen, alive=None),
    )


@pytest.mark.parametrize(
    ("now", "seconds"), [(1000, 120), (1119, 1), (1120, 0), (9000, 0), (-9000, 120)]
)
def test_slots_of_a_killed_driver_have_two_minutes_to_leave_whatever_its_clock(now, seconds):
    assert killed(1000.0).leaving(now) == seconds
    assert Owned(Location.parse("/run/owners/000001.json"), None).leaving(now) == 0


@pytest.mark.parametrize(
    ("on_this_host", "classic", "waits"),
    [(True, True, False), (False, True, True), (True, False, True)],
)
def test_a_resumed_search_names_the_driver_whose_slots_are_leaving(on_this_host, classic, waits):
    session = SimpleNamespace(on_this_host=on_this_host, tells_lost_tasks=classic)
    leaving = Leaving.of(killed(time.time() + 9), session)
    if waits:
        expected = r"slots of the driver that was killed \(host h, pid 7\) leave within \d+ s"
        assert re.fullmatch(expected, str(leaving))
    else:
        assert leaving is None
    assert Leaving.of(killed(0.0), session) is None


def test_slots_that_have_left_are_not_named():
    assert str(Leaving("the driver that was killed", time.monotonic() - 1)) == ""
