import itertools
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
from hypothesis import given
from hypothesis import strategies as st

from experiment.results.text import command
from experiment.run_files.format import FORMAT
from experiment.run_files.journal import (
    Journal,
    JournalDamaged,
    JournalReader,
    JournalRewritten,
    encode_line,
    read_journal,
)
from search.errors import ExperimentError, InvalidArgument
from tests.properties import examples

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


def begun(count, version=FORMAT):
    """Return the first record of a segment that has `count` records before it."""
    return {"event": "begun", "records": count, "format": version}


THREE = [begun(0), {"n": 2, "text": "a b\nü"}, {"n": 3}]
LINES = [encode_line(record) for record in THREE]


def write_segment(folder, data, number=1):
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:06d}.jsonl"
    path.write_bytes(data)
    return path


def written(folder):
    return list(read_journal(folder))


@examples(40)
@given(st.lists(records, max_size=5))
def test_records_are_read_as_they_were_written(wanted):
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder)) as journal:
            for record in [begun(0), *wanted]:
                journal.append(record)
        assert written(Path(folder)) == [begun(0), *wanted]


@given(records)
def test_any_record_is_one_line(record):
    line = encode_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_a_new_journal_opens_a_new_segment_and_keeps_the_old_ones(tmp_path):
    contents, wanted = {}, []
    for number in range(1, 4):
        with Journal(tmp_path) as journal:
            assert journal.path == tmp_path / f"{number:06d}.jsonl"
            for record in [begun(len(wanted)), {"segment": number}]:
                journal.append(record)
                wanted.append(record)
        assert {path: path.read_bytes() for path in contents} == contents
        contents[journal.path] = journal.path.read_bytes()
    assert written(tmp_path) == wanted


def test_two_open_journals_of_one_folder_write_to_different_segments(tmp_path):
    with Journal(tmp_path) as first, Journal(tmp_path) as second:
        second.append(begun(1))
        first.append(begun(0))
        assert first.path != second.path
    assert written(tmp_path) == [begun(0), begun(1)]


def test_a_segment_has_the_given_number(tmp_path):
    with Journal(tmp_path, 1) as journal:
        journal.append(THREE[0])
        with pytest.raises(FileExistsError):
            Journal(tmp_path, 1)
        with Journal(tmp_path, 2) as second:
            second.append(begun(1))
    assert written(tmp_path) == [THREE[0], begun(1)]


def test_segments_are_read_in_the_order_of_their_numbers(tmp_path):
    for number in range(1, 13):
        write_segment(tmp_path, encode_line(begun(number - 1)), number)
    assert written(tmp_path) == [*map(begun, range(12))]


def test_segment_numbers_may_exceed_six_digits(tmp_path):
    write_segment(tmp_path, b"", 999_999)
    with Journal(tmp_path) as journal:
        assert journal.path.name == "1000000.jsonl"


@pytest.mark.parametrize(
    "name", ["1.jsonl", "0000002.jsonl", "٠٠٠٠٠٢.jsonl", "000002.jsonl.damaged"]
)
def test_files_with_other_names_are_no_segments(tmp_path, name):
    write_segment(tmp_path, LINES[0])
    (tmp_path / name).write_bytes(b"mine\n")
    assert written(tmp_path) == THREE[:1]
    with Journal(tmp_path) as journal:
        assert journal.path.name == "000002.jsonl"


def test_a_missing_folder_is_created_with_its_parents_for_the_owner_only(tmp_path):
    folder = tmp_path / "a" / "b" / "journal"
    with Journal(folder) as journal:
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    for made in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path):
    (tmp_path / "journal").touch()
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "journal")


TORN = LINES[1][:9]


