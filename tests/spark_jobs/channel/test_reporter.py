from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.channel import reporter as module
from spark_jobs.channel.exchange import ChannelClosed, ChannelLost
from spark_jobs.channel.reporter import Reporter, Tail
from spark_jobs.messages import Attempt, Gang, Heard, Report
from tests.experiment.waiting import wait_until

LONG = 240.0  # seconds; only keep a failing test from hanging
FIRST, SECOND = Attempt(Trial(7, {"x": 1})), Attempt(Trial(8, {"x": 2}), 2)


class Driver:
    """The driver of a reporter: keeps the messages, and may block or be unreachable."""

    def __init__(self):
        self.heard, self.stopped, self.ended, self.calls = [], [], [], 0
        self.answer = Heard()
        self.lost = self.closed = False
        self._open = threading.Event()
        self._open.set()
        self._changed = threading.Condition()

    def send(self, attempt, reports, output):
        with self._changed:
            self.calls += 1
            self._changed.notify_all()
        self._open.wait(LONG)
        if self.closed:
            raise ChannelClosed("the channel was closed here")
        if self.lost:
            raise ChannelLost("the driver does not answer")
        with self._changed:
            self.heard.append((attempt, reports, output))
            self._changed.notify_all()
        return self.answer

    def stop(self, attempt, reason):
        with self._changed:
            self.stopped.append((attempt, reason))
            self._changed.notify_all()

    def end(self, attempt, reason):
        with self._changed:
            self.ended.append((attempt, reason))
            self._changed.notify_all()

    def hold(self):
        self._open.clear()

    def release(self):
        self._open.set()

    def wait_until(self, condition):
        with self._changed:
            assert self._changed.wait_for(condition, LONG), "the condition was not met"

    def steps(self, attempt):
        return [r.step for to, reports, _ in self.heard if to == attempt for r in reports]

    def output(self, attempt):
        return "".join(output for to, _, output in self.heard if to == attempt)


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.lost = True
    driver.release()


@pytest.fixture
def reporter(driver):
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        yield reporter


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.01)


def report(step):
    return Report(step, {"loss": 0.5})


def add(reporter, attempt, steps):
    for step in steps:
        reporter.add(attempt, report(step))


def test_a_report_is_sent_by_itself(reporter, driver):
    reporter.add(FIRST, report(1))
    driver.wait_until(lambda: driver.heard)
    assert driver.heard == [(FIRST, (report(1),), "")]


def test_reports_that_wait_share_a_message_in_order(reporter, driver):
    driver.hold()
    add(reporter, FIRST, range(1))
    driver.wait_until(lambda: driver.calls == 1)
    add(reporter, FIRST, range(1, 250))
    driver.release()
    assert reporter.flush(LONG)
    assert driver.steps(FIRST) == list(range(250))
    assert [len(reports) for _, reports, _ in driver.heard] == [1, 100, 100, 49]


def test_reports_of_two_attempts_are_not_mixed(reporter, driver):
    driver.hold()
    for step in range(6):
        reporter.add(FIRST if step % 4 < 2 else SECOND, report(step))
    driver.release()
    assert reporter.flush(LONG)
    assert driver.steps(FIRST) == [0, 1, 4, 5]
    assert driver.steps(SECOND) == [2, 3]
    assert [s.step for _, reports, _ in driver.heard for s in reports] == list(range(6))


def test_attempts_at_one_trial_are_two(reporter, driver):
    again = Attempt(FIRST.trial, 2)
    driver.hold()
    reporter.add(FIRST, report(1))
    reporter.add(again, report(2))
    driver.release()
    assert reporter.flush(LONG)
    assert (driver.steps(FIRST), driver.steps(again)) == ([1], [2])


@pytest.mark.usefixtures("quick")
def test_undelivered_reports_are_repeated_before_later_ones(reporter, driver):
    driver.lost = True
    add(reporter, FIRST, range(120))
    driver.wait_until(lambda: driver.calls >= 3)
    add(reporter, FIRST, range(120, 130))
    assert driver.heard == []
    driver.lost = False
    assert reporter.flush(LONG)
    assert driver.steps(FIRST) == list(range(130))


