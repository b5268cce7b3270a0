"""The contract of every channel between slots and driver; each one's tests inherit it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from search.trial import Outcome, Trial
from spark_jobs.channel.exchange import ChannelClosed, ChannelLost, ChannelRefused
from spark_jobs.messages import (
    LARGEST_MESSAGE,
    Attempt,
    Gang,
    Heard,
    Hello,
    MemberAddress,
    Next,
    ProtocolError,
    Report,
    Reports,
    Stop,
    Wait,
    as_json,
    encode,
)
from tests.experiment.waiting import wait_until

ATTEMPT = Attempt(Trial(3, {"x": (1, 2)}, generation=1), 2)
OUTCOME = Outcome(3, "finished", 0.5, "metric", {"metric": 0.5})
REPORTS = (Report(1, {"loss": 0.5}), Report(2, {"loss": float("nan")}))
GOOD_REPORTS = b'{"slot":"1.0.0","trial":3,"attempt":1,"reports":[%s]}'


class Script:
    """A handler that answers from a list and keeps the messages."""

    def __init__(self, *answers):
        self.answers, self.heard = list(answers), []
        self.threads = set()

    def hello(self, message):
        self.threads.add(threading.get_ident())
        self.heard.append(message)

    def alike(self, slot):
        return None

    alike_now = alike

    def assigned(self):
        return []

    def report(self, message):
        return self.next(message)

    def next(self, message):
        self.threads.add(threading.get_ident())
        self.heard.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Working:
    """A driver that has work after an outcome; counts each outcome."""

    def __init__(self):
        self.outcomes, self.calls = [], 0

    def hello(self, message):
        """Do nothing."""

    def alike(self, slot):
        return None

    alike_now = alike

    def assigned(self):
        return []

    def report(self, message):
        self.calls += 1
        return Heard()

    def next(self, message):
        self.calls += 1
        if message.outcome is not None:
            self.outcomes.append(message.outcome.value)
        return ATTEMPT


class ChannelContract:
    @pytest.fixture
    def opened(self):
        """A function of a handler: a block with a server, and a function that connects a slot."""
        raise NotImplementedError

    def test_a_slot_says_hello_works_and_stops(self, opened):
        handler = Script(ATTEMPT, Stop())
        outcome = Outcome(3, "finished", 0.5, "metric", {"metric": 0.5})
        with opened(handler) as (_, connect), connect("1.0.0") as slot:
            slot.hello(Hello(slot="1.0.0", host="host", warnings=("w",)))
            assert slot.next() == ATTEMPT
            assert slot.next(2, outcome) is None
        assert [type(message) for message in handler.heard] == [Hello, Next, Next]
        assert handler.heard[2].outcome == outcome
        assert len(handler.threads) == 1

    def test_a_waiting_slot_is_answered_when_something_changed(self, opened):
        handler = Script(Wait(), Wait(), ATTEMPT)
        with opened(handler) as (server, connect), ThreadPoolExecutor() as pool:
            with connect("1.0.0") as slot:
                answer = pool.submit(slot.next)
                while len(handler.answers) > 1:  # the slot waits now, or did for the first change
                    server.call(lambda: None)
                server.call(lambda: None)
                assert answer.result(timeout=120) == ATTEMPT
        assert all(message.outcome is None for message in handler.heard)

    def test_many_slots_wait_without_a_thread_each(self, opened):
        handler = Script(*[Wait()] * 40, *[Stop()] * 40)
        with opened(handler) as (server, connect), ThreadPoolExecutor(40) as pool:
            before = threading.active_count()
            clients = [connect(f"1.{number}.0") for number in range(40)]
            answers = [pool.submit(client.next) for client in clients]
            while len(handler.heard) < 40:
                server.call(lambda: None) if len(handler.answers) <= 40 else None
            assert threading.active_count() - before <= 40 + 2 * len(clients)  # the clients'
            server.call(lambda: None)
            assert [answer.result(timeout=120) for answer in answers] == [None] * 40
            for client in clients:
                client.__exit__()

    def test_reports_get_to_the_driver_and_its_answer_back(self, opened):
        answers = Heard(), Heard(stop="step 2: too bad ü"), Heard(end="worker 1 of 2 has failed")
        with opened(handler := Script(*answers)) as (_, connect), connect("1.0.0") as slot:
            assert slot.report(ATTEMPT, REPORTS) == answers[0]
            assert slot.report(ATTEMPT, REPORTS[:1], "said\n") == answers[1]
            assert slot.report(ATTEMPT, (), "said\n") == answers[2]
        first, second, third = handler.heard
        assert as_json(first) == as_json(
            Reports(slot="1.0.0", trial=3, attempt=2, reports=REPORTS)
        )  # with NaN
        assert second == Reports(
            slot="1.0.0", trial=3, attempt=2, reports=REPORTS[:1], output="said\n"
        )
        assert third == Reports(slot="1.0.0", trial=3, attempt=2, reports=(), output="said\n")
        assert len(handler.threads) == 1

    def test_a_slot_says_where_it_listens_and_gets_its_place_in_a_gang(self, opened):
        address = MemberAddress(links="10.0.0.5:20001", server="10.0.0.5:20002")
        gang = Gang(
            rank=1,
            members=("10.0.0.4:20001", address.links),
            servers=("10.0.0.4:20002", address.server),
            key="secret key",
            certificate="certificate",
        )
        handler = Script(Wait(), Attempt(Trial(3, {}), 2, gang), Stop())
        with opened(handler) as (server, connect), connect("1.0.0") as slot:
            with ThreadPoolExecutor() as pool:
                answer = pool.submit(slot.next, address=address)
                wait_until(lambda: handler.heard)
                server.call(lambda: None)
                work = answer.result(timeout=120)
            assert work == Attempt(Trial(3, {}), 2, gang)
            assert (work.rank, work.workers) == (1, 2)
            assert "secret key" not in repr(work)
            assert slot.next(2, OUTCOME, address) is None
        assert [message.address for message in handler.heard] == [address, None, address]

    @pytest.mark.parametrize("where", ["", "10.0.0.5", "10.0.0.5:", "10.0.0.5:0", "a b:1"])
    def test_an_invalid_address_of_a_slot_is_refused(self, opened, where):
        message = b'{"slot":"1.0.0","address":{"links":"%s","server":"a:1"}}' % where.encode()
        with opened(Script()) as (_, connect), connect("1.0.0") as slot:
            with pytest.raises(ChannelRefused, match="INVALID_ARGUMENT$"):
                slot._ask("Next", message)

    def test_the_largest_messages_of_a_slot_are_accepted(self, opened):
        from spark_jobs.channel import reporter
        from spark_jobs.trial.pipe import link

        large = Report(1, {"m" * (link.LARGEST_REPORT - 60): 0.5})
        assert link.LARGEST_REPORT - 60 < len(encode(large)) < link.LARGEST_REPORT
        worst = "\0" * (2 * reporter._MOST_OUTPUT)  # what grows most in JSON
        reports = (large,) * reporter._MOST_AT_ONCE
        handler = Script(Heard())
        with opened(handler) as (_, connect), connect("1.0.0") as slot:
            assert slot.report(ATTEMPT, reports, worst) == Heard()
        assert handler.heard[0].reports == reports
        assert len(encode(handler.heard[0])) < LARGEST_MESSAGE

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"{}",
            b'{"slot":"1.0.0"}',
            GOOD_REPORTS.replace(b"3", b'"3"') % b"",
            GOOD_REPORTS.replace(b"}", b',"extra":1}') % b"",
            GOOD_REPORTS % b'{"step":1}',
            GOOD_REPORTS % b'{"step":0.5,"metrics":{}}',
            GOOD_REPORTS % b'{"step":1%s,"metrics":{}}' % (b"0" * 30),
            GOOD_REPORTS % b'{"step":1,"metrics":{"loss":"abc"}}',
            GOOD_REPORTS % b'{"step":1,"metrics":{"loss":null}}',
            GOOD_REPORTS % b'{"step":1,"metrics":{"loss":true}}',
            GOOD_REPORTS % b'{"step":1,"metrics":{},"extra":1}',
        ],
    )
    def test_reports_with_wrong_fields_are_refused_and_the_server_continues(self, opened, message):
        handler = Script(Heard())
        with opened(handler) as (server, connect), connect("1.0.0") as slot:
            with pytest.raises(ChannelRefused, match="INVALID_ARGUMENT$"):
                slot._ask("Report", message)
            assert slot.report(ATTEMPT, REPORTS) == Heard()
        assert server.error is None

    def test_reports_do_not_wake_slots_that_wait(self, opened):
        handler = Script(Wait(), Heard(), ATTEMPT)
        with (
            opened(handler) as (server, connect),
            ThreadPoolExecutor() as pool,
            connect("1.0.0") as waiting,
            connect("1.1.0") as slot,
        ):
            answer = pool.submit(waiting.next)
            wait_until(lambda: handler.heard)
            assert slot.report(ATTEMPT, REPORTS) == Heard()
            assert len(handler.answers) == 1
            server.call(lambda: None)
            assert answer.result(timeout=120) == ATTEMPT

    def test_closing_ends_a_running_call_and_refuses_new_ones(self, opened):
        handler = Script(Wait())
        with opened(handler) as (_, connect), ThreadPoolExecutor() as pool:
            slot = connect("1.0.0")
            answer = pool.submit(slot.next)
            wait_until(lambda: handler.heard)
            slot.__exit__()
            error = answer.exception(timeout=120)
            assert isinstance(error, ChannelLost), error
            assert not isinstance(error, ChannelRefused), error  # the driver has refused nothing
            assert "was closed" in str(error)
            with pytest.raises(ChannelClosed, match="was closed here"):
                slot.report(ATTEMPT, REPORTS)

    def test_two_servers_live_side_by_side(self, opened):
        first, second = Script(ATTEMPT), Script(Stop())
        with opened(first) as (one, to_one), opened(second) as (two, to_two):
            with to_one("1.0.0") as a, to_two("1.0.0") as b:
                assert (a.next(), b.next()) == (ATTEMPT, None)
        assert one.address.token != two.address.token

    def test_a_slot_whose_answer_was_lost_asks_again_with_its_old_key(self, opened):
        handler = Script(*[ATTEMPT] * 3, Heard(), Stop())
        with opened(handler) as (_, connect), connect("1.0.0") as slot:
            for _ in range(2):  # as the answers do not arrive
                slot._ask("Next", encode(Next("1.0.0")))
            assert slot.next() == ATTEMPT
            assert slot.report(ATTEMPT, REPORTS) == Heard()
            assert slot.next(2, OUTCOME) is None

    @pytest.mark.parametrize("message", [b"", b"nonsense", b'{"slot": 1}', b"[" * 10_000])
    def test_an_invalid_message_is_refused_and_the_server_continues(self, opened, message):
        handler = Script(Stop())
        with opened(handler) as (server, connect), connect("1.0.0") as slot:
            with pytest.raises(ChannelRefused, match="INVALID_ARGUMENT$"):
                slot._ask("Next", message)
            assert slot.next() is None
        assert server.error is None

    def test_an_outcome_that_is_none_is_the_slots_fault_not_the_searchs(self, opened):
        handler = Script(ProtocolError("not an outcome"), Stop())
        with opened(handler) as (server, connect), connect("1.0.0") as slot:
            with pytest.raises(ChannelLost, match="INVALID_ARGUMENT"):
                slot.next()
            assert slot.next() is None
        assert server.error is None

    def test_an_error_of_the_driver_is_kept_and_ends_the_slot(self, opened):
        with (
            opened(Script(OSError("disk full"))) as (server, connect),
            connect("1.0.0") as slot,
            pytest.raises(ChannelLost, match="ABORTED"),
        ):
            slot.next()
        assert str(server.error) == "disk full"

    @pytest.mark.fault(35)
    @pytest.mark.parametrize("call", ["Hello", "Next", "Report"])
    @pytest.mark.parametrize("key", ["", "0" * 31, "0" * 32, "another slot's", "the last one's"])
    def test_a_slot_sends_messages_for_its_own_attempt_only(self, opened, call, key):
        message = {
            "Hello": Hello(slot="1.0.0", host="host"),
            "Next": Next("1.0.0", 2, OUTCOME),
            "Report": Reports(slot="1.0.0", trial=3, attempt=2, reports=REPORTS),
        }[call]
        handler = Script(ATTEMPT, ATTEMPT, Heard(), Stop())
        with (
            opened(handler) as (server, connect),
            connect("1.0.0") as slot,
            connect("1.1.0") as other,
        ):
            first = slot._key
            assert (slot.next(), other.next()) == (ATTEMPT, ATTEMPT)
            assert slot.report(ATTEMPT, REPORTS) == Heard()
            heard = len(handler.heard)
            other._key = {"another slot's": other._key, "the last one's": first}.get(key, key)
            with pytest.raises(ChannelRefused, match="PERMISSION_DENIED$"):
                other._ask(call, encode(message))
            assert len(handler.heard) == heard
            assert slot.next(2, OUTCOME) is None
        assert server.error is None

    def test_a_message_that_is_too_large_is_refused_and_the_server_continues(self, opened):
        handler = Script(Stop())
        with opened(handler) as (_, connect), connect("1.0.0") as slot:
            with pytest.raises(ChannelRefused, match="RESOURCE_EXHAUSTED$"):
                slot._ask("Next", b" " * (LARGEST_MESSAGE + 1))
            assert slot.next() is None
        assert len(handler.heard) == 1

    def test_an_outcome_sent_twice_is_received_twice(self, opened):
        """It is the coordinator that counts an outcome once."""
        handler = Working()
        with opened(handler) as (_, connect), connect("1.0.0") as slot:
            assert slot.next() == ATTEMPT
            assert slot.next(2, OUTCOME) == slot.next(2, OUTCOME) == ATTEMPT
        assert handler.outcomes == [0.5, 0.5]
