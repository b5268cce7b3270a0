"""How often slots send messages, by their number."""

from hypothesis import given
from hypothesis import strategies as st

from experiment.driver.slots.pace import longer_wait, report_pause
from spark_jobs import time_limits
from tests.properties import examples

NUMBERS = st.integers(1, 1_000_000)


def test_few_slots_report_at_once_and_wait_as_usually():
    for judged in (True, False):
        assert report_pause(99, judged=judged, in_gangs=False) == 0
    assert longer_wait(1_000) == 0


def test_ten_thousand_slots_report_and_ask_seldom():
    assert report_pause(1_000, judged=False, in_gangs=False) == 10
    assert report_pause(10_000, judged=False, in_gangs=False) == time_limits.SLOT_BEAT
    assert report_pause(10_000, judged=True, in_gangs=False) == 10
    assert longer_wait(10_000) == 90


@examples(100)
@given(NUMBERS, st.booleans(), st.booleans())
def test_more_slots_send_no_more_messages_and_none_is_silent_for_too_long(slots, judged, in_gangs):
    longest = time_limits.GANG_BEAT if in_gangs else time_limits.SLOT_BEAT
    pause = report_pause(slots, judged=judged, in_gangs=in_gangs)
    assert pause <= report_pause(slots + 1, judged=judged, in_gangs=in_gangs) <= longest
    assert report_pause(slots, judged=True, in_gangs=in_gangs) <= report_pause(
        slots, judged=False, in_gangs=in_gangs
    )
    assert 0 <= longer_wait(slots) <= longer_wait(slots + 1) <= time_limits.LONGER_WAIT
