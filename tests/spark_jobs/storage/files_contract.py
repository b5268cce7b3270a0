"""The contract of every implementation of `Files` and of `WritableFiles`.

A test class inherits `FilesContract` and overrides its three fixtures, or `WritableFilesContract`
and one more; it may add its own tests.
"""

import errno
import threading
import time

import pytest

from spark_jobs.storage.files import CHUNK, FileStatus, check_writable

NAMES = ["a b", "ü", "日本", "100%", "a%20b", "a#b", "a?b=c", "a+b&c;d", "it's", "a[1]*", "~"]


class FilesContract:
    @pytest.fixture
    def files(self):
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def folder(self):
        """The location of an existing empty folder."""
        raise NotImplementedError

    @pytest.fixture
    def put(self):
        """A function of a location and bytes: write a file anew, with the folders above it."""
        raise NotImplementedError

    @pytest.fixture
    def below(self, folder):
        """A function of a relative path: the location below the folder."""
        return lambda path: folder.at(f"{folder.path.rstrip('/')}/{path}")

    def test_a_file_has_a_length(self, files, below, put):
        put(below("a"), b"12345")
        found = files.status(below("a"))
        assert found == FileStatus(
            location=below("a"), length=5, version=found.version, is_folder=False
        )
        assert isinstance(found.version, str)

    def test_the_status_of_a_folder_has_no_length(self, files, below, put):
        put(below("sub/a"), b"12345")
        found = files.status(below("sub"))
        assert (found.is_folder, found.length) == (True, 0)

    def test_an_unchanged_file_keeps_its_version(self, files, below, put):
        put(below("a"), b"12345")
        assert files.status(below("a")) == files.status(below("a"))

    def test_a_file_that_is_written_anew_has_another_version(self, files, below, put):
        put(below("a"), b"12345")
        before = files.status(below("a"))
        while files.status(below("a")).version == before.version:  # clocks have coarse steps
            put(below("a"), b"54321")
        assert files.status(below("a")).length == before.length

    def test_the_files_of_a_folder_are_sorted_by_name(self, files, folder, below, put):
        for name in ("b", "a", "C", "_d", ".e", "10", "9", "sub/x"):
            put(below(name), name.encode())
        found = files.listdir(folder)
        names = [".e", "10", "9", "C", "_d", "a", "b", "sub"]
        assert [status.location for status in found] == [below(name) for name in names]
        assert [status.is_folder for status in found] == [False] * 7 + [True]

    def test_a_listing_equals_each_status(self, files, folder, below, put):
        for name in ("a", "b", "sub/x"):
            put(below(name), name.encode())
        found = files.listdir(folder)
        assert found == [files.status(status.location) for status in found]
        assert [status.length for status in found] == [1, 1, 0]

    def test_a_listing_does_not_hide_later_changes(self, files, folder, below, put):
        put(below("a"), b"1")
        files.listdir(folder)
        put(below("a"), b"123")
        put(below("b"), b"1")
        found = files.listdir(folder)
        assert [status.location for status in found] == [below("a"), below("b")]
        assert [status.length for status in found] == [3, 1]
        put(below("a"), b"12345")
        assert files.status(below("a")).length == 5

    def test_an_empty_folder_has_no_files(self, files, folder):
        assert files.status(folder).is_folder
        assert files.listdir(folder) == []

    @pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 7])
    def test_a_file_is_read_whole_and_in_order(self, files, below, put, length):
        data = bytes(range(251)) * (length // 251 + 1)
        put(below("a"), data[:length])
        assert contents(files, files.status(below("a"))) == data[:length]

    @pytest.mark.parametrize("offset", [0, 1, 4, 5])
    def test_a_file_is_read_from_an_offset_to_its_end(self, files, below, put, offset):
        put(below("a"), b"12345")
        assert contents(files, files.status(below("a")), offset) == b"12345"[offset:]

    @pytest.mark.parametrize("left", [b"123", b""])
    def test_a_file_that_became_shorter_is_an_error_that_names_it(self, files, below, put, left):
        put(below("a"), b"12345")
        before, received = files.status(below("a")), bytearray()
        put(below("a"), left)
        with pytest.raises(OSError) as caught:
            files.read(before, received.extend)
        assert str(below("a")) in str(caught.value)
        assert received == left

    def test_a_file_that_became_longer_is_read_to_its_former_length(self, files, below, put):
        put(below("a"), b"12345")
        before = files.status(below("a"))
        put(below("a"), b"1234567")
        assert contents(files, before) == b"12345"

    def test_a_missing_file_is_an_error_that_names_its_location(self, files, below, put):
        put(below("sub/a"), b"12345")
        for missing in (below("b"), below("sub/b"), below("nowhere/b")):
            for ask in (files.status, files.listdir):
                with pytest.raises(FileNotFoundError) as caught:
                    ask(missing)
                assert str(missing) in str(caught.value)
                assert "\n" not in str(caught.value)

    def test_nothing_is_below_a_file(self, files, below, put):
        put(below("a"), b"12345")
        with pytest.raises(FileNotFoundError) as caught:
            files.status(below("a/b"))
        assert str(below("a/b")) in str(caught.value)

    def test_a_removed_file_cannot_be_read(self, files, below):
        gone = FileStatus(location=below("gone"), length=5, version="", is_folder=False)
        with pytest.raises(FileNotFoundError) as caught:
            contents(files, gone)
        assert str(gone.location) in str(caught.value)

    def test_an_error_of_the_sink_is_raised(self, files, below, put):
        put(below("a"), b"12345")
        full = OSError(errno.ENOSPC, "no room")

        def sink(data):
            raise full

        with pytest.raises(OSError) as caught:
            files.read(files.status(below("a")), sink)
        assert caught.value is full

    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_may_have_odd_characters(self, files, folder, below, put, name):
        location = below(f"{name}/{name}")
        put(location, name.encode())
        assert contents(files, files.status(location)) == name.encode()
        assert [status.location for status in files.listdir(folder)] == [below(name)]
        assert [status.location for status in files.listdir(below(name))] == [location]


class WritableFilesContract(FilesContract):
    @pytest.fixture
    def mode(self):
        """A function of a location: the permissions of the file there, such as 0o600."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, tmp_path):
        """A function of bytes: a file of this host that holds them."""

        def make(data):
            (tmp_path / "source of ü").write_bytes(data)
            return tmp_path / "source of ü"

        return make

    def test_a_status_has_the_time_of_modification(self, files, below, source):
        before = time.time()
        files.write(below("a"), source(b"12345"))
        assert before - 1 <= files.status(below("a")).modified <= time.time() + 1
        (listed,) = files.listdir(below(""))
        assert listed.modified == files.status(below("a")).modified

    @pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 7])
    def test_a_file_is_written_whole_and_in_order(self, files, folder, below, source, length):
        data = (bytes(range(251)) * (length // 251 + 1))[:length]
        files.write(below("a"), source(data))
        assert contents(files, files.status(below("a"))) == data
        assert names(files, folder) == ["a"]

    @pytest.mark.parametrize("length", [0, 1, 4, 5])
    def test_only_the_start_of_a_file_may_be_written(self, files, below, source, length):
        files.write(below("a"), source(b"12345"), length)
        assert contents(files, files.status(below("a"))) == b"12345"[:length]

    @pytest.mark.parametrize("length", [0, 5, CHUNK + 7])
    def test_bytes_are_written_as_a_file_of_them_is(self, files, folder, below, length):
        files.write(below("a"), bytes(length))
        files.write(below("b"), bytes(length), length // 2)
        assert contents(files, files.status(below("a"))) == bytes(length)
        assert contents(files, files.status(below("b"))) == bytes(length // 2)
        assert names(files, folder) == ["a", "b"]

    def test_writing_replaces_an_existing_file(self, files, folder, below, put, source):
        put(below("a"), b"first, and longer")
        files.write(below("a"), source(b"second"))
        assert contents(files, files.status(below("a"))) == b"second"
        assert names(files, folder) == ["a"]

    def test_a_reader_sees_the_old_or_the_new_file(self, files, below, source, put):
        put(below("a"), b"123")
        ended, seen = threading.Event(), set()

        def look():
            while not ended.is_set():
                seen.add(files.status(below("a")).length)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            for length in (3 * CHUNK, 3) * 5:
                files.write(below("a"), source(bytes(length)))
        finally:
            ended.set()
            looker.join()
        assert seen <= {3, 3 * CHUNK}

    def test_a_source_that_ends_too_early_changes_nothing(self, files, folder, below, put, source):
        put(below("a"), b"before")
        for name in ("a", "b"):
            with pytest.raises(OSError, match="7 bytes fewer than before"):
                files.write(below(name), source(bytes(2 * CHUNK)), 2 * CHUNK + 7)
        assert contents(files, files.status(below("a"))) == b"before"
        assert names(files, folder) == ["a"]

    def test_a_source_that_is_missing_changes_nothing(self, files, folder, below, put, tmp_path):
        put(below("a"), b"before")
        with pytest.raises(FileNotFoundError) as caught:
            files.write(below("a"), tmp_path / "nothing")
        assert str(tmp_path / "nothing") in str(caught.value)
        assert contents(files, files.status(below("a"))) == b"before"
        assert names(files, folder) == ["a"]

    def test_written_files_are_private(self, files, folder, below, source, mode):
        files.make_folder(below("b/c"))
        for name in ("a", "a", "b/c/a"):
            files.write(below(name), source(b"12345"))
        files.append(below("a"), b"6", 5)
        modes = [mode(below(name)) for name in ("b", "b/c", "a", "b/c/a")]
        assert modes == [0o700, 0o700, 0o600, 0o600]

    def test_an_existing_folder_is_not_changed(self, files, folder, below, put, mode):
        put(below("sub/a"), b"12345")
        before = mode(below("sub"))
        for location in (folder, below("sub"), below("sub")):
            files.make_folder(location)
        assert mode(below("sub")) == before
        assert names(files, below("sub")) == ["a"]

    def test_a_folder_cannot_be_where_a_file_is(self, files, below, put):
        put(below("a"), b"12345")
        for location in (below("a"), below("a/b")):
            with pytest.raises(OSError) as caught:
                files.make_folder(location)
            assert str(below("a")) in str(caught.value)
            assert "\n" not in str(caught.value)
        assert contents(files, files.status(below("a"))) == b"12345"

    def test_bytes_are_appended_at_the_end(self, files, folder, below, source):
        files.write(below("a"), source(b"12345"))
        added = bytes(range(256)) * 5000
        files.append(below("a"), b"", 5)
        files.append(below("a"), b"67", 5)
        files.append(below("a"), added, 7)
        assert contents(files, files.status(below("a"))) == b"1234567" + added
        assert names(files, folder) == ["a"]

    def test_an_empty_file_is_appended_to(self, files, below, source):
        files.write(below("a"), source(b""))
        files.append(below("a"), b"12345", 0)
        assert contents(files, files.status(below("a"))) == b"12345"

    @pytest.mark.parametrize("offset", [0, 2, 6, 500])
    def test_nothing_is_appended_to_a_file_of_another_length(self, files, below, put, offset):
        put(below("a"), b"12345")
        with pytest.raises(OSError, match="changed meanwhile") as caught:
            files.append(below("a"), b"67", offset)
        for part in (str(below("a")), "5 bytes", f"{offset} should be"):
            assert part in str(caught.value)
        assert contents(files, files.status(below("a"))) == b"12345"

    def test_a_missing_file_is_not_appended_to(self, files, folder, below):
        for missing in (below("a"), below("nowhere/a")):
            with pytest.raises(FileNotFoundError) as caught:
                files.append(missing, b"12345", 0)
            assert str(missing) in str(caught.value)
        assert names(files, folder) == []

    def test_a_renamed_file_has_its_content_and_its_new_name(self, files, folder, below, put):
        put(below("a"), b"12345")
        files.rename(below("a"), below("b"))
        assert contents(files, files.status(below("b"))) == b"12345"
        assert names(files, folder) == ["b"]

    def test_renaming_replaces_the_file_of_that_name(self, files, folder, below, put):
        put(below("a"), b"12345")
        put(below("b"), b"other")
        files.rename(below("a"), below("b"))
        assert contents(files, files.status(below("b"))) == b"12345"
        assert names(files, folder) == ["b"]

    def test_a_missing_file_cannot_be_renamed(self, files, folder, below, put):
        put(below("b"), b"12345")
        with pytest.raises(FileNotFoundError) as caught:
            files.rename(below("a"), below("b"))
        assert str(below("a")) in str(caught.value)
        assert contents(files, files.status(below("b"))) == b"12345"

    def test_a_free_name_is_taken_without_replacing(self, files, folder, below, put):
        put(below("a"), b"12345")
        files.rename(below("a"), below("b"), replace=False)
        assert contents(files, files.status(below("b"))) == b"12345"
        assert names(files, folder) == ["b"]

    def test_a_taken_name_is_not_taken_again(self, files, folder, below, put):
        put(below("a"), b"12345")
        put(below("b"), b"other")
        with pytest.raises(FileExistsError) as caught:
            files.rename(below("a"), below("b"), replace=False)
        assert str(below("b")) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert contents(files, files.status(below("a"))) == b"12345"
        assert contents(files, files.status(below("b"))) == b"other"

    def test_a_missing_file_takes_no_name(self, files, folder, below):
        with pytest.raises(FileNotFoundError) as caught:
            files.rename(below("a"), below("b"), replace=False)
        assert str(below("a")) in str(caught.value)
        assert names(files, folder) == []

    def test_only_one_of_several_processes_takes_a_name(self, files, folder, below, put):
        def take(number):
            start.wait()
            try:
                files.rename(below(f"{number}"), below("name"), replace=False)
            except FileExistsError:
                return
            winners.append(number)

        for _ in range(10):
            start, winners = threading.Barrier(4), []
            for number in range(4):
                put(below(f"{number}"), b"%d" % number)
            takers = [threading.Thread(target=take, args=[number]) for number in range(4)]
            for taker in takers:
                taker.start()
            for taker in takers:
                taker.join()
            [winner] = winners
            assert contents(files, files.status(below("name"))) == b"%d" % winner
            files.remove(below("name"))

    def test_a_touched_file_was_changed_now_and_has_another_version(self, files, below, put):
        put(below("a"), b"12345")
        before, began = files.status(below("a")), time.time()
        while files.status(below("a")).version == before.version:  # clocks have coarse steps
            files.touch(below("a"))
        assert began - 0.01 <= files.status(below("a")).modified <= time.time()
        assert contents(files, files.status(below("a"))) == b"12345"

    def test_a_missing_file_cannot_be_touched(self, files, folder, below):
        with pytest.raises(FileNotFoundError) as caught:
            files.touch(below("a"))
        assert str(below("a")) in str(caught.value)
        assert names(files, folder) == []

    def test_files_and_folders_are_removed_with_their_content(self, files, folder, below, put):
        for name in ("a", "b", "sub/a", "sub/deep/er/a"):
            put(below(name), b"12345")
        files.remove(below("a"))
        files.remove(below("sub"))
        assert names(files, folder) == ["b"]

    def test_removing_a_missing_file_does_nothing(self, files, folder, below, put):
        put(below("b"), b"12345")
        for missing in ("a", "nowhere/a"):
            files.remove(below(missing))
        assert names(files, folder) == ["b"]

    def test_names_are_those_of_the_listing(self, files, folder, below, source):
        for name in ("b", "a", "sub/x"):
            files.make_folder(below(name).parent)
            files.write(below(name), source(b""))
        assert files.names(folder) == names(files, folder) == ["a", "b", "sub"]
        with pytest.raises(FileNotFoundError):
            files.names(below("nowhere"))

    def test_a_file_has_no_files_in_it(self, files, below, put):
        put(below("a"), b"1")
        for ask in (files.listdir, files.names):
            with pytest.raises(NotADirectoryError) as caught:
                ask(below("a"))
            assert str(below("a")) in str(caught.value)
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", NAMES)
    def test_written_files_may_have_odd_names(self, files, folder, below, source, name):
        files.make_folder(below(name))
        location, new = below(f"{name}/{name}"), below(f"{name}/{name} 2")
        files.write(location, source(b"123"))
        files.append(location, b"45", 3)
        files.rename(location, new)
        assert contents(files, files.status(new)) == b"12345"
        assert [status.location for status in files.listdir(below(name))] == [new]
        files.remove(new)
        assert names(files, below(name)) == []

    def test_the_check_for_writing_makes_the_folder_and_leaves_nothing(self, files, below, put):
        put(below("sub/a"), b"12345")
        for path in ("sub", "new/er"):
            check_writable(files, below(path))
        assert (names(files, below("sub")), names(files, below("new/er"))) == (["a"], [])


def contents(files, status, offset=0):
    received = bytearray()
    files.read(status, received.extend, offset)
    return bytes(received)


def names(files, folder):
    return [status.location.name for status in files.listdir(folder)]
