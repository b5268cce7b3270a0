"""The end of searches from outside, without Spark."""

from __future__ import annotations

from experiment.driver.control import Control, controlled_by, own_control
from experiment.results.status import Status


def test_a_search_that_ends_does_not_end_the_next_one_of_its_call():
    call = Control()
    with controlled_by(call):
        first, second = own_control(), own_control()
    first.give_way("another driver has taken over")
    assert (first.reason, first.overtaken) == ("another driver has taken over", True)
    assert (second.reason, second.overtaken) == (None, False)
    call.cancel("cancelled")
    assert second.reason == "cancelled"
    assert first.reason == "another driver has taken over"


def test_a_call_has_the_status_of_its_newest_search():
    call, first, second = Control(), Status(total=1), Status(total=2)
    with controlled_by(call):
        assert call.status is None
        own_control().begin(lambda: first)
        assert call.status() is first
        own_control().begin(lambda: second)
        assert call.status() is second


def test_the_first_reason_counts():
    call = Control()
    with controlled_by(call):
        search = own_control()
    call.cancel("cancelled")
    search.cancel("the deadline of 1 s has passed")
    assert search.reason == "cancelled"
    search = own_control()
    search.cancel("the deadline of 1 s has passed")
    search.cancel("interrupted")
    assert search.reason == "the deadline of 1 s has passed"
