"""The calls of an executor as the trials of a search; on Spark they are tested with it."""

from __future__ import annotations

import pytest

from experiment.background.call_queue import Call, CallQueue


def queue_of(*functions):
    """Return a queue with the calls of these functions, and the calls."""
    queue = CallQueue(RuntimeError)
    calls = [Call(function) for function in functions]
    for call in calls:
        queue.add(call)
    return queue, calls


def test_a_call_that_cannot_run_fails_and_the_next_one_runs():
    queue, (first, second) = queue_of("first", "second")
    queue.let_run(second, {"index": 1})
    assert queue.ask() is None, "the first one waits for its files"
    queue.fail(first, OSError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        first.future.result(0)
    assert queue.ask().params == {"function": "second", "index": 1}


def test_a_cancelled_call_that_cannot_run_stays_cancelled():
    queue, (call,) = queue_of("call")
    assert call.future.cancel()
    queue.fail(call, OSError("the disk is full"))
    assert call.future.cancelled()
    assert queue.total == 0


def test_a_call_that_has_left_the_queue_cannot_fail_any_more():
    queue, (call,) = queue_of("call")
    queue.close("the executor failed")
    queue.fail_rest()
    queue.fail(call, OSError("the disk is full"))
    with pytest.raises(RuntimeError, match="the executor failed"):
        call.future.result(0)