@pytest.mark.parametrize("nothing", [b"", TORN, b"\0" * 100, TORN + b"\0" * 100], ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_segment_of_a_driver_that_was_killed_at_once_has_no_records(tmp_path, nothing, count):
    for number in range(1, count + 1):
        write_segment(tmp_path, nothing, number)
    assert written(tmp_path) == []
    with Journal(tmp_path) as journal:
        journal.append(begun(0))
    assert written(tmp_path) == [begun(0)]


def test_a_missing_journal_is_empty(tmp_path):
    assert written(tmp_path / "nowhere") == []


def test_a_record_can_be_read_as_soon_as_append_has_returned(tmp_path):
    with Journal(tmp_path) as journal:
        for count, record in enumerate(THREE, start=1):
            journal.append(record)
            assert written(tmp_path) == THREE[:count]


@pytest.mark.fault(26)
def test_an_incomplete_last_line_is_skipped_wherever_it_is_cut(tmp_path):
    whole, last = LINES[0] + LINES[1], LINES[2]
    for cut in range(len(last) - 1):
        write_segment(tmp_path, whole + last[:cut])
        assert written(tmp_path) == THREE[:2], f"after {cut} bytes of the last line"
    for last in (LINES[2][:-1], LINES[2]):  # without its newline it counts
        write_segment(tmp_path, whole + last)
        assert written(tmp_path) == THREE


@pytest.mark.fault(26)
def test_zeros_after_the_records_are_skipped(tmp_path):
    for zeros in (1, 2, 5_000):
        for cut in range(len(LINES[2]) + 1):
            write_segment(tmp_path, LINES[0] + LINES[2][:cut] + b"\0" * zeros)
            lost = cut < len(LINES[2]) - 1
            assert written(tmp_path) == ([THREE[0]] if lost else [THREE[0], THREE[2]])


def test_an_incomplete_last_line_stays_when_the_next_journal_continues(tmp_path):
    torn = write_segment(tmp_path, LINES[0] + LINES[1][:9])
    with Journal(tmp_path) as journal:
        journal.append(begun(1))
    assert torn.read_bytes() == LINES[0] + LINES[1][:9]
    assert written(tmp_path) == [THREE[0], begun(1)]


def damaged_lines():
    """Yield the number of the line, the change, and the bytes of the segment."""
    start = 0
    for number, line in enumerate(LINES[:-1], start=1):
        for offset in range(start, start + len(line)):
            before = b"".join(LINES)
            values = {before[offset] ^ (1 << bit) for bit in range(8)} | {0x0A, 0x20, 0x00}
            for value in sorted(values - {before[offset]}):
                data = before[:offset] + bytes([value]) + before[offset + 1 :]
                yield number, f"byte {offset} is {value:#04x}", data
        start += len(line)


@pytest.mark.fault(26)
def test_every_changed_byte_before_the_last_line_is_damage_in_its_line(tmp_path):
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


def test_damage_names_its_segment_and_records_before_it_are_read(tmp_path):
    write_segment(tmp_path, LINES[0], 1)
    path = write_segment(tmp_path, encode_line(begun(1)) + LINES[2].replace(b"3", b"4"), 2)
    lines = read_journal(tmp_path)
    assert [next(lines), next(lines)] == [THREE[0], begun(1)]
    with pytest.raises(JournalDamaged, match=r"000002\.jsonl, line 2") as caught:
        next(lines)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ExperimentError)


def test_the_message_of_damage_has_the_repair_command_with_the_users_name_of_the_run(tmp_path):
    for run, wanted in (
        ("", str(tmp_path)),
        ("hdfs://host/a run of 'ü'", "hdfs://host/a run of 'ü'"),
    ):
        path = write_segment(tmp_path / "journal", b"damaged\n")
        with pytest.raises(JournalDamaged) as caught:
            list(read_journal(path.parent, run))
        assert str(caught.value) == (
            f"{wanted}/journal/{path.name}, line 1: the checksum does not match; "
            f"to keep only the records before it: {command('repair', wanted)}"
        )


SEGMENTS = [
    [begun(0), {"n": 2}],
    [begun(2), {"n": 3}],
    [begun(4)],
    [begun(5), {"n": 4}],
]


def write_segments(folder, contents):
    for number, records in enumerate(contents, start=1):
        write_segment(folder, b"".join(map(encode_line, records)), number)


