"""TensorBoard event files, written without TensorFlow.

Importing `tensorboard.summary.Writer`, `plugins.hparams.api` or `plugins.custom_scalar.summary.pb`
would import TensorFlow (seconds, and 700 MB); the messages and the record writer used here do not.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tensorboard.compat.proto import (
    event_pb2,
    summary_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text import summary_v2 as text_summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

from spark_jobs.storage.local_files import open_appending

_LARGEST = sys.float_info.max / 4
_NO_DIMENSIONS = tensor_shape_pb2.TensorShapeProto()
_SCALAR = scalar_metadata.create_summary_metadata(display_name="", description="")


class EventFile:
    """Appends to one event file; several processes may, since each record is a single write.

    Args:
        folder: The run's folder, which must exist. The first record creates the file.
        writer: The writer's name in the file name; it must differ between hosts.
        lag: Seconds by which this host's clock lags the driver's; the file has the driver's times.
    """

    def __init__(self, folder: Path, writer: str = "trial", lag: float = 0.0) -> None:
        self.path = folder / f"events.out.tfevents.{writer}"
        self._lag = lag
        self._file: Any = None

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        file, self._file = self._file, None  # also if it cannot be closed
        if file is not None:
            file.close()

    def is_there(self) -> bool:
        """Return whether the file that was written to is still in the run's folder."""
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return self._file is None or os.path.samestat(there, os.fstat(self._file.fileno()))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Append a point of each curve, in one write."""
        summary = summary_pb2.Summary()
        for tag, value in values.items():
            with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
                single = float(np.float32(value))
            # Equal to make_tensor_proto, and seven times as fast; a trial writes many of them.
            tensor = tensor_pb2.TensorProto(
                dtype=types_pb2.DT_FLOAT, float_val=[single], tensor_shape=_NO_DIMENSIONS
            )
            summary.value.add(tag=tag, tensor=tensor, metadata=_SCALAR)
        self._append(summary, step)

    def text(self, tag: str, markdown: str) -> None:
        """Append a text."""
        self._append(text_summary.text_pb(tag, markdown))

    def histogram(
        self, tag: str, values: Sequence[float], step: int, *, buckets: int, description: str = ""
    ) -> None:
        """Append a histogram; TensorBoard shows it as a distribution too."""
        # The width of the buckets is a difference, which must not overflow; it may be zero.
        data = np.clip(np.asarray(values, dtype=np.float64), -_LARGEST, _LARGEST)
        with np.errstate(divide="ignore", invalid="ignore"):
            summary = histogram_summary.histogram_pb(tag, data, buckets, description)
        self._append(summary, step)

    def layout(self, layout: layout_pb2.Layout) -> None:
        """Append the charts of the Custom Scalars page; once per run."""
        summary = summary_pb2.Summary()
        summary.value.add(
            tag=layout_metadata.CONFIG_SUMMARY_TAG,
            metadata=layout_metadata.create_summary_metadata(),
            tensor=tensor_util.make_tensor_proto(np.array(layout.SerializeToString(), object)),
        )
        self._append(summary)

    def hparams_config(
        self,
        columns: list[hparams.HParam],
        metrics: list[hparams.Metric],
        *,
        fixed: Collection[str] = (),
    ) -> None:
        """Append the columns of the HParams table; once per search.

        Args:
            columns: The hyperparameters.
            metrics: The metrics, the objective first.
            fixed: Hyperparameters that are the same in all trials: their columns come last.
        """
        summary = hparams.hparams_config_pb(columns, metrics, time_created_secs=self._now())
        content = summary.value[0].metadata.plugin_data
        data = plugin_data_pb2.HParamsPluginData.FromString(content.content)
        for info in data.experiment.hparam_infos:
            info.differs = info.name not in fixed
        content.content = data.SerializeToString()
        self._append(summary)

    def hparams_start(self, values: Mapping[str, bool | float | str], trial: str) -> None:
        """Append the row of a trial."""
        self._append(hparams.hparams_pb(dict(values), trial_id=trial))

    def hparams_end(self, status: Literal["finished", "failed", "stopped", "cancelled"]) -> None:
        """Append the status with which the trial ended, which the HParams table shows."""
        success = status in ("finished", "stopped")
        end = plugin_data_pb2.SessionEndInfo(
            status=api_pb2.STATUS_SUCCESS if success else api_pb2.STATUS_FAILURE,
            end_time_secs=self._now(),
        )
        data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
        summary = summary_pb2.Summary()
        summary.value.add(
            tag=hparams_metadata.SESSION_END_INFO_TAG,
            metadata=hparams_metadata.create_summary_metadata(data),
            tensor=hparams_metadata.NULL_TENSOR,
        )
        self._append(summary)

    def _now(self) -> float:
        return time.time() + self._lag

    def _append(self, summary: Any, step: int = 0) -> None:
        if self._file is None:
            descriptor = open_appending(self.path)
            self._file = os.fdopen(descriptor, "ab", buffering=0)
            if os.fstat(descriptor).st_size == 0:
                self._write(event_pb2.Event(wall_time=self._now(), file_version="brain.Event:2"))
        self._write(event_pb2.Event(wall_time=self._now(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        """Append a record; one that does not fit would hide all later ones, so none of it stays."""
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        written = self._file.write(record.getvalue())
        if written == len(record.getvalue()):
            return
        end = self._file.tell()
        if os.fstat(self._file.fileno()).st_size == end:  # nobody has appended since
            self._file.truncate(end - written)
        self.close()  # a later record begins the file if this was the first one
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
