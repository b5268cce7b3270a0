import itertools
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment import data
from search.errors import InvalidArgument
from spark_jobs.data import finding
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.storage.stores import files_at
from spark_jobs.trial.context import DataSettings, TrialContext, entered
from tests.properties import examples
from tests.spark_jobs.data.files import put, put_records, records_of

pytestmark = pytest.mark.usefixtures("inside")


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
    import spark_jobs.data.records

    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    for number, records in enumerate(files):
        put(f"memory://bucket/{number}", as_tfrecords(records))
    before, spark_jobs.data.records._STREAM = spark_jobs.data.records._STREAM, step
    try:
        batches = list(data.record_batches("memory://bucket/*", size))
    finally:
        spark_jobs.data.records._STREAM = before
    assert [record for batch in batches for record in batch] == list(itertools.chain(*files))
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(1 <= len(batch) <= size for batch in batches)


def test_another_thread_streams_records_with_the_settings_of_the_call(
    remote, tmp_path, monkeypatch
):
    def note(location, hadoop):
        used.append(hadoop)
        return files_at(location, hadoop)

    used, own = [], DataSettings(HadoopSettings(user="own"))
    monkeypatch.setattr(finding, "files_at", note)
    put(f"{remote}/a", as_tfrecords([b"a"]))
    with entered(TrialContext(params={}, folder=tmp_path, data=own)):
        batches = data.record_batches(f"{remote}/a")
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(list, batches).result() == [[b"a"]]
    assert used == [own.hadoop]


@pytest.mark.parametrize("cut", [1, 5, 12, 20])
def test_a_truncated_file_of_records_is_an_error(remote, cut):
    put(f"{remote}/a", as_tfrecords([b"0123456789"])[:-cut])
    with pytest.raises(OSError, match="no TFRecord file, or a truncated one"):
        list(data.record_batches(f"{remote}/a"))


def test_a_file_of_records_that_is_replaced_while_it_is_streamed_is_an_error(remote, monkeypatch):
    monkeypatch.setattr("spark_jobs.data.records._STREAM", 100)
    put(f"{remote}/a", as_tfrecords([b"a" * 10] * 100))
    batches = data.record_batches(f"{remote}/a", 1)
    assert next(batches) == [b"a" * 10]
    put(f"{remote}/a", as_tfrecords([b"b" * 10] * 100))
    with pytest.raises(OSError, match="^memory://bucket/a: it was changed meanwhile"):
        list(batches)


def test_streamed_records_need_a_size(remote):
    with pytest.raises(InvalidArgument, match="size"):
        next(data.record_batches(f"{remote}/a", 0))
