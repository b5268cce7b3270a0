"""What every implementation of `Files` has to do.

A test class inherits `FilesContract` and overrides its three fixtures; it may add its own tests.
"""

import errno

import pytest

from spark_jobs.files import CHUNK, FileStatus

NAMES = ["a b", "ü", "日本", "100%", "a%20b", "a#b", "a?b=c", "a+b&c;d", "it's", "a[1]*", "~"]


class FilesContract:
    @pytest.fixture
    def files(self):
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def folder(self):
        """The location of an empty folder, one that is there."""
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
        assert found == FileStatus(below("a"), 5, found.version, False)
        assert isinstance(found.version, str)

    def test_a_folder_is_one_and_has_no_length(self, files, below, put):
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

    def test_a_listing_says_the_same_as_each_status(self, files, folder, below, put):
        for name in ("a", "b", "sub/x"):
            put(below(name), name.encode())
        found = files.listdir(folder)
        assert found == [files.status(status.location) for status in found]
        assert [status.length for status in found] == [1, 1, 0]

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

    def test_a_missing_file_is_said_to_be_missing_by_its_location(self, files, below, put):
        put(below("sub/a"), b"12345")
        for missing in (below("b"), below("sub/b"), below("nowhere/b")):
            for ask in (files.status, files.listdir):
                with pytest.raises(FileNotFoundError) as caught:
                    ask(missing)
                assert str(missing) in str(caught.value)
                assert "\n" not in str(caught.value)

    def test_a_file_that_is_missing_by_now_cannot_be_read(self, files, below):
        gone = FileStatus(below("gone"), 5, "", False)
        with pytest.raises(FileNotFoundError) as caught:
            contents(files, gone)
        assert str(gone.location) in str(caught.value)

    def test_what_the_sink_raises_comes_through(self, files, below, put):
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


def contents(files, status, offset=0):
    received = bytearray()
    files.read(status, received.extend, offset)
    return bytes(received)