def joined(contents):
    return list(itertools.chain.from_iterable(contents))


def assert_refused(folder, number, reason):
    """Check that the journal is intact up to line 1 of a segment."""
    with pytest.raises(JournalDamaged, match=f"{number:06d}.jsonl, line 1: {reason}"):
        written(folder)


def test_consecutive_segments_are_one_journal(tmp_path):
    write_segments(tmp_path, SEGMENTS)
    assert written(tmp_path) == joined(SEGMENTS)


@pytest.mark.fault(26)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_emptied_segment_is_damage(tmp_path, number):
    write_segments(tmp_path, SEGMENTS)
    write_segment(tmp_path, b"", number)
    assert_refused(tmp_path, number + 1, "expected . records in earlier segments, got .")


@pytest.mark.fault(26)
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_segment_without_its_last_lines_is_damage(tmp_path, number):
    contents = [*SEGMENTS, [begun(7)]]
    contents[number - 1] = contents[number - 1][:-1]
    write_segments(tmp_path, contents)
    assert_refused(tmp_path, number + 1, "expected . records in earlier segments, got .")


@pytest.mark.fault(26)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment_is_named(tmp_path, number):
    write_segments(tmp_path, SEGMENTS)
    (tmp_path / f"{number:06d}.jsonl").unlink()
    with pytest.raises(
        JournalDamaged, match=f"{number:06d}.jsonl: missing, though there are later segments"
    ):
        written(tmp_path)


@pytest.mark.fault(26)
def test_segments_in_another_order_are_refused(tmp_path):
    for order in itertools.permutations(SEGMENTS):
        write_segments(tmp_path, order)
        if list(order) == SEGMENTS:
            assert written(tmp_path) == joined(SEGMENTS)
        else:
            with pytest.raises(JournalDamaged, match="line 1: "):
                written(tmp_path)


@pytest.mark.fault(26)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(range(4), range(1, 5))))
def test_a_duplicate_segment_is_refused(tmp_path, first, second):
    write_segments(tmp_path, [*SEGMENTS[:second], SEGMENTS[first], *SEGMENTS[second:]])
    with pytest.raises(JournalDamaged, match="line 1: "):
        written(tmp_path)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_records_that_a_driver_wrote_after_it_was_presumed_dead_do_not_count(tmp_path, number):
    contents = [*SEGMENTS, [], [begun(7)]]
    late = [*contents[number - 1], {"late": 1}, {"late": 2}]
    write_segments(tmp_path, [*contents[: number - 1], late, *contents[number:]])
    assert written(tmp_path) == joined(contents)


def test_all_records_of_a_driver_may_be_too_late(tmp_path):
    write_segments(tmp_path, [[begun(0) | {"late": 1}, {"late": 2}], [begun(0), {"n": 1}]])
    assert written(tmp_path) == [begun(0), {"n": 1}]


def test_a_search_resumed_before_it_had_a_journal_starts_with_no_records(tmp_path):
    write_segments(tmp_path, [THREE, [begun(3)]])
    assert written(tmp_path) == [*THREE, begun(3)]


def test_the_newer_of_two_drivers_that_started_after_the_same_records_counts(tmp_path):
    late = [begun(2) | {"at": 1.0}, {"late": 2}]
    write_segments(tmp_path, [SEGMENTS[0], late, [begun(2) | {"at": 2.0}, {"n": 3}]])
    assert written(tmp_path) == [*SEGMENTS[0], begun(2) | {"at": 2.0}, {"n": 3}]