@pytest.mark.usefixtures("quick")
def test_where_too_many_wait_the_oldest_are_dropped(driver, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 10)
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        driver.hold()
        driver.lost = True
        add(reporter, FIRST, range(5))
        driver.wait_until(lambda: driver.calls == 1)
        add(reporter, FIRST, range(5, 12))
        driver.release()
        driver.wait_until(lambda: driver.calls >= 3)
        driver.lost = False
        assert reporter.flush(LONG)
    assert driver.steps(FIRST) == list(range(2, 12))


@pytest.mark.usefixtures("quick")
def test_undelivered_reports_are_dropped_for_newer_ones(driver, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 10)
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        driver.hold()
        driver.lost = True
        add(reporter, FIRST, range(5))
        driver.wait_until(lambda: driver.calls == 1)
        add(reporter, FIRST, range(5, 100))
        driver.release()
        driver.wait_until(lambda: driver.calls >= 3)
        driver.lost = False
        assert reporter.flush(LONG)
    assert driver.steps(FIRST) == list(range(90, 100))


def test_adding_never_waits_for_the_driver(reporter, driver):
    driver.hold()
    add(reporter, FIRST, range(50_000))
    driver.release()
    assert reporter.flush(LONG)
    steps = driver.steps(FIRST)
    assert steps[-module._MOST_WAITING :] == list(range(50_000 - module._MOST_WAITING, 50_000))
    assert steps == sorted(steps)


def test_a_flush_of_nothing_is_done_at_once(reporter, driver):
    assert reporter.flush(LONG)
    assert driver.calls == 0


def test_a_flush_gives_up_where_the_driver_does_not_answer(reporter, driver):
    driver.hold()
    reporter.add(FIRST, report(1))
    assert not reporter.flush(0.01)


def test_a_flush_gives_up_where_the_channel_was_closed_here(reporter, driver):
    driver.closed = True
    reporter.add(FIRST, report(1))
    assert not reporter.flush(LONG)
    assert driver.calls == 1


def test_a_driver_that_refuses_is_called_after_a_pause(reporter, driver, monkeypatch):
    """Also with a waiting `flush`, or many waiting reports."""
    monkeypatch.setattr(module, "_PAUSE", 3600.0)
    driver.lost = True
    add(reporter, FIRST, range(500))
    driver.wait_until(lambda: driver.calls == 1)
    assert not reporter.flush(0.3)
    assert driver.calls == 1


def test_the_driver_may_stop_a_trial(reporter, driver):
    driver.answer = Heard(stop="step 3: too bad")
    reporter.add(FIRST, report(3))
    driver.wait_until(lambda: driver.stopped)
    assert driver.stopped == [(FIRST, "step 3: too bad")]
    driver.answer = Heard()
    reporter.add(SECOND, report(1))
    assert reporter.flush(LONG)
    assert driver.stopped == [(FIRST, "step 3: too bad")]


@pytest.mark.usefixtures("quick")
def test_a_stop_for_an_attempt_that_has_ended_names_that_attempt(reporter, driver):
    """Its last reports may arrive when the next attempt at the same trial runs."""
    driver.lost = True
    reporter.add(FIRST, report(1))
    assert not reporter.flush(0.01)
    driver.answer = Heard(stop="its slot was given up")
    with reporter.running(Attempt(FIRST.trial, 2)):
        driver.lost = False
        driver.wait_until(lambda: driver.stopped)
    assert driver.stopped == [(FIRST, "its slot was given up")]


def test_a_driver_that_needs_the_last_values_gets_them_in_one_report(reporter, driver):
    driver.answer = Heard(last_only=True)
    reporter.add(FIRST, report(0))
    driver.wait_until(lambda: driver.heard)
    driver.hold()
    reporter.add(FIRST, report(1))
    driver.wait_until(lambda: driver.calls == 2)
    reporter.add(FIRST, Report(2, {"loss": 0.4, "accuracy": 0.1}))
    reporter.add(FIRST, Report(3, {"loss": 0.3}))
    driver.release()
    driver.wait_until(lambda: len(driver.heard) == 3)
    assert driver.heard[2] == (FIRST, (Report(3, {"loss": 0.3, "accuracy": 0.1}),), "")


