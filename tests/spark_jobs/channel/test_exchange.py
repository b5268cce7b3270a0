"""Waiting slots on the driver's side, without any channel."""

import asyncio
import json
from collections import defaultdict

import pytest

from search.trial import Outcome, Trial
from spark_jobs.channel.credentials import new_key
from spark_jobs.channel.exchange import Exchange, Refusal
from spark_jobs.messages import Attempt, Hello, Next, Wait, decode, decode_answer, encode

_PATIENCE = 60.0


class Works:
    """Has as much work as a test gives it; slots of one host are alike."""

    def __init__(self):
        self.hosts, self.work, self.asked = {}, {}, []
        self.error = None
        self.same_now = False

    def hello(self, message):
        self.hosts[message.slot] = message.host

    def alike(self, slot):
        return self.hosts[slot]

    def alike_now(self, slot):
        return None if self.same_now else self.hosts[slot]

    def assigned(self):
        return []

    def next(self, message):
        self.asked.append(message.slot)
        if self.error is not None:
            raise self.error
        trials = self.work.get(self.hosts[message.slot], [])
        return Attempt(Trial(trials.pop(0), {})) if trials else Wait()


KEYS = defaultdict(new_key)


def slots(number):
    return [f"1.{partition}.{number}" for partition in range(number * 100, number * 100 + 50)]


async def line_up(exchange, handler, names, host, patience=_PATIENCE):
    """Let slots say hello and wait; return the calls that are out."""
    keys = {name: KEYS[name] for name in names}
    for name, key in keys.items():
        await exchange.answer("Hello", encode(Hello(slot=name, host=host)), key, patience)
    await asyncio.sleep(0)  # slots that wait already are asked again
    handler.asked.clear()
    calls = []
    for name, key in keys.items():
        call = exchange.answer("Next", encode(Next(name)), key, patience)
        calls.append(asyncio.ensure_future(call))
        await asyncio.sleep(0)
    assert handler.asked == names, "each has asked once, in their order"
    handler.asked.clear()
    return calls


def asks_of_works(exchange, slot):
    return exchange.answer("Next", encode(Next(slot)), KEYS[slot], _PATIENCE)


def trial_of(call):
    answer, _ = call.result()
    return decode(answer, Attempt).trial.id


def run(test):
    """Run a test in a loop, and end what it left waiting."""

    async def main():
        handler = Works()
        try:
            await test(Exchange(handler), handler)
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    asyncio.run(main())


def test_where_nothing_is_new_one_slot_of_each_host_is_asked():
    async def test(exchange, handler):
        first, second = slots(1), slots(2)
        await line_up(exchange, handler, first, "a")
        await line_up(exchange, handler, second, "b")
        exchange.wake()
        assert handler.asked == [first[0], second[0]]

    run(test)


def test_where_hosts_do_not_matter_now_one_slot_is_asked_for_all():
    async def test(exchange, handler):
        first, second = slots(1), slots(2)
        calls = await line_up(exchange, handler, first, "a")
        calls += await line_up(exchange, handler, second, "b")
        handler.same_now = True
        exchange.wake()
        assert handler.asked == [first[0]]
        handler.same_now = False
        handler.work["b"] = [7]
        exchange.wake()
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert trial_of(calls[50]) == 7

    run(test)


def test_outcomes_that_come_at_once_wake_slots_once():
    async def test(exchange, handler):
        (waiting,) = await line_up(exchange, handler, ["1.0.0"], "a")
        names = [f"1.{number}.0" for number in range(1, 9)]
        for name in names:
            await exchange.answer(
                "Hello", encode(Hello(slot=name, host="a")), KEYS[name], _PATIENCE
            )
        await asyncio.sleep(0)
        handler.asked.clear()
        outcomes = (encode(Next(name, 1, Outcome(0, "cancelled"))) for name in names)
        calls = [
            asyncio.ensure_future(exchange.answer("Next", outcome, KEYS[name], _PATIENCE))
            for name, outcome in zip(names, outcomes, strict=True)
        ]
        while len(handler.asked) < 9:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert handler.asked == [*names, "1.0.0"]
        assert not waiting.done()
        for call in calls:
            call.cancel()

    run(test)