@pytest.mark.parametrize(
    "record",
    [{"n": 1}, {"event": "begun"}, {"event": "begun", "records": 0, "format": "1"}],
    ids=str,
)
def test_a_journal_with_another_first_record_is_refused(tmp_path, record):
    write_segments(tmp_path, [[record]])
    assert_refused(tmp_path, 1, "a segment has to start with the record 'begun'")


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_of_a_newer_format_is_refused(tmp_path, number):
    contents = [[begun(0), {"n": 2}], [begun(2), {"n": 3}]]
    contents[number - 1][0]["format"] = FORMAT + 1
    write_segments(tmp_path, contents)
    with pytest.raises(InvalidArgument) as caught:
        list(read_journal(tmp_path, "hdfs://host/run"))
    assert str(caught.value) == (
        f"run: expected the folder of a run, got 'hdfs://host/run', of format {FORMAT + 1}, while "
        f"this version reads up to {FORMAT}; upgrade spark-tf-experiment"
    )


def test_a_second_first_record_in_a_segment_is_refused(tmp_path):
    write_segments(tmp_path, [joined(SEGMENTS[:2])])
    with pytest.raises(JournalDamaged, match="000001.jsonl, line 3: a second record 'begun'"):
        written(tmp_path)


@pytest.mark.fault(26)
@examples(40)
@given(st.lists(st.lists(records, max_size=3), min_size=1, max_size=4), st.data())
def test_a_journal_cut_anywhere_yields_the_records_before_the_cut(contents, data):
    with tempfile.TemporaryDirectory() as folder:
        whole = write_journal(Path(folder), contents)
        last = max(Path(folder).iterdir())
        content = last.read_bytes()
        for cut in range(len(content) + 1):
            last.write_bytes(content[:cut])
            found = written(Path(folder))
            assert found == whole[: len(found)]
            lines = content[:cut].count(b"\n")
            before = len(whole) - content.count(b"\n")
            assert before + lines <= len(found) <= before + lines + 1


@pytest.mark.fault(26)
@examples(25)
@given(st.lists(st.lists(records, max_size=3), min_size=1, max_size=3), st.data())
def test_a_changed_byte_is_refused_or_loses_only_the_last_line(contents, data):
    with tempfile.TemporaryDirectory() as folder:
        whole = write_journal(Path(folder), contents)
        path = data.draw(st.sampled_from(sorted(Path(folder).iterdir())))
        step = data.draw(st.integers(0, 254))
        content = path.read_bytes()
        for offset in range(len(content)):
            changed = bytearray(content)
            changed[offset] ^= 1 + (step * offset) % 255
            path.write_bytes(changed)
            if offset == len(content) - 1 and changed[offset] == 0:
                assert written(Path(folder)) == whole  # a power failure may leave zeros
                continue
            found = []
            with pytest.raises(JournalDamaged, match=rf"{path.name}, line \d+: "):
                for record in read_journal(Path(folder)):
                    found.append(record)
            assert found == whole[: len(found)]


def write_journal(folder, contents):
    """Write the segments of a search that is resumed; return all their records."""
    segments, count = [], 0
    for records in contents:
        segments.append([begun(count), *records])
        count += len(segments[-1])
    write_segments(folder, segments)
    return joined(segments)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_line_that_has_lost_its_newline_is_damage(tmp_path, missing):
    lines = [line[:-1] if number == missing else line for number, line in enumerate(LINES)]
    write_segment(tmp_path, b"".join(lines))
    with pytest.raises(JournalDamaged, match=f"line {missing + 1}:"):
        written(tmp_path)


NO_OBJECTS = [b"[1]", b"null", b"{", b'"a"', b'{"a": "\xff"}', b'{"a": ' + b"[" * 100_000]


@pytest.mark.parametrize("data", NO_OBJECTS, ids=lambda data: repr(data[:20]))
def test_a_line_with_the_right_checksum_but_without_an_object_is_damage(tmp_path, data):
    write_segment(tmp_path, b"%08x %s\n" % (zlib.crc32(data), data) + LINES[0])
    with pytest.raises(JournalDamaged, match="line 1:"):
        written(tmp_path)


def test_several_threads_append_whole_lines(tmp_path):
    with Journal(tmp_path) as journal, ThreadPoolExecutor(4) as pool:
        journal.append(begun(0))
        list(pool.map(journal.append, [{"n": n, "text": "x" * 5_000} for n in range(100)]))
    assert sorted(record["n"] for record in written(tmp_path)[1:]) == list(range(100))


