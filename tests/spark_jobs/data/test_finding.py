import glob
import os
import tempfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiment import data
from search.errors import InvalidArgument
from tests.properties import examples
from tests.spark_jobs.data.files import (
    contents,
    put,
    run,
)

pytestmark = pytest.mark.usefixtures("inside")


NAMES = ["a", "b", "ü x", "_SUCCESS", ".crc", "part-0.txt", "part-1.txt", "100%#?"]


def test_local_copy_of_a_folder_copies_the_files_that_spark_reads(folder, store):
    for name in (*NAMES, "sub/x"):
        store(name, name.encode())
    wanted = sorted(name for name in NAMES if name[0] not in "_.")
    assert contents(data.local_copy(folder)) == [name.encode() for name in wanted]
    assert data.glob(folder) == [f"{folder}/{name}" for name in wanted]


def test_a_slash_behind_a_folder_changes_nothing(folder, store):
    store("a", b"1")
    assert data.glob(f"{folder}/") == [f"{folder}/a"]


def test_local_copy_of_a_pattern_returns_its_matches_sorted_by_name(folder, store):
    for name in NAMES:
        store(name, name.encode())
    assert contents(data.local_copy(f"{folder}/part-?.txt")) == [b"part-0.txt", b"part-1.txt"]
    assert data.glob(f"{folder}/part-[1-9]*") == [f"{folder}/part-1.txt"]


def test_a_pattern_may_have_several_levels_of_folders(folder, store):
    for path in ("x/2024/a.rec", "x/2025/b.rec", "x/2025/c.txt", "y/2025/d.rec", "x/e.rec"):
        store(path, path.encode())
    assert contents(data.local_copy(f"{folder}/*/20*/*.rec")) == [
        b"x/2024/a.rec",
        b"x/2025/b.rec",
        b"y/2025/d.rec",
    ]
    assert data.glob(f"{folder}/x/*/b.rec") == [f"{folder}/x/2025/b.rec"]


def test_a_pattern_matches_no_folders_and_hidden_files_only_when_it_says_so(folder, store):
    """As Spark reads a pattern: what it writes into a folder beside the data is left out."""
    for path in (".hidden", "_SUCCESS", "a", "sub/x", ".git/y", "_temporary/z"):
        store(path, b"")
    assert data.glob(f"{folder}/*") == [f"{folder}/a"]
    assert data.glob(f"{folder}/.*") == [f"{folder}/.hidden"]
    assert data.glob(f"{folder}/_*") == [f"{folder}/_SUCCESS"]
    assert data.glob(f"{folder}/*/*") == [f"{folder}/sub/x"]


def test_a_path_that_exists_is_no_pattern(folder, store):
    for path in ("a[1].rec", "a1.rec", "b[1]/x", "b1/y"):
        store(path, path.encode())
    assert contents(data.local_copy(f"{folder}/a[1].rec")) == [b"a[1].rec"]
    assert contents(data.local_copy(f"{folder}/b[1]")) == [b"b[1]/x"]
    assert data.glob(f"{folder}/a[1]*") == [f"{folder}/a1.rec"]
    for path in data.glob(folder):
        assert data.glob(path) == [path]


NOTHING = ["nothing", "nothing/*", "*.none", "*/*/*/*", "empty", "a/*", "a/b", "a/b/*"]


@pytest.mark.parametrize("path", NOTHING)
def test_no_match_is_an_error_that_names_the_path(folder, store, path):
    store("a", b"")
    store("empty/_SUCCESS", b"")
    for function in (data.local_copy, data.glob):
        with pytest.raises(FileNotFoundError) as caught:
            function(f"{folder}/{path}")
        assert f"{folder}/{path}".removesuffix("/*") in str(caught.value)
        assert "\n" not in str(caught.value)


parts = st.text("ab.[]", min_size=1, max_size=3).filter(lambda part: part.strip("."))
patterns = st.lists(st.text("ab.[]*?", min_size=1, max_size=3), min_size=1, max_size=3).filter(
    lambda found: any(set(part) & set("*?[") for part in found) and all(p.strip(".") for p in found)
)


@example({"[a]"}, ["[a]"])
@example({"[a]/b", "[a]/.b", "a"}, ["[a]"])
@examples(100)
@given(st.sets(st.lists(parts, min_size=1, max_size=3).map("/".join), max_size=8), patterns)
def test_patterns_have_the_meaning_of_the_standard_librarys(paths, pattern):
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(paths):
            if not any(other.startswith(f"{path}/") for other in paths):
                put(f"{folder}/{path}", b"")
        wanted = f"{folder}/{'/'.join(pattern)}"
        means = wanted
        if os.path.exists(wanted):  # no pattern, whatever its characters
            means = glob.escape(wanted) + ("/*" if os.path.isdir(wanted) else "")
        files = sorted(path for path in glob.glob(means) if os.path.isfile(path))
        try:
            found = data.glob(wanted)
        except FileNotFoundError:
            found = []
        assert found == files


def test_files_and_folders_exist_and_others_do_not(folder, store):
    store("sub/a", b"")
    found = [
        data.exists(f"{folder}/{path}") for path in ("sub/a", "sub", "sub/b", "x/y", "sub/a/b")
    ]
    assert found == [True, True, False, False, False]


def test_a_folder_is_listed_with_all_that_is_in_it(folder, store):
    for name in (*NAMES, "sub/x"):
        store(name, b"")
    assert data.listdir(folder) == sorted([*NAMES, "sub"])


def test_a_file_cannot_be_listed(folder, store):
    store("a", b"")
    with pytest.raises(NotADirectoryError, match="a is a file; name its folder"):
        data.listdir(f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        data.listdir(f"{folder}/b")


CALLS = ["local_copy", "glob", "tfrecords", "open", "exists", "listdir", "parquet"]


@pytest.mark.parametrize("call", CALLS)
def test_an_hdfs_that_is_not_configured_is_refused_in_one_sentence(call):
    if call == "tfrecords":
        pytest.importorskip("tensorflow")
    with pytest.raises(InvalidArgument) as caught:
        getattr(data, call)("hdfs:///data")
    assert str(caught.value) == (
        "path: expected hdfs://host:8020/path, since fs.defaultFS is no HDFS, "
        "got 'hdfs:///data', and fs.defaultFS is nothing"
    )


@pytest.mark.parametrize("call", CALLS)
def test_a_malformed_url_is_refused(call):
    if call == "tfrecords":
        pytest.importorskip("tensorflow")
    with pytest.raises(InvalidArgument, match="a URL has two slashes"):
        getattr(data, call)("hdfs:/data")
    with pytest.raises(InvalidArgument, match="on Databricks, write '/dbfs/data'"):
        getattr(data, call)("dbfs:/data")


def test_without_a_session_hdfs_needs_an_address():
    ended = run("from experiment import data; data.local_copy('hdfs:///data')")
    assert ended.returncode == 1
    message = ended.stderr.splitlines()[-1]
    assert "path: expected hdfs://host:8020/path, since fs.defaultFS is no HDFS" in message