def test_as_many_slots_are_asked_as_there_is_work_for_and_one_more():
    async def test(exchange, handler):
        first, second = slots(1), slots(2)
        calls = await line_up(exchange, handler, first, "a")
        await line_up(exchange, handler, second, "b")
        handler.work["a"] = [7, 8, 9]
        exchange.wake()
        assert handler.asked == [*first[:4], second[0]]
        await asyncio.wait(calls[:3])
        assert list(map(trial_of, calls[:3])) == [7, 8, 9]
        assert not any(call.done() for call in calls[3:])

    run(test)


def test_a_host_without_work_delays_no_other():
    async def test(exchange, handler):
        await line_up(exchange, handler, slots(1), "a")
        (call, *_) = await line_up(exchange, handler, slots(2), "b")
        handler.work["b"] = [5]
        exchange.wake()
        await asyncio.wait([call])
        assert trial_of(call) == 5

    run(test)


def test_a_slot_that_left_the_queue_gets_nothing():
    async def test(exchange, handler):
        names = slots(1)
        calls = await line_up(exchange, handler, names, "a")
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        handler.work["a"] = [3]
        exchange.wake()
        assert handler.asked == [names[1], names[2]]

    run(test)


def test_a_slot_that_has_waited_long_enough_gets_an_answer():
    async def test(exchange, handler):
        (call,) = await line_up(exchange, handler, ["1.0.0"], "a", patience=0.01)
        await asyncio.wait([call])
        assert json.loads(call.result()[0]) == {"type": "wait", "longer": 0.0}
        handler.work["a"] = [3]
        exchange.wake()
        assert not handler.asked, "nobody waits any more"

    run(test)


def test_a_slot_may_let_the_driver_wait_longer():
    async def test(exchange, handler):
        for slot in ("1.0.0", "1.1.0"):
            message = encode(Hello(slot=slot, host="a"))
            await exchange.answer("Hello", message, KEYS[slot], _PATIENCE)
        message = encode(Next("1.0.0", longer=_PATIENCE))
        longer = asyncio.ensure_future(exchange.answer("Next", message, KEYS["1.0.0"], 0.01))
        await exchange.answer("Next", encode(Next("1.1.0")), KEYS["1.1.0"], 0.01)
        assert not longer.done()

    run(test)


def test_an_outcome_of_one_slot_brings_others_their_work():
    async def test(exchange, handler):
        (waiting,) = await line_up(exchange, handler, ["1.0.0"], "a")
        await exchange.answer(
            "Hello", encode(Hello(slot="1.1.0", host="a")), key := new_key(), _PATIENCE
        )
        handler.work["a"] = [1, 2]
        message = encode(Next("1.1.0", 1, Outcome(0, "cancelled")))
        answer, _ = await exchange.answer("Next", message, key, _PATIENCE)
        await asyncio.wait([waiting])
        assert (decode(answer, Attempt).trial.id, trial_of(waiting)) == (1, 2)

    run(test)


def test_an_error_of_the_driver_ends_waiting_calls():
    async def test(exchange, handler):
        calls = await line_up(exchange, handler, slots(1), "a")
        handler.error = OSError("the disk is full")
        exchange.wake()
        await asyncio.wait(calls)
        for call in calls:
            with pytest.raises(Refusal) as refusal:
                call.result()
            assert refusal.value.status == "ABORTED"
        assert exchange.error is handler.error

    run(test)


def test_a_slot_that_asks_again_ends_its_first_call_and_keeps_its_place():
    """Whichever of the two its client still waits for: it asks again, or gets the work."""

    async def test(exchange, handler):
        first, _ = await line_up(exchange, handler, ["1.0.0", "1.1.0"], "a")
        second = asyncio.ensure_future(asks_of_works(exchange, "1.0.0"))
        await asyncio.wait([first])
        assert decode_answer(first.result()[0]) == Wait()
        handler.asked.clear()
        handler.work["a"] = [4]
        exchange.wake()
        await asyncio.wait([second])
        assert handler.asked == ["1.0.0", "1.1.0"]
        assert trial_of(second) == 4

    run(test)


def test_a_slot_that_gets_work_by_a_second_call_does_not_wait_by_its_first_one():
    async def test(exchange, handler):
        (first,) = await line_up(exchange, handler, ["1.0.0"], "a")
        handler.work["a"] = [4]
        answer, _ = await asks_of_works(exchange, "1.0.0")
        await asyncio.wait([first])
        assert decode(answer, Attempt).trial.id == 4
        assert decode_answer(first.result()[0]) == Wait()

    run(test)


