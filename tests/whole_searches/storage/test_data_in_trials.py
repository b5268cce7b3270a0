"""Train functions that read their data from a real HDFS."""

from __future__ import annotations

import getpass
import random

import hdfs as hdfs_package
import pytest

import experiment

SIZE = 4 << 20
ISOLATIONS = pytest.mark.parametrize(
    "isolation", ["process", pytest.param("none", marks=pytest.mark.slow)]
)


@pytest.fixture
def digits(hdfs):
    """Three files on HDFS; the value is their bytes by name."""
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    data = {f"part-{n}.bin": random.Random(n).randbytes(SIZE) for n in range(3)}
    for name, content in data.items():
        client.write(f"/digits/{name}", data=content, overwrite=True)
    client._session.close()
    return data


@pytest.fixture
def hadoop(hdfs, tmp_path):
    """Spark's settings for the HDFS and the test's own cache."""
    settings = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    return {**settings, "spark.experiment.cache.folder": str(tmp_path / "cache")}


def bytes_read(hdfs):
    """Return the sum of the counters of both DataNodes once it stays the same."""
    last = None
    while (count := sum(hdfs.bytes_read(number) for number in range(2))) != last:
        last = count
    return count


def checksums(trial):
    import zlib

    import experiment

    return float(
        sum(zlib.crc32(p.read_bytes()) for p in experiment.data.local_copy("hdfs:///digits/*"))
    )


@ISOLATIONS
def test_all_trials_of_a_host_read_a_file_from_hdfs_once(
    sparks, hdfs, hadoop, digits, logdir, isolation
):
    import zlib

    spark = sparks.get("local[2]", **hadoop)
    before = bytes_read(hdfs)
    result = experiment.launch(
        spark, checksums, {"trial": range(8)}, logdir=logdir, isolation=isolation, preload=()
    )
    total = float(sum(zlib.crc32(content) for content in digits.values()))
    assert [trial.value for trial in result.trials] == [total] * 8, result.failed
    assert 3 * SIZE <= bytes_read(hdfs) - before <= 1.05 * 3 * SIZE  # with checksums


def test_the_driver_reads_with_the_settings_of_its_session(sparks, hdfs, hadoop, digits):
    spark = sparks.get("local[2]", **hadoop)
    assert experiment.data.listdir(f"{hdfs.uri}/digits") == sorted(digits)
    assert experiment.data.exists("hdfs:///digits")
    assert not experiment.data.exists("hdfs:///nothing")
    assert experiment.data.glob("hdfs:///digits/*-[01].bin") == [
        "hdfs:///digits/part-0.bin",
        "hdfs:///digits/part-1.bin",
    ]
    with experiment.data.open("hdfs:///digits/part-2.bin") as file:
        assert file.read() == digits["part-2.bin"]
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "number int, name string")
    frame.write.mode("overwrite").parquet(f"{hdfs.uri}/table")
    rows = experiment.data.parquet(f"{hdfs.uri}/table").sort_by("number").to_pylist()
    assert rows == [{"number": 1, "name": "a"}, {"number": 2, "name": "b"}]


def test_tensorflow_reads_records_on_hdfs(sparks, hdfs, hadoop, logdir, tmp_path):
    def train(shard):
        import tensorflow as tf

        import experiment

        records = experiment.data.tfrecords("hdfs:///records/*", shards=2, index=shard)
        assert isinstance(records, tf.data.Dataset)
        return float(sum(int(record) for record in records.as_numpy_iterator()))

    from tensorboard.summary.writer.record_writer import RecordWriter

    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    for number in range(4):
        with open(tmp_path / "records", "wb") as file:
            RecordWriter(file).write(str(10**number).encode())
        content = (tmp_path / "records").read_bytes()
        client.write(f"/records/{number}.tfrecord", data=content, overwrite=True)
    client._session.close()
    spark = sparks.get("local[2]", **hadoop)
    result = experiment.launch(spark, train, {"shard": [0, 1]}, logdir=logdir, parallelism=1)
    assert [trial.value for trial in result.trials] == [101.0, 1010.0], result.failed


def test_a_missing_file_fails_the_trial_with_a_sentence(sparks, hdfs, hadoop, logdir):
    def train(x):
        import experiment

        experiment.data.local_copy("hdfs:///nowhere/*.tfrecord")
        return x

    spark = sparks.get("local[2]", **hadoop)
    with pytest.raises(experiment.SearchFailed, match="FileNotFoundError") as caught:
        experiment.launch(spark, train, {"x": [1]}, logdir=logdir, preload=())
    (trial,) = caught.value.result.failed
    assert "hdfs:///nowhere" in trial.error.message
    assert getpass.getuser() in trial.error.message


ROWS = [{"number": n, "name": f"row {n}"} for n in range(100)]


def sum_of(path):
    import experiment

    table = experiment.data.in_memory(path, columns=["number"])
    return float(sum(table.column("number").to_pylist()))


def test_trials_read_a_spark_table_from_hdfs(sparks, hdfs, hadoop, logdir):
    spark = sparks.get("local[2]", **hadoop)
    path = experiment.data.from_dataframe(spark.createDataFrame(ROWS))
    assert path.startswith(f"{hdfs.uri}/user/{getpass.getuser()}/experiments/data/")
    result = experiment.launch(spark, sum_of, {"path": [path]}, logdir=logdir, preload=())
    assert result.best.value == 4950.0


