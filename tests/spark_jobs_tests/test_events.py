from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.util import tensor_util

from spark_jobs.events import EventFile


def values(folder: Path):
    """Yield (tag, step, value) of all event files of a folder, as TensorBoard reads them."""
    for path in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield value.tag, event.step, value


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = defaultdict(list)
    for tag, step, value in values(folder):
        if value.metadata.plugin_data.plugin_name == "scalars":
            found[tag].append((step, float(tensor_util.make_ndarray(value.tensor))))
    return dict(found)


def hparams_data(folder: Path, tag: str):
    for found, _, value in values(folder):
        if found == tag:
            return metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
    return None


def test_scalars_arrive_with_their_steps(tmp_path):
    with EventFile(tmp_path) as events:
        events.scalars({"loss": 0.5, "accuracy": 0.25}, step=0)
        events.scalars({"loss": float("nan")}, step=1)
    read = scalars(tmp_path)
    assert read["accuracy"] == [(0, 0.25)]
    assert [step for step, _ in read["loss"]] == [0, 1]


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
    (content,) = [
        value.metadata.plugin_data.content
        for tag, _, value in values(tmp_path)
        if tag == metadata.EXPERIMENT_TAG
    ]
    config = metadata.parse_experiment_plugin_data(content)
    assert [info.name for info in config.hparam_infos] == ["rate"]
    assert [info.display_name for info in config.metric_infos] == ["accuracy ↑"]