@pytest.mark.fault(25)
def test_a_full_disk_makes_append_fail_and_keeps_what_was_written(tmp_path):
    program = """
        import resource, sys
        from pathlib import Path
        from experiment.run_files.journal import Journal

        journal = Journal(Path(sys.argv[1]))
        journal.append({"event": "begun", "records": 0, "format": 1})
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
    assert written(tmp_path) == [begun(0)]


def descriptor_of(path):
    for name in os.listdir("/proc/self/fd"):
        link = Path("/proc/self/fd", name)
        if link.is_symlink() and os.readlink(link) == str(path):
            return int(name)
    raise AssertionError(f"{path} is not open")


@pytest.mark.fault(25)
def test_append_and_close_raise_after_a_failed_sync(tmp_path):
    journal = Journal(tmp_path)
    reader, writer = os.pipe()  # accepts writes, and cannot be synced
    os.dup2(writer, descriptor_of(journal.path))

    def append_until_the_sync_has_failed():
        until = time.monotonic() + 30
        while time.monotonic() < until:
            journal.append({"n": 1})
            time.sleep(0.01)

    with pytest.raises(OSError, match=f"Invalid argument: '{journal.path}'"):
        append_until_the_sync_has_failed()
    with pytest.raises(OSError, match=f"Invalid argument: '{journal.path}'"):
        journal.append({"n": 2})
    with pytest.raises(OSError, match=f"Invalid argument: '{journal.path}'"):
        journal.close()
    os.close(reader)
    os.close(writer)


def test_an_error_inside_the_block_closes_the_journal(tmp_path):
    journal = Journal(tmp_path)

    def fail():
        with journal:
            journal.append(begun(0))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert written(tmp_path) == [begun(0)]
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
    closing.join(0.2)  # it waits for the running sync
    go.set()
    closing.join(30)
    assert synced[-1] == journal.path.stat().st_size


@pytest.mark.fault(25)
def test_append_refuses_after_half_a_line_was_written(tmp_path):
    with pytest.raises(OSError), Journal(tmp_path) as journal:
        journal.append(begun(0))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 9, limits[1]))
        try:
            with pytest.raises(OSError, match=f"File too large: '{journal.path}'"):
                journal.append({"n": 2})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        journal.append({"n": 3})
    assert list(read_journal(tmp_path)) == [begun(0)]


class Looks:
    """Reads a journal repeatedly, with a new reader after `JournalRewritten`."""

    def __init__(self, folder):
        self.folder, self.begun = folder, 0
        self.begin()

    def begin(self):
        self.reader, self.records, self.begun = JournalReader(self.folder), [], self.begun + 1

    def look(self):
        try:
            self.records += self.reader.new()
        except JournalRewritten:
            self.begin()
            self.records += self.reader.new()
        return self.records


@examples(40)
@given(st.lists(st.lists(records, max_size=3), min_size=1, max_size=4), st.data())
def test_repeated_reads_of_a_growing_journal_equal_one_read(contents, data):
    with tempfile.TemporaryDirectory() as name:
        folder, looks, before = Path(name), Looks(Path(name)), 0
        for number, new in enumerate(contents, start=1):
            segment = [begun(before), *new]
            lines, before = b"".join(map(encode_line, segment)), before + len(segment)
            cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=4))
            for end in sorted({*cuts, len(lines)}):
                write_segment(folder, lines[:end], number)
                assert looks.look() == written(folder)
        assert looks.look() == written(folder)
        assert looks.begun == 1


def test_a_second_read_does_not_repeat_the_first_one(tmp_path):
    write_segments(tmp_path, SEGMENTS[:2])
    looks = Looks(tmp_path)
    assert looks.look() == joined(SEGMENTS[:2])
    path = tmp_path / "000002.jsonl"
    read = path.stat().st_size
    path.write_bytes(b"?" * read + encode_line({"n": 4}))
    assert looks.look() == [*joined(SEGMENTS[:2]), {"n": 4}]
    assert looks.begun == 1


def test_records_that_were_written_too_late_are_withdrawn(tmp_path):
    late = [*SEGMENTS[0], {"late": 1}]
    write_segments(tmp_path, [late])
    looks = Looks(tmp_path)
    assert looks.look() == late
    write_segments(tmp_path, [late, SEGMENTS[1]])
    assert looks.look() == joined(SEGMENTS[:2])
    write_segments(tmp_path, [[*late, {"late": 2}], SEGMENTS[1]])
    assert looks.look() == joined(SEGMENTS[:2])
    assert looks.begun == 2


def test_a_driver_that_starts_during_a_read_is_no_damage(tmp_path):
    late = encode_line({"n": "late"})
    write_segment(tmp_path, b"".join([*LINES, late]))
    write_segment(tmp_path, b"", 2)
    reader = JournalReader(tmp_path)
    look = reader.new()
    next(look)
    write_segment(tmp_path, encode_line(begun(3)), 2)
    list(look)
    with pytest.raises(JournalRewritten):
        list(reader.new())
    assert written(tmp_path) == [*THREE, begun(3)]


def test_zeros_after_the_first_record_of_a_segment_do_not_hide_it(tmp_path):
    write_segment(tmp_path, b"".join([*LINES, encode_line({"n": "late"})]))
    write_segment(tmp_path, encode_line(begun(3)).rstrip(b"\n") + bytes(10), 2)
    assert written(tmp_path) == [*THREE, begun(3)]


def test_a_driver_that_started_too_late_is_withdrawn(tmp_path):
    first, second = ([begun(2) | {"at": at}, {"at": at}] for at in (1.0, 2.0))
    write_segments(tmp_path, [SEGMENTS[0], first])
    looks = Looks(tmp_path)
    assert looks.look() == [*SEGMENTS[0], *first]
    write_segments(tmp_path, [SEGMENTS[0], first, second])
    assert looks.look() == [*SEGMENTS[0], *second]
    assert looks.begun == 2


def test_a_journal_that_was_cut_is_read_again(tmp_path):
    write_segments(tmp_path, SEGMENTS)
    looks = Looks(tmp_path)
    looks.look()
    for number in (4, 3):
        (tmp_path / f"{number:06d}.jsonl").unlink()
    write_segment(tmp_path, encode_line(begun(2)), 2)
    assert looks.look() == [*SEGMENTS[0], begun(2)]
    assert looks.begun == 2


def test_a_segment_discarded_before_its_first_record_is_ignored(tmp_path):
    write_segments(tmp_path, [THREE, []])
    looks = Looks(tmp_path)
    assert looks.look() == THREE
    (tmp_path / "000002.jsonl").unlink()
    assert looks.look() == THREE
    write_segments(tmp_path, [THREE, [begun(3)]])
    assert looks.look() == [*THREE, begun(3)]
    assert looks.begun == 1


def test_a_line_without_its_newline_counts_once(tmp_path):
    line = encode_line({"n": 2})
    write_segment(tmp_path, LINES[0] + line[:-1])
    looks = Looks(tmp_path)
    for data in (line[:-1], line, line + LINES[2]):
        write_segment(tmp_path, LINES[0] + data)
        assert looks.look() == written(tmp_path)
    assert looks.begun == 1
    write_segment(tmp_path, LINES[0] + line[:-1])
    looks = Looks(tmp_path)
    looks.look()
    write_segment(tmp_path, LINES[0] + LINES[2])
    assert looks.look() == written(tmp_path)
    assert looks.begun == 2


def test_every_read_that_reaches_damage_raises(tmp_path):
    write_segment(tmp_path, LINES[0] + LINES[1])
    looks = Looks(tmp_path)
    looks.look()
    write_segment(tmp_path, LINES[0] + LINES[1] + LINES[2].replace(b"3", b"4"))
    for _ in range(2):
        with pytest.raises(JournalDamaged, match="line 3: the checksum does not match"):
            looks.look()
