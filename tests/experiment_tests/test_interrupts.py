import os
import signal
import threading

import pytest

from experiment.interrupts import Interrupts


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_raised_until_the_end_is_written():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupts.hold()
        interrupt()
        assert interrupts.noted
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_the_handlers_stay_as_they_are():
    before, inside = signal.getsignal(signal.SIGINT), []

    def search():
        with Interrupts() as interrupts:
            interrupts.hold()
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert inside == [before]
