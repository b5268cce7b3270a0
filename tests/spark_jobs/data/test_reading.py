import glob
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment import data
from search.errors import InvalidArgument
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.trial.context import DataSettings, TrialContext, entered
from tests import ROOT
from tests.properties import examples

NAMES = ["a", "b", "ü x", "_SUCCESS", ".crc", "part-0.txt", "part-1.txt", "100%#?"]


@pytest.fixture
def copies(tmp_path):
    """The folder of this host's copies."""
    return tmp_path / "copies"


@pytest.fixture
def trial(tmp_path, copies):
    return TrialContext(
        params={}, folder=tmp_path, data=DataSettings(cache=CacheSettings(str(copies)))
    )


@pytest.fixture(autouse=True)
def inside(trial):
    with entered(trial):
        yield


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """An empty folder of this host, and one of a store."""
    if request.param == "local":
        yield str(tmp_path / "data")
        return
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    yield "memory://bucket/data"
    memory.rm("/", recursive=True)


@pytest.fixture
def store(folder):
    """A function of a path below the folder and bytes; a test with it runs for each folder."""
    return lambda path, content: put(f"{folder}/{path}", content)


def put(path, content):
    with fsspec.open(path, "wb", auto_mkdir=True) as file:
        file.write(content)


@pytest.fixture
def remote():
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    yield "memory://bucket"
    memory.rm("/", recursive=True)


def contents(paths):
    return [Path(path).read_bytes() for path in paths]


def open_below(folder):
    links = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    return [link for link in links if link.startswith(f"{folder}/")]


def test_local_copy_of_a_file_returns_one_path(folder, store):
    store("a", b"1")
    store("b", b"2")
    assert contents(data.local_copy(f"{folder}/a")) == [b"1"]


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
    for path in (".hidden", "_SUCCESS", "a", "sub/x", ".git/y"):
        store(path, b"")
    assert data.glob(f"{folder}/*") == [f"{folder}/_SUCCESS", f"{folder}/a"]
    assert data.glob(f"{folder}/.*") == [f"{folder}/.hidden"]
    assert data.glob(f"{folder}/*/*") == [f"{folder}/sub/x"]


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


@examples(100)
@given(st.sets(st.lists(parts, min_size=1, max_size=3).map("/".join), max_size=8), patterns)
def test_patterns_have_the_meaning_of_the_standard_librarys(paths, pattern):
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(paths):
            if not any(other.startswith(f"{path}/") for other in paths):
                put(f"{folder}/{path}", b"")
        wanted = f"{folder}/{'/'.join(pattern)}"
        files = sorted(path for path in glob.glob(wanted) if os.path.isfile(path))
        try:
            found = data.glob(wanted)
        except FileNotFoundError:
            found = []
        assert found == files


def test_files_of_this_host_are_returned_as_they_are(tmp_path, copies):
    put(f"{tmp_path}/data/a", b"1")
    for path in (f"{tmp_path}/data", f"{tmp_path}/data/*", f"file://{tmp_path}/data/a"):
        assert data.local_copy(path) == [tmp_path / "data" / "a"]
    assert not copies.exists()


def test_remote_files_are_copied_once_and_again_when_they_have_changed(remote, copies):
    put(f"{remote}/a", b"1")
    (first,) = data.local_copy(f"{remote}/a")
    assert first.is_relative_to(copies)
    assert data.local_copy(remote) == data.local_copy(f"{remote}/*") == [first]
    put(f"{remote}/a", b"2")
    (second,) = data.local_copy(f"{remote}/a")
    assert contents([first, second]) == [b"1", b"2"]


def test_copies_are_held_until_the_trial_ends(remote, trial, copies):
    for name in "abc":
        put(f"{remote}/{name}", b"1")
    with entered(TrialContext(params={}, folder=trial.folder, data=trial.data)):
        data.local_copy(remote)
        data.open(f"{remote}/a").close()
        assert len(open_below(copies)) == 4
    assert open_below(copies) == []


