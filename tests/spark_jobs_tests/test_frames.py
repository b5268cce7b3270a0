import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.frames import FrameReader, write_frame


@given(st.lists(st.binary(max_size=300), max_size=10), st.integers(1, 50))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(messages, size):
    read, write = os.pipe()
    whole_read, whole_write = os.pipe()
    try:
        for message in messages:
            write_frame(whole_write, message)
        os.close(whole_write)
        with os.fdopen(whole_read, "rb") as file:
            data = file.read()
        reader, arrived = FrameReader(read), []
        for start in range(0, len(data), size):
            os.write(write, data[start : start + size])
            arrived += reader.read()
        os.close(write)
        arrived += reader.read()
        assert arrived == messages
        assert reader.closed
    finally:
        os.close(read)


def test_a_message_larger_than_the_pipe_is_written_whole():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        write_frame(write, b"x" * 3_000_000)
        os._exit(0)
    os.close(write)
    reader, arrived = FrameReader(read), []
    while not reader.closed:
        arrived += reader.read()
    os.close(read)
    os.waitpid(pid, 0)
    assert arrived == [b"x" * 3_000_000]


def test_the_end_inside_a_message_yields_nothing():
    read, write = os.pipe()
    os.write(write, b"\x00\x00\x00\x05abc")
    os.close(write)
    reader = FrameReader(read)
    assert list(reader.read()) == []
    assert not reader.closed
    assert list(reader.read()) == []
    assert reader.closed
    os.close(read)


def test_writing_to_a_closed_end_raises():
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(OSError):
        write_frame(write, b"x")
    os.close(write)
