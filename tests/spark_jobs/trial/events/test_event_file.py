from __future__ import annotations

import contextlib
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.util import tensor_util

from spark_jobs.trial.events.event_file import EventFile
from tests.properties import examples
from tests.spark_jobs.trial.events.reading import (
    histograms,
    hparams_data,
    scalars,
    table_config,
    values,
)


def test_scalars_arrive_with_their_steps(tmp_path):
    with EventFile(tmp_path) as events:
        events.scalars({"loss": 0.5, "accuracy": 0.25}, step=0)
        events.scalars({"loss": float("nan")}, step=1)
    read = scalars(tmp_path)
    assert read["accuracy"] == [(0, 0.25)]
    assert [step for step, _ in read["loss"]] == [0, 1]


def test_a_file_that_could_not_be_closed_is_opened_again(tmp_path):
    """As of NFS, which may say only then that the disk is full."""
    events = EventFile(tmp_path)
    events.scalars({"loss": 0.5}, step=0)
    os.close(events._file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        events.close()
    events.scalars({"loss": 0.25}, step=1)
    events.close()
    assert scalars(tmp_path) == {"loss": [(0, 0.5), (1, 0.25)]}


def test_several_writers_share_a_file(tmp_path):
    first, second = EventFile(tmp_path), EventFile(tmp_path)
    for step in range(10):
        first.scalars({"a": step}, step)
        second.scalars({"b": step}, step)
    first.close()
    first.scalars({"a": 10}, 10)  # opens again
    first.close()
    second.close()
    assert len(list(tmp_path.iterdir())) == 1
    assert {tag: len(points) for tag, points in scalars(tmp_path).items()} == {"a": 11, "b": 10}


@contextlib.contextmanager
def room_for(size: int):
    """Let this process write no file beyond a size, as on a disk without more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_record_without_room_on_the_disk_hides_no_later_one(tmp_path):
    with EventFile(tmp_path) as events:
        with room_for(10), pytest.raises(OSError, match="No space left on device"):
            events.scalars({"loss": 0.5}, 0)
        events.scalars({"loss": 0.25}, 1)
        size = events.path.stat().st_size
        with room_for(size + 10), pytest.raises(OSError, match="No space left on device"):
            events.scalars({"loss": 0.125}, 2)
        assert events.path.stat().st_size == size
        events.scalars({"loss": 0.0625}, 3)
    assert scalars(tmp_path) == {"loss": [(1, 0.25), (3, 0.0625)]}


def test_nothing_is_made_before_the_first_record(tmp_path):
    with EventFile(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_row_of_the_hparams_table(tmp_path):
    with EventFile(tmp_path) as events:
        events.hparams_start({"rate": 0.5, "units": 3, "kind": "a", "flag": True}, "000001")
        events.hparams_end("failed")
    start = hparams_data(tmp_path, metadata.SESSION_START_INFO_TAG)
    assert start.hparams["rate"].number_value == 0.5
    assert start.hparams["units"].number_value == 3
    assert start.hparams["kind"].string_value == "a"
    assert start.hparams["flag"].bool_value is True


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("finished", api_pb2.STATUS_SUCCESS),
        ("stopped", api_pb2.STATUS_SUCCESS),
        ("failed", api_pb2.STATUS_FAILURE),
        ("cancelled", api_pb2.STATUS_FAILURE),
    ],
)
def test_the_status_of_a_row(tmp_path, status, shown):
    with EventFile(tmp_path) as events:
        events.hparams_end(status)
    (content,) = [
        value.metadata.plugin_data.content
        for tag, _, value in values(tmp_path)
        if tag == metadata.SESSION_END_INFO_TAG
    ]
    assert metadata.parse_session_end_info_plugin_data(content).status == shown


def test_the_columns_of_the_table(tmp_path):
    with EventFile(tmp_path) as events:
        events.hparams_config(
            [hparams.HParam("rate", hparams.RealInterval(0.0, 1.0))],
            [hparams.Metric("objective/accuracy", display_name="accuracy ↑")],
        )
    config = table_config(tmp_path)
    assert [info.name for info in config.hparam_infos] == ["rate"]
    assert [info.display_name for info in config.metric_infos] == ["accuracy ↑"]
    assert config.hparam_infos[0].domain_interval.max_value == 1.0


def test_the_columns_say_which_hyperparameters_differ(tmp_path):
    columns = [hparams.HParam(name) for name in ("rate", "units", "kind")]
    with EventFile(tmp_path) as events:
        events.hparams_config(columns, [hparams.Metric("a")], fixed=("units", "other"))
    infos = table_config(tmp_path).hparam_infos
    assert {info.name: info.differs for info in infos} == {
        "rate": True,
        "units": False,
        "kind": True,
    }


def test_all_hyperparameters_differ_by_default(tmp_path):
    with EventFile(tmp_path) as events:
        events.hparams_config([hparams.HParam("rate"), hparams.HParam("units")], [])
    assert [info.differs for info in table_config(tmp_path).hparam_infos] == [True, True]


def test_a_histogram_counts_every_value_between_its_edges(tmp_path):
    with EventFile(tmp_path) as events:
        events.histogram("x", [0.0, 1.0, 1.5, 4.0], 3, buckets=4)
        events.histogram("x", [2, 2, 2], 4, buckets=4)
        events.histogram("y", [], 0, buckets=4)
    read = histograms(tmp_path)
    (step, rows), (last, same) = read["x"]
    assert (step, last) == (3, 4)
    assert rows.tolist() == [[0, 1, 1], [1, 2, 2], [2, 3, 0], [3, 4, 1]]
    assert same[-1].tolist() == [2, 2, 3]
    assert read["y"][0][1].shape == (4, 3)


def test_a_histogram_has_a_description(tmp_path):
    with EventFile(tmp_path) as events:
        events.histogram("x", [1.0], 0, buckets=2, description="log10")
        events.histogram("y", [1.0], 0, buckets=2)
    described = {tag: value.metadata.summary_description for tag, _, value in values(tmp_path)}
    assert described == {"x": "log10", "y": ""}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
@example([-sys.float_info.max, 0.0, sys.float_info.max])
@example([0.0, 5e-324])
@example([5e-324, 1e-323, 1.0])
@example([2.0**53, -(2.0**53)])
@examples(60)
def test_a_histogram_of_any_finite_values_has_finite_edges(data):
    with tempfile.TemporaryDirectory() as folder:
        with EventFile(Path(folder)) as events:
            events.histogram("x", data, 0, buckets=5)
        [(_, rows)] = histograms(Path(folder))["x"]
    assert rows.shape == (5, 3)
    assert np.isfinite(rows).all()
    assert (rows[:, 0] <= rows[:, 1]).all()


def test_a_scalar_that_is_too_large_for_the_file_is_infinite(tmp_path):
    with EventFile(tmp_path) as events:
        events.scalars({"a": 1e300, "b": -1e300, "c": 1e-300}, 0)
    assert scalars(tmp_path) == {"a": [(0, math.inf)], "b": [(0, -math.inf)], "c": [(0, 0.0)]}


def test_a_layout_survives_its_round_trip(tmp_path):
    lines = layout_pb2.MultilineChartContent(tag=["^loss$"])
    chart = layout_pb2.Chart(title="Verluste ü", multiline=lines)
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="all", chart=[chart])])
    with EventFile(tmp_path) as events:
        events.layout(layout)
    [(tag, step, value)] = values(tmp_path)
    assert (tag, step) == (layout_metadata.CONFIG_SUMMARY_TAG, 0)
    assert value.metadata.plugin_data.plugin_name == layout_metadata.PLUGIN_NAME
    content = tensor_util.make_ndarray(value.tensor).item()
    assert layout_pb2.Layout.FromString(content) == layout


def test_histograms_and_layouts_are_written_without_tensorflow(tmp_path):
    program = """
import sys
from pathlib import Path
from tensorboard.plugins.custom_scalar import layout_pb2
from spark_jobs.trial.events.event_file import EventFile
with EventFile(Path(sys.argv[1])) as events:
    events.histogram("x", [1.0, 2.0], 0, buckets=3)
    events.layout(layout_pb2.Layout())
    events.text("about", "text")
    events.hparams_config([], [])
print("tensorflow" in sys.modules)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True)
    assert output.stdout.split() == ["False"], output.stderr[-2000:]
    assert len(list(values(tmp_path))) == 4
