"""What TensorBoard reads from the event files of a folder."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import metadata
from tensorboard.util import tensor_util


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


def table_config(folder: Path):
    """Return the HParams table's columns, as its plugin reads them."""
    (content,) = [
        value.metadata.plugin_data.content
        for tag, _, value in values(folder)
        if tag == metadata.EXPERIMENT_TAG
    ]
    return metadata.parse_experiment_plugin_data(content)


def histograms(folder: Path) -> dict[str, list[tuple[int, np.ndarray]]]:
    """Return tag to (step, rows of left edge, right edge, count)."""
    found = defaultdict(list)
    for tag, step, value in values(folder):
        if value.metadata.plugin_data.plugin_name == "histograms":
            found[tag].append((step, tensor_util.make_ndarray(value.tensor)))
    return dict(found)
