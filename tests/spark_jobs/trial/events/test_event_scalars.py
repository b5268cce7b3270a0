import math

import pytest
from tensorboard.compat.proto import (
    event_pb2,
    summary_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorboard.summary.writer.record_writer import RecordWriter

from search.trial import Outcome
from spark_jobs.slot.trial_events import is_curve, write_outcome
from spark_jobs.trial.events.event_file import EventFile
from spark_jobs.trial.events.event_scalars import scalars_in


def shape_of(size):
    return tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size)])


def points(path):
    return [(point.tag, point.step, point.value) for point in scalars_in(path.read_bytes())]


@pytest.fixture
def file(tmp_path):
    with EventFile(tmp_path) as events:
        for step in range(3):
            events.scalars({"loss": 1.0 / (step + 1), "accuracy": 0.5}, step)
    return events.path


def test_the_points_are_those_that_were_written(file):
    expected = [
        (tag, step, pytest.approx(value))
        for step in range(3)
        for tag, value in (("loss", 1 / (step + 1)), ("accuracy", 0.5))
    ]
    assert points(file) == expected


def test_infinite_values_are_kept(tmp_path):
    with EventFile(tmp_path) as events:
        events.scalars({"loss": math.inf}, 0)
    assert points(events.path) == [("loss", 0, math.inf)]


def test_texts_histograms_and_rows_of_the_table_are_no_points(tmp_path):
    with EventFile(tmp_path) as events:
        events.text("about", "text")
        events.histogram("weights", [1.0, 2.0], 0, buckets=2)
        events.hparams_start({"x": 1.0}, "row")
        write_outcome(events, Outcome(0, "finished", 0.5, "accuracy", {"accuracy": 0.5}))
    assert points(events.path) == [("objective/accuracy", 0, 0.5)]
    assert not is_curve("objective/accuracy")


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_an_incomplete_record_ends_the_points(file, cut):
    whole = points(file)
    file.write_bytes(file.read_bytes()[:-cut])
    some = points(file)
    assert some == whole[: len(some)]
    assert len(some) < len(whole)


def test_bytes_that_are_no_events_have_no_points():
    assert list(scalars_in(b"")) == []
    assert list(scalars_in(b"nonsense" * 100)) == []
    assert list(scalars_in((5).to_bytes(8, "little") + b"1234" + b"\xff" * 9)) == []


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": types_pb2.DT_FLOAT, "tensor_content": b"abc"},
        {"dtype": types_pb2.DT_INT32, "int_val": [1], "tensor_shape": shape_of(10**15)},
    ],
    ids=["cut", "huge"],
)
def test_a_tensor_that_is_no_number_is_no_point(tmp_path, tensor):
    value = summary_pb2.Summary.Value(tag="odd", tensor=tensor_pb2.TensorProto(**tensor))
    event = event_pb2.Event(step=1, summary=summary_pb2.Summary(value=[value]))
    path = tmp_path / "events"
    with path.open("wb") as file:
        RecordWriter(file).write(event.SerializeToString())
    assert points(path) == []


def test_points_of_tensorflow_are_read(tmp_path):
    tf = pytest.importorskip("tensorflow")
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        tf.summary.scalar("mine", 0.25, step=7)
        tf.summary.scalar("integer", 3, step=8)
        tf.summary.histogram("many", [1.0, 2.0], step=8)
        tf.summary.flush()
    [path] = tmp_path.iterdir()
    assert points(path) == [("mine", 7, 0.25), ("integer", 8, 3.0)]