def test_reports_of_which_only_the_last_values_count_are_dropped_with_their_trial(reporter, driver):
    driver.answer = Heard(last_only=True)
    reporter.add(FIRST, report(0))
    driver.wait_until(lambda: driver.heard)
    driver.hold()
    reporter.add(FIRST, report(1))
    driver.wait_until(lambda: driver.calls == 2)
    reporter.add(FIRST, report(2))
    driver.answer = Heard(last_only=True, pause=LONG)  # so that only `flush` lets it send more
    driver.release()
    assert reporter.flush(LONG)
    reporter.add(SECOND, report(7))
    assert reporter.flush(LONG)
    assert driver.steps(FIRST) == [0, 1]


def test_a_driver_that_wants_few_messages_gets_no_other_before_the_pause(reporter, driver):
    driver.answer = Heard(pause=LONG)
    reporter.add(FIRST, report(0))
    driver.wait_until(lambda: driver.heard)
    add(reporter, FIRST, range(1, 50))
    assert reporter.flush(LONG), "the end of a trial does not wait for the pause"
    assert [len(reports) for _, reports, _ in driver.heard] == [1, 49]


def test_closing_does_not_wait_for_a_message_on_its_way(driver):
    driver.hold()
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        add(reporter, FIRST, range(300))
        driver.wait_until(lambda: driver.calls == 1)
    driver.release()
    reporter._thread.join(LONG)
    assert not reporter._thread.is_alive()
    assert driver.calls == 1


def test_closing_ends_the_thread_that_has_nothing_to_do(driver):
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        pass
    reporter._thread.join(LONG)
    assert not reporter._thread.is_alive()


def test_closing_ends_the_pause_after_an_outage(driver, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 3600.0)
    driver.lost = True
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        reporter.add(FIRST, report(1))
        driver.wait_until(lambda: driver.calls == 1)
    reporter._thread.join(LONG)
    assert not reporter._thread.is_alive()


@pytest.fixture
def logs(tmp_path):
    return tmp_path / "stdout.log", tmp_path / "stderr.log"


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