def test_copies_of_a_trial_that_raises_are_released_too(remote, trial, copies):
    put(f"{remote}/a", b"1")
    with (
        pytest.raises(KeyError),
        entered(TrialContext(params={}, folder=trial.folder, data=trial.data)),
    ):
        data.local_copy(remote)
        raise KeyError
    assert open_below(copies) == []


def test_a_trial_never_removes_its_own_copies(remote, tmp_path, copies):
    for name in "abcd":
        put(f"{remote}/{name}", name.encode() * 60)
    small = DataSettings(cache=CacheSettings(str(copies), 100))
    with entered(TrialContext(params={}, folder=tmp_path, data=small)):
        found = data.local_copy(remote)
        assert contents(found) == [name.encode() * 60 for name in "abcd"]
    with entered(TrialContext(params={}, folder=tmp_path, data=small)):
        put(f"{remote}/e", b"e" * 60)
        data.local_copy(f"{remote}/e")
    assert [path.exists() for path in found] == [False] * 4


def test_a_file_is_opened_as_bytes_or_as_text(folder, store):
    store("a", "ü\n".encode())
    with data.open(f"{folder}/a") as file:
        assert file.read() == "ü\n".encode()
    with data.open(f"{folder}/a", "r") as file:
        assert file.read() == "ü\n"
    with data.open(f"{folder}/a", "rt", encoding="latin-1") as file:
        assert file.read() == "Ã¼\n"


def test_a_file_whose_name_is_a_pattern_can_be_opened(folder, store):
    store("a[1].txt", b"1")
    with data.open(f"{folder}/a[1].txt") as file:
        assert file.read() == b"1"


@pytest.mark.parametrize("mode", ["w", "wb", "a", "r+", "x", "", None])
def test_data_is_only_read(folder, mode):
    with pytest.raises(InvalidArgument, match=r"mode: expected 'r' or 'rb', got .*data is read"):
        data.open(f"{folder}/a", mode)


def test_a_folder_cannot_be_opened(folder, store):
    store("sub/a", b"")
    with pytest.raises(IsADirectoryError, match="sub is a folder; name a file in it"):
        data.open(f"{folder}/sub")


def test_a_missing_file_cannot_be_opened(folder):
    with pytest.raises(FileNotFoundError, match="data/a"):
        data.open(f"{folder}/a")


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


def put_table(path, **columns):
    table = pyarrow.table(columns)
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    put(path, sink.getvalue().to_pybytes())


def test_parquet_files_are_one_table(folder, store):
    put_table(f"{folder}/part-1.parquet", x=[3], y=["c"])
    put_table(f"{folder}/part-0.parquet", x=[1, 2], y=["a", "b"])
    store("_SUCCESS", b"")
    assert data.parquet(folder).to_pydict() == {"x": [1, 2, 3], "y": ["a", "b", "c"]}
    assert data.parquet(f"{folder}/*-1.parquet", columns=("y",)).to_pydict() == {"y": ["c"]}


def test_names_of_folders_are_no_columns_of_a_parquet_file(folder):
    put_table(f"{folder}/year=2024/part-0.parquet", x=[1])
    assert data.parquet(f"{folder}/*/*.parquet").to_pydict() == {"x": [1]}


@pytest.fixture
def tensorflow():
    return pytest.importorskip("tensorflow")


def put_records(tensorflow, path, records, compression=None):
    with tempfile.NamedTemporaryFile() as file:
        with tensorflow.io.TFRecordWriter(file.name, compression) as writer:
            for record in records:
                writer.write(record)
        put(path, Path(file.name).read_bytes())


def records_of(dataset):
    return [record.numpy() for record in dataset]


