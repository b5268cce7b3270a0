import threading

import pytest

from spark_jobs.threads import in_thread, start_thread


def test_a_step_runs_in_a_daemon_thread_and_its_future_has_the_result():
    thread = in_thread(threading.current_thread, "step").result()
    assert (thread.name, thread.daemon) == ("step", True)
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_of_a_step_is_that_of_its_future(error):
    def fail():
        raise error

    assert in_thread(fail, "step").exception() is error


def test_the_future_of_a_step_cannot_be_cancelled():
    may_end = threading.Event()
    future = in_thread(may_end.wait, "step")
    assert not future.cancel()
    may_end.set()
    assert future.result()


def test_a_host_at_its_limit_of_processes_is_an_error_of_the_system(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(OSError, match="can't start new thread"):
        start_thread(threading.Thread())
