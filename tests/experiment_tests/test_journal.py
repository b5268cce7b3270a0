import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment.journal import Journal, JournalDamaged, encode_line, read_journal
from search.errors import ExperimentError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(text, json_values, max_size=4)

THREE = [{"n": 1}, {"n": 2, "text": "a b\nü"}, {"n": 3}]
LINES = [encode_line(record) for record in THREE]


def write_segment(folder, data, number=1):
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:06d}.jsonl"
    path.write_bytes(data)
    return path


def written(folder):
    return list(read_journal(folder))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, max_size=5))
def test_records_come_back_as_they_were_written(wanted):
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder)) as journal:
            for record in wanted:
                journal.append(record)
        assert written(Path(folder)) == wanted


@given(records)
def test_a_record_is_one_line_whatever_it_holds(record):
    line = encode_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_a_new_journal_opens_a_new_segment_and_leaves_the_old_ones_alone(tmp_path):
    contents = {}
    for number in range(1, 4):
        with Journal(tmp_path) as journal:
            assert journal.path == tmp_path / f"{number:06d}.jsonl"
            journal.append({"segment": number})
        assert {path: path.read_bytes() for path in contents} == contents
        contents[journal.path] = journal.path.read_bytes()
    assert written(tmp_path) == [{"segment": number} for number in range(1, 4)]


def test_two_open_journals_of_one_folder_write_to_different_segments(tmp_path):
    with Journal(tmp_path) as first, Journal(tmp_path) as second:
        second.append({"from": "second"})
        first.append({"from": "first"})
        assert first.path != second.path
    assert written(tmp_path) == [{"from": "first"}, {"from": "second"}]


def test_segments_are_read_in_the_order_of_their_numbers_beyond_six_digits(tmp_path):
    write_segment(tmp_path, encode_line({"n": 1}), 999_999)
    with Journal(tmp_path) as journal:
        assert journal.path.name == "1000000.jsonl"
        journal.append({"n": 2})
    assert written(tmp_path) == [{"n": 1}, {"n": 2}]


def test_a_missing_folder_is_made_with_its_parents_for_the_owner_only(tmp_path):
    folder = tmp_path / "a" / "b" / "journal"
    with Journal(folder) as journal:
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    for made in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path):
    (tmp_path / "journal").touch()
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "journal")


@pytest.mark.parametrize("segments", [[], [b""], [b"", LINES[0], b""]], ids=["none", "one", "many"])
def test_empty_segments_hold_nothing(tmp_path, segments):
    for number, data in enumerate(segments, start=1):
        write_segment(tmp_path, data, number)
    assert written(tmp_path) == ([THREE[0]] if LINES[0] in segments else [])


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    assert written(tmp_path / "nowhere") == []


def test_a_record_can_be_read_as_soon_as_append_has_returned(tmp_path):
    with Journal(tmp_path) as journal:
        for count, record in enumerate(THREE, start=1):
            journal.append(record)
            assert written(tmp_path) == THREE[:count]


def test_every_torn_tail_loses_the_last_line_only(tmp_path):
    whole, last = LINES[0] + LINES[1], LINES[2]
    for cut in range(len(last) - 1):
        write_segment(tmp_path, whole + last[:cut])
        assert written(tmp_path) == THREE[:2], f"after {cut} bytes of the last line"
    # Without its newline alone the record may be read or not; it is never garbled.
    write_segment(tmp_path, whole + last[:-1])
    assert written(tmp_path) in (THREE[:2], THREE)
    write_segment(tmp_path, whole + last)
    assert written(tmp_path) == THREE


def test_a_torn_tail_stays_alone_when_the_next_journal_goes_on(tmp_path):
    torn = write_segment(tmp_path, LINES[0] + LINES[1][:9])
    with Journal(tmp_path) as journal:
        journal.append(THREE[2])
    assert torn.read_bytes() == LINES[0] + LINES[1][:9]
    assert written(tmp_path) == [THREE[0], THREE[2]]


def damaged_lines():
    """Yield the number of the line, what is changed, and the bytes of the segment."""
    start = 0
    for number, line in enumerate(LINES[:-1], start=1):
        for offset in range(start, start + len(line)):
            before = b"".join(LINES)
            values = {before[offset] ^ (1 << bit) for bit in range(8)} | {0x0A, 0x20, 0x00}
            for value in sorted(values - {before[offset]}):
                data = before[:offset] + bytes([value]) + before[offset + 1 :]
                yield number, f"byte {offset} is {value:#04x}", data
        start += len(line)