class TestFollowing:
    def test_output_is_sent_as_it_comes(self, reporter, driver, logs):
        reporter.follow(FIRST, logs)
        for number in range(3):
            append(logs[number % 2], b"line %d\n" % number)
            driver.wait_until(lambda n=number: f"line {n}\n" in driver.output(FIRST))
        assert reporter.flush(LONG)
        assert driver.output(FIRST) == "line 0\nline 1\nline 2\n"

    def test_a_flush_sends_all_output(self, reporter, driver, logs):
        driver.hold()
        reporter.follow(FIRST, logs)
        append(logs[0], b"0123456789abcde\n" * 20_000)
        append(logs[1], b"complained\n")
        driver.release()
        assert reporter.flush(LONG)
        text = driver.output(FIRST)
        assert text.replace("complained\n", "") == "0123456789abcde\n" * 20_000
        assert text.count("complained\n") == 1
        largest = 2 * module._MOST_OUTPUT
        assert all(len(output) <= largest for _, _, output in driver.heard)

    def test_after_the_flush_nothing_is_sent(self, reporter, driver, logs):
        reporter.follow(FIRST, logs)
        append(logs[0], b"before\n")
        assert reporter.flush(LONG)
        append(logs[0], b"after\n")
        reporter.add(FIRST, report(1))
        assert reporter.flush(LONG)
        assert driver.output(FIRST) == "before\n"

    def test_reports_and_output_share_a_message(self, reporter, driver, logs):
        append(logs[0], b"said\n")
        driver.hold()
        reporter.add(SECOND, report(0))
        driver.wait_until(lambda: driver.calls == 1)
        reporter.add(FIRST, report(1))
        reporter.follow(FIRST, logs)
        driver.release()
        assert reporter.flush(LONG)
        assert driver.heard == [(SECOND, (report(0),), ""), (FIRST, (report(1),), "said\n")]

    def test_output_is_not_mistaken_for_an_earlier_attempts(self, reporter, driver, logs):
        driver.hold()
        add(reporter, FIRST, range(3))
        reporter.follow(SECOND, logs)
        append(logs[0], b"of the second\n")
        add(reporter, SECOND, range(10, 12))
        driver.release()
        assert reporter.flush(LONG)
        assert (driver.output(FIRST), driver.output(SECOND)) == ("", "of the second\n")
        assert (driver.steps(FIRST), driver.steps(SECOND)) == ([0, 1, 2], [10, 11])

    @pytest.mark.parametrize("late", [False, True])
    def test_output_that_was_not_delivered_is_not_taken_for_a_later_attempts(
        self, reporter, driver, logs, monkeypatch, late
    ):
        monkeypatch.setattr(module, "_PAUSE", 0.0)
        driver.hold()
        driver.lost = True
        logs[0].write_text("of the first")
        reporter.follow(FIRST, logs)
        driver.wait_until(lambda: driver.calls)
        if not late:  # its failure is known before the next attempt is followed
            driver.release()
            driver.wait_until(lambda: driver.calls > 1)
            driver.hold()
        assert not reporter.flush(0.0)
        logs[0].write_text("of the second")
        reporter.follow(SECOND, logs)
        before = driver.calls
        driver.release()
        driver.wait_until(lambda: driver.calls > before)  # what was on its way has failed
        driver.lost = False
        driver.wait_until(lambda: "second" in driver.output(SECOND))
        assert driver.output(SECOND) == "of the second"

    def test_a_stop_comes_back_for_output_too(self, reporter, driver, logs):
        driver.answer = Heard(stop="its slot was given up")
        reporter.follow(FIRST, logs)
        append(logs[0], b"said\n")
        driver.wait_until(lambda: driver.stopped)
        assert driver.stopped[0] == (FIRST, "its slot was given up")


@given(st.lists(st.binary(max_size=20) | st.text(max_size=10).map(str.encode), max_size=10))
def test_a_tail_is_the_text_of_the_file_however_it_was_written(tmp_path_factory, pieces):
    """Bytes that are not UTF-8 are replaced, and split characters are joined."""
    path = tmp_path_factory.mktemp("logs") / "stdout.log"
    tail, text = Tail([path]), ""
    for piece in [*pieces, b"\n"]:
        append(path, piece)
        text += tail.read()
    assert text == path.read_bytes().decode("utf-8", "replace")
    assert tail.read() == ""


def test_a_long_text_is_read_in_pieces(tmp_path):
    path = tmp_path / "stdout.log"
    text = "a" + "━" * 50_000  # no piece ends between two of them
    path.write_text(text, encoding="utf-8")
    tail = Tail([path])
    pieces = []
    while piece := tail.read():
        pieces.append(piece)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= module._MOST_OUTPUT + 2 for piece in pieces)
    assert len(pieces) == 5


def test_logs_that_are_not_there_yet_are_empty(tmp_path):
    assert Tail([tmp_path / "stdout.log", tmp_path / "stderr.log"]).read() == ""


def test_a_pipe_in_place_of_a_log_delays_nothing(tmp_path):
    pipe, log = tmp_path / "stdout.log", tmp_path / "stderr.log"
    os.mkfifo(pipe)
    log.write_text("complained\n")
    assert Tail([pipe, log]).read() == "complained\n"


def test_a_heartbeat_is_sent_for_a_silent_trial(driver, monkeypatch):
    monkeypatch.setattr(time_limits, "SLOT_BEAT", 0.05)
    with Reporter(driver.send, driver.stop, driver.end) as reporter, reporter.running(FIRST):
        driver.wait_until(lambda: len(driver.heard) > 2)
        assert all(heard == (FIRST, (), "") for heard in driver.heard)
        driver.answer = Heard(stop="its slot was given up")
        driver.wait_until(lambda: (FIRST, "its slot was given up") in driver.stopped)


