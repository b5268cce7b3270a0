import contextlib
import os
import signal
import sys
import threading
import traceback

import py4j.java_gateway
import pytest

from experiment.driver.control import Control
from experiment.driver.interrupts import Interrupts
from tests.experiment.waiting import wait_until


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_raised_until_interrupts_are_held():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(Control()) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupts.hold()
        interrupt()
        assert interrupts.noted
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_a_call_into_sparks_jvm_is_raised_after_the_call(spark, caplog):
    control, main = Control(), threading.get_ident()
    latch = spark.sparkContext._jvm.java.util.concurrent.CountDownLatch(1)
    returned = []

    def interrupt_in_py4j():
        wait_until(lambda: "/py4j/" in str(traceback.extract_stack(sys._current_frames()[main])))
        interrupt()
        wait_until(lambda: control.reason is not None)
        latch.countDown()

    interrupter = threading.Thread(target=interrupt_in_py4j)
    with Interrupts(control) as interrupts:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            returned.append(getattr(latch, "await")())
            threading.Event().wait(60)
        assert not interrupts.noted
    interrupter.join()
    assert len(returned) == 1
    assert [record.getMessage() for record in caplog.records] == []


def test_an_interrupt_while_py4j_drops_a_java_object_is_raised_after_that(spark, monkeypatch):
    """Python ignores what the callback of a weak reference raises."""
    drop, interrupted = py4j.java_gateway._garbage_collect_object, []

    def interrupt_once_and_drop(*args):
        if not interrupted:
            interrupted.append(args)
            interrupt()
        drop(*args)

    java_object = spark.sparkContext._jvm.java.lang.Object()
    with Interrupts(Control()), monkeypatch.context() as patch:
        patch.setattr(py4j.java_gateway, "_garbage_collect_object", interrupt_once_and_drop)
        with pytest.raises(KeyboardInterrupt):
            del java_object
            threading.Event().wait(60)


CALL = {"__name__": "py4j.java_gateway", "signal": signal}


def in_a_call(pressed=1):
    exec("signal.raise_signal(signal.SIGINT)\n" * pressed, CALL)


@pytest.fixture
def others():
    """The signals that came to the handler of before."""
    came = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGINT, before)


def open_files():
    return set(os.listdir("/proc/self/fd"))


def test_an_interrupt_in_the_last_call_into_sparks_jvm_is_raised_at_the_end(others):
    files = open_files()
    with pytest.raises(KeyboardInterrupt), Interrupts(Control()):
        in_a_call()
    assert open_files() <= files
    interrupt()
    assert others == [signal.SIGINT]


def test_an_interrupt_in_the_last_call_takes_the_place_of_no_error(others):
    with pytest.raises(ZeroDivisionError), Interrupts(Control()):
        in_a_call()
        raise ZeroDivisionError
    assert others == []


def test_an_interrupt_in_the_last_call_loses_no_result(others):
    with Interrupts(Control()) as interrupts:
        in_a_call()
        interrupts.hold()
    assert others == []


def test_an_interrupt_that_is_due_is_not_raised_while_a_search_is_prepared():
    control = Control()
    with Interrupts(control) as interrupts:
        in_a_call()
        interrupts.defer()
        wait_until(lambda: not interrupts._due)
        interrupts.allow()
    assert control.reason == "interrupted"


def test_the_third_interrupt_leaves_a_call_into_sparks_jvm():
    with Interrupts(Control()), pytest.raises(KeyboardInterrupt):
        in_a_call(3)


@pytest.mark.parametrize("method", ["__enter__", "__exit__", "hold", "keep_results"])
def test_an_interrupt_inside_a_method_leaves_no_handler(others, method):
    """The signal comes at each line of the method, one after the other."""
    code, files = getattr(Interrupts, method).__code__, open_files()
    lines = {line for *_, line in code.co_lines() if line and line > code.co_firstlineno}
    for line in sorted(lines):
        tracing = sys.gettrace()  # a debugger's, or one that measures coverage
        trace, seen = tracer(code, line)
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            try:
                with Interrupts(Control()) as interrupts:
                    interrupts.keep_results()
                    interrupts.hold()
            finally:
                sys.settrace(tracing)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        before = len(others)
        interrupt()
        assert len(others) == before + 1, (method, line, seen)
        assert open_files() <= files


def tracer(code, line):
    """Return a trace function that interrupts once at a line."""
    seen = []

    def trace(frame, event, argument):
        if frame.f_code is code and frame.f_lineno == line and event == "line" and not seen:
            seen.append(line)
            signal.raise_signal(signal.SIGINT)
        return trace

    return trace, seen


def test_a_forked_child_does_not_delay_the_end(tmp_path):
    """It has inherited everything that is open here."""
    release = tmp_path / "release"
    os.mkfifo(release)
    with Interrupts(Control()):
        child = os.fork()
        if not child:
            release.open("rb").read()
            os._exit(0)
    release.open("wb").close()
    os.waitpid(child, 0)


def test_sigterm_before_results_are_kept_is_not_caught():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(Control()) as interrupts:
        assert signal.getsignal(signal.SIGTERM) is before
        interrupts.keep_results()
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_that_is_raised_after_a_call_is_not_noted_while_results_are_written(spark):
    latch = spark.sparkContext._jvm.java.util.concurrent.CountDownLatch(1)
    control, main = Control(), threading.get_ident()

    def interrupt_in_py4j():
        wait_until(lambda: "/py4j/" in str(traceback.extract_stack(sys._current_frames()[main])))
        interrupt()
        wait_until(lambda: control.reason is not None)
        interrupts.hold()
        latch.countDown()

    interrupter = threading.Thread(target=interrupt_in_py4j)
    with Interrupts(control) as interrupts:
        interrupter.start()
        getattr(latch, "await")()
        interrupter.join()
    assert not interrupts.noted
    assert [thread.name for thread in threading.enumerate() if "interrupts" in thread.name] == []


def test_a_second_interrupt_is_noted_and_not_raised():
    control = Control()
    with Interrupts(control) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert control.reason == "interrupted"
        assert not interrupts.noted
        interrupt()
        assert interrupts.noted


def test_sigterm_cancels_and_reaches_the_previous_handler_at_the_end():
    control, came = Control(), []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with Interrupts(control) as interrupts:
            interrupts.keep_results()
            os.kill(os.getpid(), signal.SIGTERM)
            assert control.reason == "ended by SIGTERM"
            interrupts.hold()
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_reason_to_cancel_is_kept():
    control = Control()
    control.cancel("the deadline of 5 s has passed")
    control.cancel("cancelled")
    assert control.reason == "the deadline of 5 s has passed"


def test_the_handlers_do_not_change_in_another_thread():
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
        interrupts.defer()
        signal.raise_signal(signal.SIGINT)
        interrupts.allow()
        assert control.reason == "interrupted"
        assert not interrupts.noted
