"""The contract of a link between a trial and its supervisor, and the further contract of a pipe."""

from __future__ import annotations

import os
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.messages import LARGEST_MESSAGE, Report, decode, encode
from spark_jobs.trial.pipe import link as module
from spark_jobs.trial.pipe.frames import FrameReader, frame
from spark_jobs.trial.pipe.link import (
    LARGEST_REPORT,
    OUTCOME,
    REPORT,
    DirectLink,
    NoLink,
    PipeLink,
    StopTrial,
)
from spark_jobs.zygote.child import Child

LARGE = Report(1, {f"metric {number}": float(number) for number in range(LARGEST_REPORT)})


class Supervised:
    """A trial's link, and its supervisor's side."""

    def __init__(self, link, read, stop):
        self.link, self.read, self.stop = link, read, stop


class LinkContract:
    @pytest.fixture
    def pair(self):
        raise NotImplementedError

    def test_reports_arrive_as_they_were_in_order(self, pair):
        sent = [Report(step, {"loss": 1.0 / (step + 1), "ü": 2.0}) for step in range(100)]
        for report in sent:
            pair.link.send(report)
        assert pair.read() == sent

    def test_numbers_that_json_lacks_arrive(self, pair):
        pair.link.send(Report(3, {"loss": float("nan"), "other": float("-inf")}))
        (report,) = pair.read()
        assert str(report.metrics["loss"]) == "nan"
        assert report.metrics["other"] == float("-inf")

    def test_a_report_that_is_too_large_is_dropped(self, pair):
        small = Report(2, {"loss": 1.0})
        pair.link.send(LARGE)
        pair.link.send(small)
        assert pair.read() == [small]

    def test_a_stop_arrives_and_stays(self, pair):
        assert pair.link.stop() == ""
        pair.stop("step 3: 0.5 is worse than the median ü")
        assert pair.link.stop() == "step 3: 0.5 is worse than the median ü"
        assert pair.link.stop() == "step 3: 0.5 is worse than the median ü"

    def test_after_a_stop_reports_still_arrive(self, pair):
        pair.stop("enough")
        assert pair.link.stop() == "enough"
        pair.link.send(Report(1, {"loss": 1.0}))
        assert pair.read() == [Report(1, {"loss": 1.0})]


class TestDirectLink(LinkContract):
    @pytest.fixture
    def pair(self):
        received = []
        link = DirectLink(received.append)
        return Supervised(link, lambda: received, lambda reason: setattr(link, "reason", reason))


class Pipes:
    """A `PipeLink`, with the supervisor's ends of its pipes."""

    def __init__(self):
        self.results, writing = os.pipe()
        reading, self.commands = os.pipe()
        os.set_blocking(self.results, False)
        self.link = PipeLink(writing, reading)
        self.reader = FrameReader(self.results)
        self._open = {self.results, writing, reading, self.commands}
        self.writing, self.reading = writing, reading

    def read(self):
        """Return the messages already read."""
        try:
            while self.reader.fill():
                pass
        except BlockingIOError:
            pass
        return list(self.reader.take_all())

    def reports(self):
        return [decode(m[1:], Report) for m in self.read() if m[:1] == REPORT]

    def stop(self, reason):
        os.write(self.commands, frame(encode(StopTrial(reason))))

    def close(self, *descriptors):
        for descriptor in descriptors or tuple(self._open):
            os.close(descriptor)
            self._open.discard(descriptor)


@pytest.fixture
def pipes():
    pipes = Pipes()
    yield pipes
    pipes.close()


