import fcntl
from pathlib import Path

import pyarrow
import pytest

from experiment import data
from search.errors import InvalidArgument
from tests.spark_jobs.data.files import put_examples, put_records, put_rows, put_table

pytestmark = pytest.mark.usefixtures("inside")


def test_parquet_files_are_one_table(folder, store):
    put_table(f"{folder}/part-1.parquet", x=[3], y=["c"])
    put_table(f"{folder}/part-0.parquet", x=[1, 2], y=["a", "b"])
    store("_SUCCESS", b"")
    assert data.parquet(folder).to_pydict() == {"x": [1, 2, 3], "y": ["a", "b", "c"]}
    assert data.parquet(f"{folder}/*-1.parquet", columns=("y",)).to_pydict() == {"y": ["c"]}


@pytest.mark.parametrize("read", [data.parquet, data.in_memory])
def test_one_name_is_no_list_of_columns(folder, read):
    with pytest.raises(InvalidArgument) as caught:
        read(folder, columns="label")
    assert str(caught.value) == "columns: expected a list of names, got 'label'; pass ['label']"


def test_names_of_folders_are_no_columns_of_a_parquet_file(folder):
    put_table(f"{folder}/year=2024/part-0.parquet", x=[1])
    assert data.parquet(f"{folder}/*/*.parquet").to_pydict() == {"x": [1]}


def test_a_table_in_memory_has_the_rows_of_all_files(folder):
    put_rows(f"{folder}/a.parquet", [{"n": 1, "t": "x"}])
    put_rows(f"{folder}/b.parquet", [{"n": 2, "t": "y"}])
    assert data.in_memory(folder).to_pylist() == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]
    assert data.in_memory(folder, columns=["n"]).to_pylist() == [{"n": 1}, {"n": 2}]


def test_a_table_in_memory_may_have_other_categories_in_each_file(folder):
    for name in ("a", "b"):
        put_table(f"{folder}/{name}.parquet", c=pyarrow.array([name]).dictionary_encode())
    table = data.in_memory(folder)
    assert table["c"].to_pylist() == ["a", "b"]
    assert table.schema == data.parquet(folder).schema


def test_a_table_in_memory_is_decoded_once_and_mapped_by_all(folder, copies):
    put_rows(f"{folder}/a.parquet", [{"n": n} for n in range(1_000)])
    first, second = data.in_memory(folder), data.in_memory(folder)
    assert first.equals(second)
    (decoded,) = copies.glob("*/table.arrow")
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(decoded)) >= 2
    assert decoded.stat().st_nlink == 1


def test_the_files_of_a_table_in_memory_are_released_once_it_is_there(remote, copies):
    for name in "ab":
        put_rows(f"{remote}/{name}.parquet", [{"n": 1}])
    data.local_copy(f"{remote}/a.parquet")
    data.in_memory(remote)
    (kept,) = copies.glob("*/a.parquet")
    (decoded,) = copies.glob("*/table.arrow")
    (other,) = copies.glob("*/b.parquet")
    assert not may_be_removed(kept)
    assert not may_be_removed(decoded)
    assert may_be_removed(other)


def may_be_removed(copy):
    """Return whether nobody holds the lock of a copy."""
    with open(f"{copy.parent}.lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_table_in_memory_is_decoded_anew_when_a_file_changes(remote):
    put_rows(f"{remote}/a.parquet", [{"n": 1}])
    assert data.in_memory(f"{remote}/a.parquet").to_pylist() == [{"n": 1}]
    put_rows(f"{remote}/a.parquet", [{"n": 1}, {"n": 2}])
    assert data.in_memory(f"{remote}/a.parquet").to_pylist() == [{"n": 1}, {"n": 2}]


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
