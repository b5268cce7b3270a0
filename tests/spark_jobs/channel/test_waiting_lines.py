"""Which waiting slots are asked, without any channel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.channel.waiting_lines import WaitingLines
from tests.properties import examples


class Slots:
    """Slots with a key each, and some work for each key; calls are words."""

    def __init__(self, keys):
        self.keys, self.work, self.asked = dict(keys), {}, []
        self.same_now = False
        self.lines = WaitingLines(self.keys.__getitem__, self.now)
        for slot in self.keys:
            self.lines.join(slot, f"call of {slot}")

    def now(self, slot):
        return None if self.same_now else self.keys[slot]

    def ask(self, slot, call):
        assert call == f"call of {slot}"
        self.asked.append(slot)
        left = self.work.get(self.keys[slot], 0)
        self.work[self.keys[slot]] = left - 1
        return left > 0

    def wake(self):
        """Return the slots that are asked in their order."""
        self.asked.clear()
        self.lines.wake(self.ask)
        return list(self.asked)


def test_of_each_line_slots_are_asked_until_one_has_to_wait():
    slots = Slots({"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c"})
    slots.work = {"b": 2, "c": 5}
    assert slots.wake() == ["b1", "b2", "b3", "a1", "c1"]


def test_of_lines_that_would_get_the_same_answer_now_one_slot_is_asked():
    slots = Slots({"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b"})
    slots.same_now = True
    assert slots.wake() == ["b1"]


@pytest.mark.parametrize("same_now", [False, True])
def test_a_slot_that_is_not_like_its_line_any_more_stops_no_other(same_now):
    slots = Slots({"a1": "a", "a2": "a", "a3": "a"})
    slots.keys["a1"] = "kept"
    slots.work["a"] = 1
    assert slots.wake() == ["a1", "a2", "a3"]
    slots.work["a"] = 1
    slots.same_now = same_now
    assert slots.wake()[:2] == ["a2", "a3"], "it has moved to a line of its own"
    assert len(slots.lines) == 3


def test_a_whole_line_that_has_changed_moves_once():
    slots = Slots({f"a{number}": "kept" for number in range(9)})
    slots.keys.update(dict.fromkeys(slots.keys, "free"))
    assert slots.wake() == ["a0"]
    seen = []
    slots.lines._alike = lambda slot: seen.append(slot) or "free"
    assert slots.wake() == ["a0"]
    assert seen == ["a0"]


def test_a_slot_that_joins_again_keeps_its_place_and_leaves_by_its_last_call_only():
    slots = Slots({"a1": "a", "a2": "a"})
    first, last = object(), object()
    slots.lines.join("a1", first)
    slots.lines.join("a1", last)
    slots.lines.leave("a1", first)
    assert slots.lines.get("a1") is last
    slots.ask = lambda slot, call: slots.asked.append(slot)
    assert slots.wake() == ["a1"]
    slots.lines.leave("a1", last)
    slots.lines.leave("a1", last)
    assert slots.lines.get("a1") is None
    assert slots.wake() == ["a2"]


def test_a_slot_that_joins_again_as_another_kind_waits_in_one_line_only():
    slots = Slots({"a1": "a", "b1": "b"})
    slots.keys["a1"] = "b"
    slots.lines.join("a1", "call of a1")
    slots.work["b"] = 9
    assert slots.wake() == ["b1", "a1"]


KEYS = st.sampled_from("abc")
SLOTS = st.dictionaries(st.integers(0, 30), st.tuples(KEYS, KEYS), max_size=30)


@examples(200)
@given(SLOTS, st.dictionaries(KEYS, st.integers(0, 5)))
def test_no_work_is_left_that_a_slot_at_the_front_of_its_line_could_get(kinds, work):
    """Whatever slots have become since they joined, if all of a line have become the same."""
    became = {}
    slots = Slots({slot: first for slot, (first, _) in kinds.items()})
    for slot, (first, then) in kinds.items():
        slots.keys[slot] = became.setdefault(first, then)
    slots.work = dict(work)
    answered = set()

    def ask(slot, call):
        got = slot not in answered and slots.ask(slot, call)
        answered.update([slot] if got else [])
        return got

    slots.lines.wake(ask)
    for slot in set(slots.keys) - answered:
        assert slots.work.get(slots.keys[slot], 0) <= 0