def test_tfrecords_are_read_in_the_order_of_the_files(tensorflow, folder):
    put_records(tensorflow, f"{folder}/2.tfrecord", [b"c"])
    put_records(tensorflow, f"{folder}/1.tfrecord", [b"a", b"b"])
    assert records_of(data.tfrecords(folder)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_tfrecords_may_be_compressed(tensorflow, folder, compression):
    put_records(tensorflow, f"{folder}/a", [b"a", b"b"], compression)
    assert records_of(data.tfrecords(f"{folder}/a", compression=compression)) == [b"a", b"b"]


def test_files_of_records_may_have_names_that_are_patterns(tensorflow, folder):
    for name in ("a[1]", "a1"):
        put_records(tensorflow, f"{folder}/{name}", [name.encode()])
    assert records_of(data.tfrecords(folder)) == [b"a1", b"a[1]"]


def test_the_workers_share_the_records_and_copy_only_their_own(tensorflow, remote, tmp_path):
    for number in range(5):
        put_records(tensorflow, f"{remote}/{number}", [bytes([number])])
    found = []
    for index in range(2):
        copies = tmp_path / f"copies of {index}"
        own = DataSettings(cache=CacheSettings(str(copies)))
        with entered(TrialContext(params={}, folder=tmp_path, data=own)):
            records = records_of(data.tfrecords(remote, shards=2, index=index, seed=7))
        assert len([path for path in copies.rglob("?") if path.is_file()]) == len(records)
        found.append(records)
    assert [len(records) for records in found] == [3, 2]
    assert sorted(itertools.chain(*found)) == [bytes([number]) for number in range(5)]


names = st.lists(st.text(max_size=5), min_size=1, max_size=30, unique=True)
seeds = st.none() | st.integers()


@given(names, seeds, st.data())
def test_every_file_belongs_to_exactly_one_worker(files, seed, draw):
    shards = draw.draw(st.integers(1, len(files)))
    found = [data.shard(files, shards, index, seed) for index in range(shards)]
    assert sorted(itertools.chain(*found)) == sorted(files)
    sizes = [len(own) for own in found]
    assert max(sizes) - min(sizes) <= 1


@given(names, seeds)
def test_the_same_seed_gives_the_same_order(files, seed):
    before = list(files)
    assert data.shard(files, 1, 0, seed) == data.shard(tuple(files), 1, 0, seed)
    assert files == before


@given(names)
def test_without_a_seed_the_order_stays(files):
    assert data.shard(files, 1, 0) == files


def test_other_seeds_give_other_orders():
    files = [str(number) for number in range(20)]
    assert len({tuple(data.shard(files, 1, 0, seed)) for seed in range(10)}) > 1


BAD_SHARDS = [
    (3, 0, "shards: expected a number from 1 to 2, the number of files, got 3"),
    (0, 0, "shards: expected a number from 1 to 2, the number of files, got 0"),
    (-1, 0, "shards: expected a number from 1 to 2, the number of files, got -1"),
    (2, 2, "index: expected a number from 0 to 1, got 2"),
    (2, -1, "index: expected a number from 0 to 1, got -1"),
]


@pytest.mark.parametrize(("shards", "index", "message"), BAD_SHARDS)
def test_a_worker_without_a_file_is_refused(shards, index, message):
    with pytest.raises(InvalidArgument, match=f"^{message}$"):
        data.shard(["a", "b"], shards, index)


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


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def test_without_a_session_hdfs_needs_an_address():
    ended = run("from experiment import data; data.local_copy('hdfs:///data')")
    assert ended.returncode == 1
    message = ended.stderr.splitlines()[-1]
    assert "path: expected hdfs://host:8020/path, since fs.defaultFS is no HDFS" in message


def test_outside_of_a_trial_copies_are_held_until_the_process_ends(tmp_path):
    program = """
import os, fsspec
from experiment import data
fsspec.filesystem("memory").pipe_file("/a", b"1")
(copy,) = data.local_copy("memory:///a")
held = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
assert str(copy.parent) + ".lock" in held
print(copy)
"""
    ended = run(program, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.strip()).is_relative_to(tmp_path)


def put_rows(path, rows):
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    put(path, buffer.getvalue().to_pybytes())


def test_a_table_in_memory_has_the_rows_of_all_files(folder):
    put_rows(f"{folder}/a.parquet", [{"n": 1, "t": "x"}])
    put_rows(f"{folder}/b.parquet", [{"n": 2, "t": "y"}])
    assert data.in_memory(folder).to_pylist() == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]
    assert data.in_memory(folder, columns=["n"]).to_pylist() == [{"n": 1}, {"n": 2}]