def test_an_error_of_the_driver_while_slots_are_sorted_ends_the_search():
    async def test(exchange, handler):
        await line_up(exchange, handler, ["1.0.0"], "a")
        handler.hosts.clear()
        exchange.wake()
        assert isinstance(exchange.error, KeyError)

    run(test)


def test_a_hello_that_brings_others_work_is_followed_by_it():
    async def test(exchange, handler):
        (waiting,) = await line_up(exchange, handler, ["1.0.0"], "a")
        handler.work["a"] = [6]  # as where the next attempt at a task tells that the last is lost
        await exchange.answer("Hello", encode(Hello(slot="1.1.1", host="b")), new_key(), _PATIENCE)
        await asyncio.wait([waiting])
        assert trial_of(waiting) == 6

    run(test)


class Pairs:
    """Gives a trial to two waiting slots at once, as a coordinator does for `workers_per_trial=2`.

    `work` is the number of trials; a slot runs its trial until it hands in an outcome.
    """

    def __init__(self):
        self.work, self.line, self.running, self.given, self.asked = 0, [], {}, [], []

    def hello(self, message):
        """Do nothing."""

    def alike(self, slot):
        return None

    alike_now = alike

    def assigned(self):
        given, self.given = self.given, []
        return given

    def next(self, message):
        slot = message.slot
        self.asked.append(slot)
        if message.outcome is not None:
            self.running.pop(slot, None)
            self.work += 1
        if slot not in self.running:
            if slot not in self.line:
                self.line.append(slot)
            if self.work and len(self.line) > 1:
                self.work -= 1
                self.line.remove(slot)
                other = self.line.pop(0)
                self.given.append(other)
                self.running |= dict.fromkeys((slot, other), Attempt(Trial(self.work, {})))
        return self.running.get(slot) or Wait()


def in_pairs(test):
    async def main():
        handler = Pairs()
        await test(Exchange(handler), handler)

    asyncio.run(main())


def key_of(slot):
    return slot.replace(".", "").zfill(32)


async def asks(exchange, slot, outcome=None):
    call = asyncio.ensure_future(
        exchange.answer("Next", encode(Next(slot, 1, outcome)), key_of(slot), _PATIENCE)
    )
    await asyncio.sleep(0)
    return call


def test_a_slot_that_completes_a_gang_brings_exactly_the_others_their_work():
    async def test(exchange, handler):
        waiting = [await asks(exchange, f"1.{number}.0") for number in range(3)]
        handler.work = 1
        last = await asks(exchange, "1.3.0")
        await asyncio.wait([last, waiting[0]])
        assert trial_of(last) == trial_of(waiting[0])
        assert not any(call.done() for call in waiting[1:])
        for call in waiting[1:]:
            call.cancel()

    in_pairs(test)


def test_a_slot_that_is_woken_brings_the_others_of_its_gang_their_work():
    async def test(exchange, handler):
        waiting = [await asks(exchange, f"1.{number}.0") for number in range(5)]
        handler.work = 1
        exchange.wake()
        await asyncio.wait(waiting[:2])
        await asyncio.sleep(0.01)
        assert [call.done() for call in waiting] == [True, True, False, False, False]
        for call in waiting[2:]:
            call.cancel()

    in_pairs(test)


def test_a_slot_that_hands_in_an_outcome_may_be_needed_by_one_that_it_wakes():
    """It gets its work at once, not after the time that a slot may wait."""

    async def test(exchange, handler):
        waiting = await asks(exchange, "1.0.0")
        handler.line.clear()  # as if the first had asked before there was an outcome
        handing_in = await asks(exchange, "1.1.0", Outcome(0, "cancelled"))
        await asyncio.wait([waiting, handing_in])
        assert trial_of(waiting) == trial_of(handing_in)

    in_pairs(test)


def test_a_slot_that_got_work_while_its_call_was_over_gets_it_with_the_next_call():
    async def test(exchange, handler):
        call = asyncio.ensure_future(
            exchange.answer("Next", encode(Next("1.0.0")), key_of("1.0.0"), 0.01)
        )
        await asyncio.wait([call])
        handler.work = 1
        other = await asks(exchange, "1.1.0")
        again = await asks(exchange, "1.0.0")
        await asyncio.wait([other, again])
        assert trial_of(other) == trial_of(again)

    in_pairs(test)
