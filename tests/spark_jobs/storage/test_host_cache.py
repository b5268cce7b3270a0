import errno
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.storage.files import FileStatus
from spark_jobs.storage.host_cache import CacheSettings, CacheUnavailable, HostCache
from spark_jobs.storage.locations import Location
from tests import ROOT
from tests.properties import examples

ODD_NAMES = [
    "a b",
    "ü",
    "%20",
    "a#b?c",
    "new\nline",
    "'\"",
    "\\",
    "-rf",
    ".part",
    ".hidden",
    "x" * 255,
]


def file(name="a", length=100, version="1"):
    return FileStatus(
        location=Location("hdfs", "nn:8020", f"/data/{name}"),
        length=length,
        version=version,
        is_folder=False,
    )


def content(status):
    """Bytes that only this version of this file has."""
    seed = hashlib.sha256(repr(status).encode()).digest()
    return (seed * (status.length // len(seed) + 1))[: status.length]


class StableFiles:
    """Files that never change."""

    def read(self, status, sink, offset=0):
        self.last = status

    def status(self, location):
        assert location == self.last.location
        return self.last


class CountingFiles(StableFiles):
    """Returns `content`, and adds a line to a file for each read in any process."""

    def __init__(self, log):
        self.log = log

    def read(self, status, sink, offset=0):
        super().read(status, sink)
        with open(self.log, "a") as log:
            log.write("read\n")
        sink(content(status)[offset:])

    def count(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


class BrokenFiles(StableFiles):
    """Returns the first half and then raises."""

    def __init__(self, error):
        self.error = error

    def read(self, status, sink, offset=0):
        sink(content(status)[: status.length // 2])
        raise self.error


@pytest.fixture
def files(tmp_path):
    return CountingFiles(tmp_path / "reads")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "copies"


@pytest.fixture
def cache(folder):
    return HostCache(CacheSettings(str(folder)))


def limited(folder, limit):
    return HostCache(CacheSettings(str(folder), limit))


def fetch(cache, files, status):
    """Fetch a file and release the copy."""
    copy, descriptor = cache.fetch(files, status)
    os.close(descriptor)
    assert copy.read_bytes() == content(status)
    return copy


@contextmanager
def in_use(cache, files, status):
    copy, descriptor = cache.fetch(files, status)
    try:
        yield copy
    finally:
        os.close(descriptor)


def used_long_ago(copy, order):
    """Set the last use of a copy to a time long past."""
    os.utime(copy.parent, (order, order))


def left_in(folder):
    """Return the content of the cache without its locks."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


PROLOGUE = """
import os, sys
from pathlib import Path
from tests.spark_jobs.storage.test_host_cache import *

folder = Path(sys.argv[1])
files = CountingFiles(Path(sys.argv[2]))
cache = HostCache(CacheSettings(str(folder)))

def meet():
    print("here", flush=True)
    assert sys.stdin.readline() == "continue\\n"
"""


class Other:
    """Another Python process, which has the same cache and calls `meet` in its program."""

    def __init__(self, program, folder, files):
        code = PROLOGUE + textwrap.dedent(program)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(files.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate(timeout=240)

    def wait_until_here(self):
        assert self.process.stdout.readline() == "here\n"

    def let_it_continue(self):
        self.process.stdin.write("continue\n")
        self.process.stdin.flush()

    def wait_until_done(self):
        printed, _ = self.process.communicate(timeout=240)
        assert self.process.returncode == 0
        return printed

    def kill(self):
        self.process.kill()
        self.process.wait(60)


HOLD = """
cache.fetch(files, file())
meet()
"""


def test_a_copy_has_the_name_and_the_content_of_the_file(cache, files, folder):
    copy = fetch(cache, files, file("part-0.tfrecord"))
    assert copy.name == "part-0.tfrecord"
    assert copy.is_relative_to(folder)


def test_copies_are_for_their_owner_only(cache, files, folder):
    copy = fetch(cache, files, file())
    assert stat.S_IMODE(copy.stat().st_mode) == 0o400
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700


def test_a_file_is_read_once_and_then_found(cache, files, folder):
    assert fetch(cache, files, file()) == fetch(cache, files, file())
    assert fetch(HostCache(CacheSettings(str(folder))), files, file()).exists()
    assert files.count() == 1


def test_an_empty_file_is_read_once_too(cache, files):
    for _ in range(3):
        fetch(cache, files, file(length=0))
    assert files.count() == 1


def test_eight_processes_at_once_read_a_file_once(files, folder):
    program = """
        meet()
        print(fetch(cache, files, file(length=1_000_000)))
    """
    others = [Other(program, folder, files) for _ in range(8)]
    try:
        for other in others:
            other.wait_until_here()
        for other in others:
            other.let_it_continue()
        copies = {other.wait_until_done() for other in others}
    finally:
        for other in others:
            other.__exit__()
    assert len(copies) == 1
    assert files.count() == 1


def waits_for_a_lock(process):
    locks = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(process.pid) in line.split() for line in locks)


def test_a_second_reader_waits_for_the_download(cache, files, folder):
    program = """
        class SlowFiles(CountingFiles):
            def read(self, status, sink, offset=0):
                meet()
                super().read(status, sink)

        fetch(cache, SlowFiles(files.log), file())
    """
    with Other(program, folder, files) as first, Other("meet()" + HOLD, folder, files) as second:
        first.wait_until_here()
        second.wait_until_here()
        second.let_it_continue()
        while not waits_for_a_lock(second.process):
            assert second.process.poll() is None
        first.let_it_continue()
        second.wait_until_here()
        first.wait_until_done()
    assert files.count() == 1


def test_a_reader_that_has_waited_does_not_download_a_version_that_is_gone(cache, files, folder):
    program = """
        from spark_jobs.storage.host_cache import FileChanged

        class Changed(CountingFiles):
            def read(self, status, sink, offset=0):
                meet()
                super().read(status, sink)

            def status(self, location):
                return file(version="2")

        try:
            fetch(cache, Changed(files.log), file())
        except FileChanged:
            print("changed")
    """
    others = [Other(program, folder, files)]
    try:
        others[0].wait_until_here()
        others += [Other(program, folder, files) for _ in range(2)]
        for other in others[1:]:
            while not waits_for_a_lock(other.process):
                assert other.process.poll() is None
        others[0].let_it_continue()
        assert [other.wait_until_done() for other in others] == ["changed\n"] * 3
    finally:
        for other in others:
            other.__exit__()
    assert files.count() == 1


def test_what_one_user_may_read_is_not_found_by_another(cache, files):
    """The store says only to a reader whether the file may be read."""
    for user in ("alice", "bob", "alice"):
        _, descriptor = cache.fetch(files, file(), user)
        os.close(descriptor)
    assert files.count() == 2


DIFFERENT = [file("b"), file(version="2"), file(length=101)]


@pytest.mark.parametrize("other", DIFFERENT, ids=["name", "version", "length"])
def test_another_version_is_another_copy(cache, files, other):
    assert fetch(cache, files, file()) != fetch(cache, files, other)
    assert fetch(cache, files, file()).exists()
    assert files.count() == 2


def test_the_same_path_of_another_cluster_is_another_copy(cache, files):
    there = FileStatus(
        location=Location("hdfs", "other:8020", "/data/a"), length=100, version="1", is_folder=False
    )
    assert fetch(cache, files, file()) != fetch(cache, files, there)


def test_the_old_version_stays_for_its_readers(cache, files):
    with in_use(cache, files, file()) as old:
        fetch(cache, files, file(version="2"))
        assert old.read_bytes() == content(file())


@pytest.mark.parametrize("length", [0, 1, 99])
def test_a_truncated_copy_is_made_anew(cache, files, length):
    copy = fetch(cache, files, file())
    os.truncate(copy, length)
    fetch(cache, files, file())
    assert files.count() == 2


def test_a_copy_is_on_the_disk_before_it_has_its_name(cache, files, monkeypatch):
    synced = []

    def fsync(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.name, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    fetch(cache, files, file("a"))
    assert synced == [(".part", content(file("a")))]


def test_an_empty_file_of_unknown_size_is_made_anew(cache):
    contents = [b"second", b"first"]

    def make(part):
        part.write_bytes(contents.pop())

    for made in (b"first", b"second"):
        built, descriptor = cache.build("key", "table", "it", 3, make)
        os.close(descriptor)
        assert built.read_bytes() == made
        os.truncate(built, 0)  # as after a power cut


def build_table(cache, size, estimate=3, key="table"):
    """Build a file of another size than it was thought to have, and release it."""
    built, descriptor = cache.build(
        key, "table", "it", estimate, lambda p: p.write_bytes(bytes(size))
    )
    os.close(descriptor)
    return built


def test_a_file_that_is_larger_than_its_estimate_removes_others_too(files, folder):
    cache = limited(folder, 250)
    old = {name: fetch(cache, files, file(name)) for name in "ab"}
    used_long_ago(old["a"], 1)
    table = build_table(cache, 101)
    assert left_in(folder) == sorted([old["b"], table])
    assert table.stat().st_size == 101


def test_a_file_that_is_above_the_limit_once_it_is_built_is_refused(files, folder):
    cache = limited(folder, 250)
    kept = fetch(cache, files, file())
    with pytest.raises(
        OSError, match=r"251 bytes are more than .* 250; raise spark\.exp"
    ) as caught:
        build_table(cache, 251)
    assert type(caught.value) is OSError  # other hosts refuse it, too
    assert left_in(folder) == [kept]
    assert build_table(cache, 150).stat().st_size == 150
    assert left_in(folder) != [kept]


def test_a_deleted_copy_is_made_anew(cache, files):
    fetch(cache, files, file()).unlink()
    fetch(cache, files, file())
    assert files.count() == 2


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_may_have_odd_characters(cache, files, name):
    assert fetch(cache, files, file(name)).name == name
    fetch(cache, files, file(name))
    assert files.count() == 1


SIGNED = "X-Amz-Algorithm=AWS4&X-Amz-Security-Token=" + "IQoJ" * 300
NAMES_OF_COPIES = [
    (Location("https", "host", f"/data/train.tfrecord?{SIGNED}"), "train.tfrecord"),
    (Location("https", "host", "/x.parquet?sig=a/b"), "x.parquet"),
    (Location("http", "host", "/?download=1"), "data"),
    (Location("s3", "host", f"/{'x' * 300}.csv"), f"{'x' * 251}.csv"),
    (Location("s3", "host", f"/{'ü' * 300}.tar.gz"), f"{'ü' * 126}.gz"),
    (Location("s3", "host", f"/a.{'x' * 300}"), f"a.{'x' * 253}"),
]


@pytest.mark.parametrize(("location", "name"), NAMES_OF_COPIES, ids=lambda value: str(value)[:20])
def test_a_name_without_a_place_on_this_host_is_shortened(cache, files, location, name):
    status = FileStatus(location=location, length=100, version="1", is_folder=False)
    for _ in range(2):
        assert fetch(cache, files, status).name == name
    assert files.count() == 1


def test_urls_with_other_queries_are_other_files(cache, files):
    copies = set()
    for query in "ab":
        location = Location("https", "host", f"/train.tfrecord?{query}")
        status = FileStatus(location=location, length=100, version="1", is_folder=False)
        copies.add(fetch(cache, files, status))
    assert len(copies) == 2


ERRORS = [OSError(errno.EIO, "broken"), RuntimeError("broken"), KeyboardInterrupt("broken")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_reader_that_raises_leaves_nothing(cache, files, folder, error):
    with pytest.raises(type(error), match="broken"):
        cache.fetch(BrokenFiles(error), file())
    assert left_in(folder) == []
    fetch(cache, files, file())


def test_a_process_killed_in_a_download_leaves_no_copy(cache, files, folder):
    program = """
        class SlowFiles:
            def read(self, status, sink, offset=0):
                sink(content(status)[:-1])
                meet()

        cache.fetch(SlowFiles(), file(length=3_000_000))
    """
    with Other(program, folder, files) as other:
        other.wait_until_here()
        assert [path.stat().st_size > 0 for path in left_in(folder)] == [True]
        other.kill()
    copy = fetch(cache, files, file(length=3_000_000))
    assert left_in(folder) == [copy]
    assert files.count() == 1


def test_files_of_a_killed_download_are_removed(files, folder):
    cache = limited(folder, 250)
    half = fetch(cache, files, file("half"))
    half.rename(half.with_name(".part"))
    used_long_ago(half, 1)
    kept = fetch(cache, files, file("kept"))
    new = fetch(cache, files, file("new"))
    assert left_in(folder) == sorted([kept, new])


def test_the_least_recently_used_copy_is_removed_first(files, folder):
    cache = limited(folder, 300)
    copies = {name: fetch(cache, files, file(name)) for name in "abc"}
    for order, name in enumerate("cab", start=1):
        used_long_ago(copies[name], order)
    fetch(cache, files, file("c"))  # the oldest, and now the one last used
    copies["d"] = fetch(cache, files, file("d"))
    assert [name for name in "abcd" if copies[name].exists()] == ["b", "c", "d"]
    assert files.count() == 4


def test_no_more_is_removed_than_the_new_copy_takes(files, folder):
    cache = limited(folder, 300)
    old = fetch(cache, files, file("old", 200))
    small = [fetch(cache, files, file(name, 20)) for name in "abc"]
    used_long_ago(old, 1)
    new = fetch(cache, files, file("new", 240))
    assert left_in(folder) == sorted([*small, new])


@examples(40)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=12))
def test_the_copies_never_take_more_than_the_limit(wanted):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "copies")
        cache, files = limited(folder, 100), CountingFiles(Path(parent, "reads"))
        for name, length in wanted:
            copy = fetch(cache, files, file(name, length))
            assert copy in left_in(folder)
            assert sum(path.stat().st_size for path in left_in(folder)) <= 100


def test_a_file_larger_than_the_limit_is_refused_and_nothing_is_removed(files, folder):
    cache = limited(folder, 100)
    kept = fetch(cache, files, file())
    with pytest.raises(
        OSError, match=r"101 bytes are more than .* 100; raise spark\.exp"
    ) as caught:
        cache.fetch(files, file("large", 101))
    assert caught.value.errno == errno.ENOSPC
    assert not isinstance(caught.value, CacheUnavailable)  # other hosts refuse it, too
    assert left_in(folder) == [kept]
    assert files.count() == 1


def test_the_default_limit_is_half_of_the_free_and_taken_bytes(files, folder):
    cache = limited(folder, 0)
    kept = fetch(cache, files, file())
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with pytest.raises(CacheUnavailable, match="more than the cache of this host may hold"):
        cache.fetch(
            files,
            FileStatus(
                location=file("huge").location, length=2 * free, version="1", is_folder=False
            ),
        )
    assert kept.exists()


def test_a_limit_that_the_disk_does_not_have_is_the_disks(files, folder, monkeypatch):
    cache = limited(folder, 10_000)
    for order, name in enumerate("abcd"):
        used_long_ago(fetch(cache, files, file(name)), order)
    usage = shutil.disk_usage(folder)._replace(free=50)  # of a disk of 450 bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    new = fetch(cache, files, file("e", 240))
    assert {path.name for path in left_in(folder)} == {"c", "d", new.name}
    with pytest.raises(CacheUnavailable, match="no room for the 5000 bytes"):
        cache.fetch(files, file("f", 5_000))
    assert {path.name for path in left_in(folder)} == {"c", "d", new.name}


def test_a_copy_that_this_process_uses_is_never_removed(files, folder):
    cache = limited(folder, 150)
    with in_use(cache, files, file()) as used:
        used_long_ago(used, 1)
        for name in "bcd":
            fetch(cache, files, file(name))
            assert used.read_bytes() == content(file())
    used_long_ago(used, 1)
    fetch(cache, files, file("e"))
    assert not used.exists()


def test_a_copy_used_twice_stays_until_both_release_it(files, folder):
    cache = limited(folder, 150)
    with in_use(cache, files, file()) as used:
        fetch(cache, files, file())
        fetch(cache, files, file("b"))
        assert used.exists()
    fetch(cache, files, file("c"))
    fetch(cache, files, file("d"))
    assert not used.exists()


def test_a_copy_that_another_process_uses_stays_until_that_one_is_killed(files, folder):
    cache = limited(folder, 150)
    with Other(HOLD, folder, files) as other:
        other.wait_until_here()
        (used,) = left_in(folder)
        used_long_ago(used, 1)
        for name in "bc":
            fetch(cache, files, file(name))
            assert used.exists()
        other.kill()
        used_long_ago(used, 1)
        fetch(cache, files, file("d"))
        assert not used.exists()


def test_a_program_that_this_process_starts_does_not_keep_the_copy(files, folder):
    cache = limited(folder, 150)
    with in_use(cache, files, file()) as used:
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        fetch(cache, files, file("b"))
        assert not used.exists()
    finally:
        child.kill()
        child.wait(60)


def test_a_removed_copy_is_made_anew(files, folder):
    cache = limited(folder, 100)
    for name in "abab":
        fetch(cache, files, file(name))
    assert files.count() == 4


def test_other_files_are_never_removed(files, folder):
    own = folder / "my data" / "weights"
    own.parent.mkdir(parents=True)
    own.write_bytes(bytes(90))
    (folder / "notes").write_text("mine")
    cache = limited(folder, 100)
    for name in "abc":
        fetch(cache, files, file(name))
    assert own.read_bytes() == bytes(90)
    assert (folder / "notes").read_text() == "mine"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(cache, files, folder):
    folder.mkdir()
    os.chown(folder, 12_345, -1)
    with pytest.raises(
        PermissionError, match=r"user 12345; set spark\.experiment\.cache"
    ) as caught:
        cache.fetch(files, file())
    assert str(folder) in str(caught.value)
    assert list(folder.iterdir()) == []
    assert files.count() == 0


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(cache, files, folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="others can write to it") as caught:
        cache.fetch(files, file())
    with pytest.raises(PermissionError):
        cache.room()
    assert str(folder) in str(caught.value)
    assert list(folder.iterdir()) == []
    assert files.count() == 0


def test_a_folder_that_others_can_only_read_is_used(cache, files, folder):
    folder.mkdir()
    folder.chmod(0o755)
    fetch(cache, files, file())


def test_a_link_to_a_folder_is_refused(cache, files, folder, tmp_path):
    """As it may be another user's, who can let it lead elsewhere later."""
    (tmp_path / "mine").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "mine")
    with pytest.raises(PermissionError, match="is a link") as caught:
        cache.fetch(files, file())
    assert str(folder) in str(caught.value)
    assert list(folder.iterdir()) == []


def test_a_file_where_the_folder_should_be_is_an_error(cache, files, folder):
    folder.touch()
    with pytest.raises(FileExistsError):
        cache.fetch(files, file())


def test_the_default_folder_is_one_of_this_user_among_the_temporary_files(
    files, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy = fetch(HostCache(CacheSettings()), files, file())
    folder = copy.parent.parent
    assert folder.parent == tmp_path
    assert str(os.getuid()) in folder.name
    found = CacheSettings(limit=3).with_folder()
    assert found == CacheSettings(str(folder), 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "of a trial"))
    assert found.with_folder() == found


def test_no_descriptor_is_left_open(cache, files, folder):
    fetch(cache, files, file())
    with pytest.raises(RuntimeError):
        cache.fetch(BrokenFiles(RuntimeError()), file("b"))
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert [path for path in opened if path.startswith(str(folder))] == []
    for lock in folder.glob("*.lock"):
        with lock.open() as free:
            fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


NAMESPACE = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
SMALL_DISK = ["sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"']


def can_mount(folder):
    folder.mkdir()
    try:
        tried = subprocess.run([*NAMESPACE, *SMALL_DISK, folder, "true"], capture_output=True)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def run_program(program, *arguments, prefix=()):
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", PROLOGUE + textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, files):
    disk = tmp_path / "disk"
    if not can_mount(disk):
        pytest.skip("no small disk can be mounted here")
    program = """
        cache = limited(folder, 10_000_000)
        try:
            cache.fetch(files, file(length=2_000_000))
        except CacheUnavailable as error:
            assert error.errno == errno.ENOSPC
            assert "no room for the 2000000 bytes of hdfs://nn:8020/data/a, " in str(error)
            assert "set spark.experiment.cache.folder to a larger disk" in str(error)
        else:
            sys.exit("2 MB on a disk of 1 MB")
        assert left_in(folder) == []
        fetch(cache, files, file("small", 600_000))
        try:
            build_table(cache, 2_000_000)
        except CacheUnavailable as error:
            free = 1_048_576 - 602_112
            assert f"no room for it, which decoded takes more than the {free} bytes" in str(error)
        else:
            sys.exit("2 MB on a disk of 1 MB")
    """
    run_program(program, disk / "copies", files.log, prefix=[*NAMESPACE, *SMALL_DISK, disk])


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_told_from_a_file_that_cannot_be_read(cache, folder, number):
    with pytest.raises(CacheUnavailable) as caught:
        cache.fetch(BrokenFiles(OSError(number, "broken", str(folder))), file())
    assert caught.value.errno == number
    for error in (PermissionError(errno.EACCES, "no", "/a"), OSError("no permission")):
        with pytest.raises(OSError) as caught:
            cache.fetch(BrokenFiles(error), file())
        assert caught.value is error


def test_a_copy_that_cannot_be_written_leaves_nothing(folder, files):
    program = """
        import resource

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        try:
            cache.fetch(files, file(length=100_000))
        except OSError as error:
            assert error.errno == errno.EFBIG
        else:
            sys.exit("100 kB where 50 kB are allowed")
        assert left_in(folder) == []
        fetch(cache, files, file("small", 50_000))
    """
    run_program(program, folder, files.log)


def test_a_file_that_changes_during_the_download_is_no_copy(cache, files, folder):
    class ChangingFiles(CountingFiles):
        def status(self, location):
            return file(version="2")

    with pytest.raises(OSError, match="changed meanwhile"):
        cache.fetch(ChangingFiles(files.log), file(version="1"))
    assert left_in(folder) == []