class TestPipeLink(LinkContract):
    @pytest.fixture
    def pair(self, pipes):
        return Supervised(pipes.link, pipes.reports, pipes.stop)

    def test_a_supervisor_that_does_not_read_does_not_block_the_trial(self, pipes):
        """The pipe is full after some reports; of the rest, the last ones are kept."""
        for step in range(100_000):
            pipes.link.send(Report(step, {"loss": 0.5}))
        messages, done = [], threading.Event()

        def read_until_the_outcome():
            while not messages or messages[-1][:1] != OUTCOME:
                messages.extend(pipes.read())
            done.set()

        reader = threading.Thread(target=read_until_the_outcome)
        reader.start()
        pipes.link.close(b"the outcome")
        reader.join()
        assert messages.pop() == OUTCOME + b"the outcome"
        steps = [decode(message[1:], Report).step for message in messages]
        assert steps == sorted(set(steps))
        assert steps[0] == 0
        kept = module._MOST_WAITING - 1  # the outcome takes the place of one
        assert steps[-kept:] == list(range(100_000 - kept, 100_000))
        assert len(steps) < 10_000

    def test_a_report_that_did_not_fit_is_sent_with_a_later_one(self, pipes):
        for step in range(3_000):
            pipes.link.send(Report(step, {"loss": 0.5}))
        before = pipes.reports()
        assert len(before) < 3_000
        pipes.link.send(Report(3_000, {"loss": 0.5}))
        after = pipes.reports()
        assert after[-1].step == 3_000
        steps = [report.step for report in before + after]
        assert steps == sorted(set(steps))

    def test_the_outcome_comes_after_the_reports_however_large_it_is(self, pipes):
        for step in range(10):
            pipes.link.send(Report(step, {"loss": 0.5}))
        outcome = b"x" * 3_000_000
        closer = threading.Thread(target=pipes.link.close, args=(outcome,))
        closer.start()
        messages = []
        while len(messages) < 11:
            messages += pipes.read()
        closer.join()
        assert [message[:1] for message in messages] == [REPORT] * 10 + [OUTCOME]
        assert messages[-1] == OUTCOME + outcome

    def test_a_lost_supervisor_does_not_fail_the_trial(self, pipes):
        pipes.close(pipes.results, pipes.commands)
        for step in range(3):
            pipes.link.send(Report(step, {"loss": 0.5}))
        assert pipes.link.stop() == ""

    def test_threads_may_report_at_once(self, pipes):
        def report(start):
            for step in range(start, start + 50):
                pipes.link.send(Report(step, {"loss": 0.5}))

        threads = [threading.Thread(target=report, args=(100 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps = [report.step for report in pipes.reports()]
        for n in range(8):
            mine = [step for step in steps if step // 100 == n]
            assert mine == list(range(100 * n, 100 * n + 50))

    @pytest.mark.parametrize(
        "call",
        [
            lambda link: link.send(Report(0, {"loss": 1.0})),
            lambda link: link.stop(),
            lambda link: link.close(b"{}"),
        ],
        ids=["report", "stop", "close"],
    )
    def test_a_signal_handler_may_report_that_interrupts_a_call_of_its_thread(
        self, pipes, monkeypatch, call
    ):
        def interrupted(descriptor, data):
            monkeypatch.undo()
            pipes.link.send(Report(1, {"loss": 0.5}))
            pipes.link.stop()
            return os.write(descriptor, data)

        pipes.stop("enough")  # so that each call writes
        replaced = types.SimpleNamespace(write=interrupted, set_blocking=os.set_blocking)
        monkeypatch.setattr(module, "os", replaced)
        calling = threading.Thread(target=call, args=(pipes.link,), daemon=True)
        calling.start()
        calling.join(60.0)  # a test that fails waits for ever
        assert not calling.is_alive()
        assert pipes.reports()[-1:] == [Report(1, {"loss": 0.5})]

    def test_reports_of_a_forked_copy_stay_whole(self, pipes):
        """As of a data loader's process: a report is written as a whole or not at all."""
        pids = []
        for n in range(1, 4):
            pid = os.fork()
            if pid == 0:
                for step in range(100):
                    pipes.link.send(Report(1_000 * n + step, {"loss": 0.5}))
                os._exit(0)
            pids.append(pid)
        steps = []
        for pid in pids:
            os.waitpid(pid, 0)
        steps = [report.step for report in pipes.reports()]
        assert sorted(steps) == [1_000 * n + step for n in range(1, 4) for step in range(100)]


@given(st.text(min_size=1, max_size=50), st.integers(1, 20))
def test_a_stop_that_is_cut_anywhere_arrives_when_it_is_whole(reason, size):
    pipes = Pipes()
    try:
        data = frame(encode(StopTrial(reason)))
        for start in range(0, len(data), size):
            assert pipes.link.stop() == ""
            os.write(pipes.commands, data[start : start + size])
        assert pipes.link.stop() == reason
    finally:
        pipes.close()


def test_without_a_supervisor_a_trial_is_never_stopped():
    link = NoLink()
    link.send(Report(0, {"loss": 1.0}))
    assert link.stop() == ""


class Watched:
    """The zygote's side of a trial, with messages written by the test."""

    def __init__(self):
        results, self.writing = os.pipe()
        os.set_blocking(results, False)
        self.child = Child(
            pid=0,
            pidfd=-1,
            results=results,
            commands=-1,
            reader=FrameReader(results, LARGEST_MESSAGE),
            logs={},
            started=0.0,
        )
        self.received = []

    def write(self, data):
        while data:
            sent = os.write(self.writing, data[: 1 << 14])
            data = data[sent:]
            assert self.child.read(self.received.append)

    def close(self):
        os.close(self.writing)
        assert not self.child.read(self.received.append)
        os.close(self.child.results)


messages = st.one_of(
    st.builds(
        lambda step, loss: REPORT + encode(Report(step, {"loss": loss})),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
    ),
    st.binary(max_size=30).map(lambda data: OUTCOME + data),
    st.binary(max_size=30).map(lambda data: REPORT + data),
    st.binary(max_size=30),
)


@given(st.lists(messages, max_size=10), st.integers(1, 100))
def test_a_supervisor_takes_reports_however_they_are_cut(sent, size):
    watched = Watched()
    data = b"".join(map(frame, sent))
    for start in range(0, len(data), size):
        watched.write(data[start : start + size])
    watched.close()
    outcomes = [message[1:] for message in sent if message[:1] == OUTCOME]
    assert watched.child.outcome == (outcomes[-1] if outcomes else b"")
    real = [message for message in sent if message[:1] == REPORT]
    reports = [REPORT + encode(report) for report in watched.received]
    assert reports == [message for message in real if is_report(message)]


def is_report(message):
    try:
        return REPORT + encode(decode(message[1:], Report)) == message
    except Exception:
        return False


@given(st.binary(max_size=500))
def test_invalid_bytes_harm_no_supervisor(data):
    watched = Watched()
    watched.write(data)
    watched.close()


def test_a_length_beyond_all_messages_is_not_waited_for_or_kept():
    watched = Watched()
    watched.write(frame(REPORT + encode(Report(1, {"loss": 1.0}))))
    watched.write(b"\xff\xff\xff\xff")
    watched.write(b"x" * (8 << 20))
    assert len(watched.child.reader._buffer) == 0
    watched.close()
    assert [report.step for report in watched.received] == [1]


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"{}",
        b'{"step": 1, "metrics": {"loss": "abc"}}',
        b'{"step": 1%s, "metrics": {}}' % (b"0" * 400),
        b'{"step": 1.5, "metrics": {}}',
        b'{"step": 1, "metrics": {"loss": true}}',
        b'{"step": 1, "metrics": {}, "extra": 1}',
        b"[" * 3_000,
        encode(LARGE),
    ],
    ids=["empty", "object", "text", "long", "half", "bool", "extra", "deep", "large"],
)
def test_invalid_reports_are_skipped(rest):
    watched = Watched()
    watched.write(frame(REPORT + rest))
    watched.write(frame(REPORT + encode(Report(7, {"loss": 1.0}))))
    watched.close()
    assert [report.step for report in watched.received] == [7]