def test_a_table_in_memory_is_decoded_once_and_mapped_by_all(folder, copies):
    put_rows(f"{folder}/a.parquet", [{"n": n} for n in range(1_000)])
    first, second = data.in_memory(folder), data.in_memory(folder)
    assert first.equals(second)
    (decoded,) = copies.glob("*/table.arrow")
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(decoded)) >= 2
    assert decoded.stat().st_nlink == 1


def test_a_table_in_memory_is_decoded_anew_when_a_file_changes(remote):
    put_rows(f"{remote}/a.parquet", [{"n": 1}])
    assert data.in_memory(f"{remote}/a.parquet").to_pylist() == [{"n": 1}]
    put_rows(f"{remote}/a.parquet", [{"n": 1}, {"n": 2}])
    assert data.in_memory(f"{remote}/a.parquet").to_pylist() == [{"n": 1}, {"n": 2}]


def put_examples(tensorflow, path, numbers, compression=None):
    """Write examples with the features `n`, a number, and `xy`, twice that number."""
    records = []
    for number in numbers:
        example = tensorflow.train.Example()
        example.features.feature["n"].int64_list.value.append(number)
        example.features.feature["xy"].float_list.value.extend([number, number])
        records.append(example.SerializeToString())
    put_records(tensorflow, path, records, compression)


@pytest.fixture
def features(tensorflow):
    return {
        "n": tensorflow.io.FixedLenFeature([], tensorflow.int64),
        "xy": tensorflow.io.FixedLenFeature([2], tensorflow.float32),
    }


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_examples_in_memory_are_columns_of_one_chunk(tensorflow, folder, features, compression):
    put_examples(tensorflow, f"{folder}/b", [3], compression)
    put_examples(tensorflow, f"{folder}/a", [1, 2], compression)
    table = data.in_memory(folder, features=features, compression=compression)
    assert table["n"].chunk(0).to_numpy().tolist() == [1, 2, 3]
    assert table["xy"].chunk(0).to_numpy_ndarray().tolist() == [[1, 1], [2, 2], [3, 3]]
    assert [column.num_chunks for column in table.columns] == [1, 1]


def test_examples_in_memory_are_parsed_once_and_mapped(tensorflow, folder, features, copies):
    put_examples(tensorflow, f"{folder}/a", range(1_000))
    tables = [data.in_memory(folder, features=features) for _ in range(2)]
    arrays = [table["xy"].chunk(0).to_numpy_ndarray() for table in tables]
    (decoded,) = copies.glob("*/table.arrow")
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [line[0].split("-") for line in maps if line[-1] == str(decoded)]
    for array in arrays:
        assert not array.flags.owndata
        assert not array.flags.writeable
        address = array.ctypes.data
        assert any(int(start, 16) <= address < int(end, 16) for start, end in spans)


def test_examples_are_parsed_anew_for_other_features_columns_and_files(
    tensorflow, remote, features, copies
):
    def count():
        return len(list(copies.glob("*/table.arrow")))

    put_examples(tensorflow, f"{remote}/a", [1])
    data.in_memory(remote, features=features)
    data.in_memory(remote, features={**features, "n": tensorflow.io.FixedLenFeature([1], "int64")})
    assert count() == 2
    table = data.in_memory(remote, ["xy"], features=features)
    assert (table.column_names, count()) == (["xy"], 3)
    put_examples(tensorflow, f"{remote}/a", [1, 2])
    assert data.in_memory(remote, features=features).num_rows == 2
    data.in_memory(remote, features=features)
    assert count() == 4


