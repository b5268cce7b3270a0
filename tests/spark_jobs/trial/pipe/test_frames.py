import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.trial.pipe.frames import FrameReader, frame, write_frame


def received(reader):
    messages = []
    while reader.fill():
        messages += reader.take_all()
    return messages


@given(st.lists(st.binary(max_size=300), max_size=10), st.integers(1, 50))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(messages, size):
    read, write = os.pipe()
    whole_read, whole_write = os.pipe()
    for message in messages:
        write_frame(whole_write, message)
    os.close(whole_write)
    with os.fdopen(whole_read, "rb") as file:
        data = file.read()
    for start in range(0, len(data), size):
        os.write(write, data[start : start + size])
    os.close(write)
    assert received(FrameReader(read)) == messages
    os.close(read)


def test_a_second_message_of_one_read_needs_no_other_read():
    read, write = os.pipe()
    write_frame(write, b"started")
    write_frame(write, b"ended")
    reader = FrameReader(read)
    assert reader.fill()
    assert [reader.take(), reader.take(), reader.take()] == [b"started", b"ended", None]
    os.close(read)
    os.close(write)


def test_a_message_larger_than_the_pipe_is_written_whole():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        write_frame(write, b"x" * 3_000_000)
        os._exit(0)
    os.close(write)
    assert received(FrameReader(read)) == [b"x" * 3_000_000]
    os.close(read)
    os.waitpid(pid, 0)


def test_the_end_inside_a_message_yields_nothing():
    read, write = os.pipe()
    os.write(write, b"\x00\x00\x00\x05abc")
    os.close(write)
    assert received(FrameReader(read)) == []
    os.close(read)


def test_writing_to_a_closed_end_raises():
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(OSError):
        write_frame(write, b"x")
    os.close(write)


def test_messages_already_read_are_returned_without_waiting():
    read, write = os.pipe()
    os.set_blocking(read, False)
    reader = FrameReader(read)
    assert list(reader.take_all()) == []
    with pytest.raises(BlockingIOError):
        reader.fill()
    write_frame(write, b"first")
    write_frame(write, b"second")
    os.write(write, frame(b"third")[:6])
    assert reader.fill()
    assert reader.take() == b"first"
    assert list(reader.take_all()) == [b"second"]
    assert reader.take() is None
    os.write(write, frame(b"third")[6:])
    os.close(write)
    assert reader.fill()
    assert reader.take() == b"third"
    assert not reader.fill()
    os.close(read)


def test_a_message_that_is_too_long_is_the_last_one_and_is_not_kept():
    read, write = os.pipe()
    reader = FrameReader(read, largest=10)
    write_frame(write, b"0123456789")
    write_frame(write, b"0123456789a")
    write_frame(write, b"after it")
    os.close(write)
    assert received(reader) == [b"0123456789"]
    assert not reader._buffer
    os.close(read)