def test_a_heartbeat_is_not_delayed_by_a_pause_after_nothing_was_sent(driver, monkeypatch, logs):
    """Neither while the slot has no trial, nor while the logs of one stay as they are."""
    monkeypatch.setattr(time_limits, "SLOT_BEAT", 0.01)
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        looked = []
        until_beat = reporter._until_beat
        reporter._until_beat = lambda now: looked.append(now) or until_beat(now)
        reporter._heard = Heard(pause=3600.0)
        wait_until(lambda: len(looked) > 3)
        with reporter.running(FIRST):
            reporter.follow(FIRST, logs)
            driver.wait_until(lambda: driver.heard)
    assert driver.heard[0] == (FIRST, (), "")


def test_the_pause_of_an_earlier_answer_counts(driver):
    with Reporter(driver.send, driver.stop, driver.end, Heard(pause=3600.0)) as reporter:
        add(reporter, FIRST, range(50))
        assert reporter.flush(LONG)
        assert [len(reports) for _, reports, _ in driver.heard] == [50]


def test_a_trial_that_started_while_nothing_was_sent_is_silent_for_no_longer(driver):
    reporter = Reporter(driver.send, driver.stop, driver.end)
    assert reporter._until_beat(1e9) == time_limits.SLOT_BEAT
    with reporter.running(FIRST):
        started = reporter._said
        left = reporter._until_beat(started + 20)
        assert left == pytest.approx(time_limits.SLOT_BEAT - 20)  # the clock may be at any number
        assert reporter._until_beat(started + time_limits.SLOT_BEAT + 1) == 0


def test_no_heartbeat_is_sent_without_a_running_trial(driver, monkeypatch):
    monkeypatch.setattr(time_limits, "SLOT_BEAT", 0.01)
    with Reporter(driver.send, driver.stop, driver.end) as reporter:
        with reporter.running(FIRST):
            driver.wait_until(lambda: driver.heard)
        reporter.add(SECOND, Report(1, {"loss": 0.5}))
        driver.wait_until(lambda: driver.heard[-1][0] == SECOND)
        assert reporter.flush(LONG)
        said = len(driver.heard)
        reporter.add(SECOND, Report(2, {"loss": 0.5}))
        driver.wait_until(lambda: len(driver.heard) > said)
        assert driver.heard[said:] == [(SECOND, (Report(2, {"loss": 0.5}),), "")]


def test_a_flush_with_nothing_to_send_does_not_wake_the_thread(monkeypatch):
    driver, woken = Driver(), []
    with (
        Reporter(driver.send, driver.stop, driver.end) as reporter,
        monkeypatch.context() as patched,
    ):
        patched.setattr(reporter._changed, "notify_all", lambda: woken.append(True))
        assert reporter.flush(LONG)
    assert woken == []


GANG = Gang(rank=1, members=("a:1", "b:1"), servers=("a:2", "b:2"), key="", certificate="")
MEMBER = Attempt(Trial(7, {"x": 1}), 3, GANG)


def test_a_member_of_a_gang_hears_soon_that_it_has_to_end(driver):
    driver.answer = Heard(end="worker 0 of 2 has failed")
    with Reporter(driver.send, driver.stop, driver.end, gang_beat=0.05) as reporter:
        with reporter.running(MEMBER):
            driver.wait_until(lambda: driver.ended)
    assert driver.ended[0] == (MEMBER, "worker 0 of 2 has failed")
    assert driver.stopped == []
    assert driver.heard[0] == (MEMBER, (), "")


def test_the_heartbeat_of_a_gang_starts_with_its_attempt_also_after_a_single_one(driver):
    with Reporter(driver.send, driver.stop, driver.end, gang_beat=0.05) as reporter:
        with reporter.running(FIRST):
            assert reporter.flush(LONG)
        with reporter.running(MEMBER):
            driver.wait_until(lambda: len(driver.heard) > 2)
        assert all(attempt == MEMBER for attempt, _, _ in driver.heard)