def test_a_file_without_records_has_columns_without_rows(tensorflow, folder, features):
    put_records(tensorflow, f"{folder}/a", [])
    table = data.in_memory(folder, features=features)
    assert table["n"].chunk(0).to_numpy().shape == (0,)
    assert table["xy"].chunk(0).to_numpy_ndarray().shape == (0, 2)


def test_a_record_without_a_feature_is_an_error_and_nothing_is_kept(
    tensorflow, remote, features, copies
):
    put_examples(tensorflow, f"{remote}/a", [1])
    missing = {**features, "label": tensorflow.io.FixedLenFeature([], tensorflow.int64)}
    with pytest.raises(ValueError, match=r"^memory://bucket/a: Feature: label .* is required"):
        data.in_memory(remote, features=missing)
    assert not list(copies.glob("*/table.arrow"))


def test_bad_arguments_of_a_table_in_memory_are_refused(folder, features):
    for columns in ("label", ["n", "label"]):
        with pytest.raises(InvalidArgument, match="columns: expected some of"):
            data.in_memory(folder, columns, features=features)
    with pytest.raises(InvalidArgument, match="compression: expected None, or for features 'GZIP'"):
        data.in_memory(folder, features=features, compression="gzip")
    with pytest.raises(InvalidArgument, match="compression: expected None"):
        data.in_memory(folder, compression="GZIP")


@pytest.mark.parametrize("name", ["TFRecord", "csv", None, ["parquet"]])
def test_a_format_is_refused_before_spark_is_touched(name):
    with pytest.raises(InvalidArgument, match="^format: expected 'parquet' or 'tfrecord', got "):
        data.from_dataframe(object(), format=name)


ROWS = [
    {
        "n": n,
        "flag": n % 3 == 0,
        "text": f"row ü {n}",
        "xy": [n / 2, -n / 4],
        "maybe": n % 2 or None,
    }
    for n in range(100)
]
ROW = "n long, flag boolean, text string, xy array<double>, maybe int"


def test_a_dataframe_survives_its_round_trip_through_tfrecords(tensorflow, spark, tmp_path):
    frame = spark.createDataFrame(ROWS, ROW).repartition(3)
    path = data.from_dataframe(frame, str(tmp_path / "ü table"), format="tfrecord")
    assert path == str(tmp_path / "ü table")
    names = [f"part-{number:05d}.tfrecord" for number in range(3)]
    assert data.listdir(path) == ["_SUCCESS", *names]
    fixed = tensorflow.io.FixedLenFeature
    features = {
        "n": fixed([], tensorflow.int64),
        "flag": fixed([], tensorflow.int64),
        "text": fixed([], tensorflow.string),
        "xy": fixed([2], tensorflow.float32),
        "maybe": fixed([], tensorflow.int64, -1),
    }
    records = list(data.tfrecords(path).as_numpy_iterator())
    parsed = tensorflow.io.parse_example(records, features)
    found = {name: values.numpy().tolist() for name, values in parsed.items()}
    rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    assert sorted(rows, key=lambda row: row["n"]) == [
        {**row, "text": row["text"].encode(), "maybe": row["maybe"] or -1} for row in ROWS
    ]
    table = data.in_memory(path, features=features).to_pydict()
    assert table == found


def test_spark_leaves_a_file_per_partition_with_rows_but_always_one(spark, tensorflow, tmp_path):
    few = spark.range(2, numPartitions=4)
    path = data.from_dataframe(few, str(tmp_path / "few"), format="tfrecord")
    assert data.listdir(path) == [
        "_SUCCESS",
        "part-00000.tfrecord",
        "part-00001.tfrecord",
        "part-00003.tfrecord",
    ]
    path = data.from_dataframe(few.where("id < 0"), str(tmp_path / "none"), format="tfrecord")
    assert data.listdir(path) == ["_SUCCESS", "part-00000.tfrecord"]
    assert records_of(data.tfrecords(path)) == []


def test_a_folder_that_has_something_in_it_is_not_written_to(spark, tmp_path):
    put(f"{tmp_path}/full/a", b"1")
    for path in ("full", "full/a"):
        with pytest.raises(FileExistsError, match="is not an empty folder; remove it or name"):
            data.from_dataframe(spark.range(1), f"{tmp_path}/{path}", format="tfrecord")
    assert data.listdir(f"{tmp_path}/full") == ["a"]