@pytest.mark.slow
@pytest.mark.contract
def test_trials_read_a_spark_table_from_a_folder(spark, logdir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = spark.createDataFrame(ROWS)
    by_default = experiment.data.from_dataframe(frame)
    assert by_default.startswith(f"{tmp_path}/experiments/data/")
    given = experiment.data.from_dataframe(frame, str(tmp_path / "a table"))
    assert given == str(tmp_path / "a table")
    result = experiment.launch(
        spark, sum_of, {"path": [by_default, given]}, logdir=logdir, isolation="none"
    )
    assert [trial.value for trial in result.trials] == [4950.0, 4950.0]


@pytest.mark.slow
def test_trials_read_sparks_examples_from_hdfs(sparks, hdfs, hadoop, logdir):
    def count(path):
        import experiment

        return float(sum(1 for _ in experiment.data.tfrecords(path)))

    spark = sparks.get("local[2]", **hadoop)
    path = experiment.data.from_dataframe(
        spark.createDataFrame(ROWS).repartition(4), format="tfrecord"
    )
    assert path.startswith(f"{hdfs.uri}/user/{getpass.getuser()}/experiments/data/")
    names = [f"part-{number:05d}.tfrecord" for number in range(4)]
    assert experiment.data.listdir(path) == ["_SUCCESS", *names]
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        experiment.data.from_dataframe(spark.range(1), path, format="tfrecord")
    result = experiment.launch(spark, count, {"path": [path]}, logdir=logdir)
    assert result.best.value == 100.0


@pytest.mark.slow
def test_executors_write_examples_to_hdfs(sparks, hdfs, hadoop):
    spark = sparks.get("local-cluster[2,1,1024]", **hadoop)
    path = f"hdfs:///examples/{random.SystemRandom().getrandbits(32)}"
    experiment.data.from_dataframe(spark.range(10, numPartitions=2), path, format="tfrecord")
    features = {"id": tf_feature([], "int64")}
    found = experiment.data.in_memory(path, features=features)
    assert found["id"].to_pylist() == list(range(10))


def tf_feature(shape, dtype):
    import tensorflow as tf

    return tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))


SIDE = 512
IMAGES = 32  # 1 MiB each


@pytest.fixture
def images(hdfs, tmp_path):
    """Examples of large images on HDFS; the value is their pattern and the sum of all pixels."""
    import numpy as np
    import tensorflow as tf

    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=60)
    pixels = np.random.default_rng(0).integers(0, 9, (IMAGES, SIDE * SIDE)).astype(np.float32)
    with tf.io.TFRecordWriter(str(tmp_path / "images")) as writer:
        for image in pixels:
            example = tf.train.Example()
            example.features.feature["image"].float_list.value.extend(image.tolist())
            writer.write(example.SerializeToString())
    client.upload("/images.tfrecord", str(tmp_path / "images"), overwrite=True)
    client._session.close()
    return "hdfs:///images.tfrecord", float(pixels.sum(dtype="float64"))


def read_twice(path, trial):
    """Read all pixels twice; return their sum and the private memory of the second reading."""
    import time
    from pathlib import Path

    import tensorflow as tf

    import experiment

    def own_bytes():
        """Return the memory without a file; psutil's uss includes unshared pages of files."""
        lines = Path("/proc/self/status").read_text().splitlines()
        (found,) = [line.split()[1] for line in lines if line.startswith("RssAnon")]
        return 1024 * int(found)

    def pixels():
        table = experiment.data.in_memory(path, features=features)
        return table["image"].chunk(0).to_numpy_ndarray()

    features = {"image": tf.io.FixedLenFeature([SIDE, SIDE], tf.float32)}
    first = pixels()
    time.sleep(0.5)  # so that trials overlap
    before = own_bytes()
    second = pixels()
    total = float(second.sum(dtype="float64"))
    assert first.shape == second.shape == (IMAGES, SIDE, SIDE)
    assert not second.flags.owndata
    assert int(tf.reduce_sum(tf.constant([1, 2]))) == 3  # TensorFlow still works
    return {"total": total, "own": own_bytes() - before}


@pytest.mark.slow
@ISOLATIONS
def test_examples_are_parsed_once_and_shared_by_all_trials_of_a_host(
    sparks, hdfs, hadoop, images, logdir, tmp_path, isolation
):
    path, total = images
    spark = sparks.get("local[2]", **hadoop)
    before = bytes_read(hdfs)
    result = experiment.launch(
        spark,
        read_twice,
        {"path": [path], "trial": range(4)},
        logdir=logdir,
        isolation=isolation,
        optimization_key="total",
    )
    assert [trial.value for trial in result.trials] == [total] * 4, result.failed
    size = IMAGES * SIDE * SIDE * 4
    assert max(trial.metrics["own"] for trial in result.trials) < size / 4
    assert size <= bytes_read(hdfs) - before <= 1.05 * size
    (decoded,) = (tmp_path / "cache").glob("*/table.arrow")
    assert size <= decoded.stat().st_size <= 1.01 * size