def test_every_changed_byte_of_a_line_that_is_not_the_last_is_damage_in_that_line(tmp_path):
    unnoticed = []
    for number, change, data in damaged_lines():
        path = write_segment(tmp_path, data)
        try:
            written(tmp_path)
        except JournalDamaged as error:
            if f"{path}, line {number}:" in str(error):
                continue
        unnoticed.append((number, change))
    assert unnoticed == []


def test_damage_names_the_segment_that_it_is_in_and_what_came_before_is_read(tmp_path):
    write_segment(tmp_path, LINES[0], 1)
    path = write_segment(tmp_path, LINES[1] + LINES[2].replace(b"3", b"4") + LINES[0], 2)
    lines = read_journal(tmp_path)
    assert [next(lines), next(lines)] == THREE[:2]
    with pytest.raises(JournalDamaged, match=r"000002\.jsonl, line 2") as caught:
        next(lines)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ExperimentError)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_line_that_has_no_newline_any_more_is_damage(tmp_path, missing):
    lines = [line[:-1] if number == missing else line for number, line in enumerate(LINES)]
    write_segment(tmp_path, b"".join(lines))
    with pytest.raises(JournalDamaged, match=f"line {missing + 1}:"):
        written(tmp_path)


NO_OBJECTS = [b"[1]", b"null", b"{", b'"a"', b'{"a": "\xff"}', b'{"a": ' + b"[" * 100_000]


@pytest.mark.parametrize("data", NO_OBJECTS, ids=lambda data: repr(data[:20]))
def test_a_line_with_the_right_checksum_that_holds_no_object_is_damage(tmp_path, data):
    write_segment(tmp_path, b"%08x %s\n" % (zlib.crc32(data), data) + LINES[0])
    with pytest.raises(JournalDamaged, match="line 1:"):
        written(tmp_path)


def test_several_threads_append_whole_lines(tmp_path):
    with Journal(tmp_path) as journal, ThreadPoolExecutor(4) as pool:
        list(pool.map(journal.append, [{"n": n, "text": "x" * 5_000} for n in range(100)]))
    assert sorted(record["n"] for record in written(tmp_path)) == list(range(100))


def test_a_full_disk_makes_append_fail_and_keeps_what_was_written(tmp_path):
    program = """
        import resource, sys
        from pathlib import Path
        from experiment.journal import Journal

        journal = Journal(Path(sys.argv[1]))
        journal.append({"n": 1})
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 9, hard))
        try:
            journal.append({"n": 2})
        except OSError:
            sys.exit(7)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 7, ended.stderr
    assert written(tmp_path) == [{"n": 1}]


def descriptor_of(path):
    for name in os.listdir("/proc/self/fd"):
        link = Path("/proc/self/fd", name)
        if link.is_symlink() and os.readlink(link) == str(path):
            return int(name)
    raise AssertionError(f"{path} is not open")


def test_after_a_failed_sync_append_and_close_say_so(tmp_path):
    journal = Journal(tmp_path)
    reader, writer = os.pipe()  # takes what is written, and cannot be synced
    os.dup2(writer, descriptor_of(journal.path))

    def append_until_the_sync_has_failed():
        until = time.monotonic() + 30
        while time.monotonic() < until:
            journal.append({"n": 1})
            time.sleep(0.01)

    with pytest.raises(OSError, match="Invalid argument"):
        append_until_the_sync_has_failed()
    with pytest.raises(OSError, match="Invalid argument"):
        journal.close()
    os.close(reader)
    os.close(writer)


def test_an_error_inside_the_block_closes_the_journal(tmp_path):
    journal = Journal(tmp_path)

    def fail():
        with journal:
            journal.append({"n": 1})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert written(tmp_path) == [{"n": 1}]
    with pytest.raises(AssertionError, match="not open"):
        descriptor_of(journal.path)


def test_close_syncs_what_was_appended_during_a_sync(tmp_path, monkeypatch):
    fsync, entered, go, synced = os.fsync, threading.Event(), threading.Event(), []

    def slow_fsync(descriptor):
        size = os.fstat(descriptor).st_size
        entered.set()
        assert go.wait(30)
        fsync(descriptor)
        synced.append(size)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    journal = Journal(tmp_path)
    journal.append({"n": 1})
    assert entered.wait(30)
    journal.append({"n": 2})
    closing = threading.Thread(target=journal.close)
    closing.start()
    closing.join(0.2)  # it waits for the sync that is under way
    go.set()
    closing.join(30)
    assert synced[-1] == journal.path.stat().st_size


def test_append_refuses_after_half_a_line_was_written(tmp_path):
    with pytest.raises(OSError), Journal(tmp_path) as journal:
        journal.append({"n": 1})
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 9, limits[1]))
        try:
            with pytest.raises(OSError):
                journal.append({"n": 2})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        journal.append({"n": 3})
    assert list(read_journal(tmp_path)) == [{"n": 1}]