def test_a_column_that_examples_lack_is_refused_before_anything_is_written(spark, tmp_path):
    frame = spark.sql("select 1 as x, current_timestamp() as seen")
    with pytest.raises(InvalidArgument, match="column 'seen': expected .*, got timestamp; cast it"):
        data.from_dataframe(frame, str(tmp_path / "new"), format="tfrecord")
    assert not (tmp_path / "new").exists()


def test_tfrecords_go_to_no_other_store(spark):
    with pytest.raises(InvalidArgument, match="path: expected a path or hdfs://host:8020/path"):
        data.from_dataframe(spark.range(1), "memory://bucket/new", format="tfrecord")


@pytest.mark.slow
def test_retried_tasks_double_no_rows(sparks, tensorflow, tmp_path):
    def lost_once(batches):
        from pathlib import Path

        from pyspark import TaskContext

        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if TaskContext.get().attemptNumber() == 0:
                Path(mark).touch()
                raise RuntimeError("lost")
            yield batch.slice(batch.num_rows // 2)

    mark = tmp_path / "lost"
    spark = sparks.get("local[2,2]")
    spark.sparkContext.pythonExec = sys.executable
    frame = spark.range(100, numPartitions=2).mapInArrow(lost_once, "id long")
    path = data.from_dataframe(frame, str(tmp_path / "new"), format="tfrecord")
    assert mark.exists()
    assert data.listdir(path) == ["_SUCCESS", "part-00000.tfrecord", "part-00001.tfrecord"]
    features = {"id": tensorflow.io.FixedLenFeature([], tensorflow.int64)}
    assert data.in_memory(path, features=features)["id"].to_pylist() == list(range(100))


@pytest.mark.slow
def test_a_job_that_fails_leaves_nothing_and_may_be_repeated(spark, tensorflow, tmp_path):
    frame = spark.sql("select cast(raise_error('lost') as int) as x")
    with pytest.raises(Exception, match="lost"):
        data.from_dataframe(frame, str(tmp_path / "new"), format="tfrecord")
    assert data.listdir(f"{tmp_path}/new") == []
    data.from_dataframe(spark.range(1), str(tmp_path / "new"), format="tfrecord")


def as_tfrecords(records):
    from io import BytesIO

    from tensorboard.summary.writer.record_writer import RecordWriter

    file = BytesIO()
    writer = RecordWriter(file)
    for record in records:
        writer.write(record)
    return file.getvalue()


@given(
    files=st.lists(st.lists(st.binary(max_size=50), max_size=20), min_size=1, max_size=3),
    size=st.integers(1, 30),
    step=st.sampled_from([1, 7, 8 << 20]),
)
@examples(50)
def test_streamed_records_are_the_records_in_their_order(files, size, step):
    import spark_jobs.data.reading

    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    for number, records in enumerate(files):
        put(f"memory://bucket/{number}", as_tfrecords(records))
    before, spark_jobs.data.reading._STREAM = spark_jobs.data.reading._STREAM, step
    try:
        batches = list(data.record_batches("memory://bucket/*", size))
    finally:
        spark_jobs.data.reading._STREAM = before
    assert [record for batch in batches for record in batch] == list(itertools.chain(*files))
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(1 <= len(batch) <= size for batch in batches)


@pytest.mark.parametrize("cut", [1, 5, 12, 20])
def test_a_truncated_file_of_records_is_an_error(remote, cut):
    put(f"{remote}/a", as_tfrecords([b"0123456789"])[:-cut])
    with pytest.raises(OSError, match="no TFRecord file, or a truncated one"):
        list(data.record_batches(f"{remote}/a"))


def test_streamed_records_need_a_size(remote):
    with pytest.raises(InvalidArgument, match="size"):
        next(data.record_batches(f"{remote}/a", 0))
