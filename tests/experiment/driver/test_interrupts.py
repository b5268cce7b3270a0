import os
import signal
import sys
import threading
import traceback

import pytest

from experiment.driver.control import Control
from experiment.driver.interrupts import Interrupts
from tests.experiment.waiting import wait_until


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_raised_until_the_end_is_written():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(Control()) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupts.hold()
        interrupt()
        assert interrupts.noted
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_a_call_into_sparks_jvm_is_raised_behind_it(spark, caplog):
    control, main = Control(), threading.get_ident()
    latch = spark.sparkContext._jvm.java.util.concurrent.CountDownLatch(1)

    def interrupt_in_py4j():
        wait_until(lambda: "/py4j/" in str(traceback.extract_stack(sys._current_frames()[main])))
        interrupt()
        wait_until(lambda: control.reason is not None)
        latch.countDown()

    interrupter = threading.Thread(target=interrupt_in_py4j)
    with Interrupts(control) as interrupts:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            getattr(latch, "await")()
            interrupts.check()
        interrupts.check()
    interrupter.join()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_second_interrupt_keeps_nobody_from_ending_the_search():
    control = Control()
    with Interrupts(control) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert control.reason == "interrupted"
        assert not interrupts.noted
        interrupt()
        assert interrupts.noted


def test_sigterm_cancels_and_comes_back_at_the_end():
    control, came = Control(), []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with Interrupts(control) as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert control.reason == "ended by SIGTERM"
            interrupts.hold()
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_reason_counts():
    control = Control()
    control.cancel("the deadline of 5 s has passed")
    control.cancel("cancelled")
    assert control.reason == "the deadline of 5 s has passed"


def test_in_another_thread_the_handlers_stay_as_they_are():
    before, inside = signal.getsignal(signal.SIGINT), []

    def search():
        with Interrupts(Control()) as interrupts:
            interrupts.hold()
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert inside == [before]


def test_an_interrupt_before_the_search_begins_cancels_it_and_is_not_raised():
    control = Control()
    with Interrupts(control) as interrupts:
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
        assert control.reason == "interrupted"
        assert not interrupts.noted
