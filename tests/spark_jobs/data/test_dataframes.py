import sys
from pathlib import Path

import pytest

from experiment import data
from search.errors import InvalidArgument
from tests.spark_jobs.data.files import put, records_of

pytestmark = pytest.mark.usefixtures("inside")


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


@pytest.mark.slow
@pytest.mark.contract
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
