"""`tf.summary` in a trial: a default writer to the trial's folder, created on first use.

Creating TensorFlow's writer runs an op, which starts TensorFlow's runtime: time and memory that a
trial without `tf.summary` should not cost. So the default writer creates the real one late.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from spark_jobs.import_hooks import when_imported


@contextlib.contextmanager
def default_writer(folder: Path) -> Any:
    """Let `tf.summary` write to `folder` during the block, which may import TensorFlow."""
    with contextlib.ExitStack() as entered:

        def enter(tensorflow: ModuleType) -> None:
            entered.enter_context(_late_writer_class(tensorflow)(folder).as_default())

        with when_imported("tensorflow", enter):
            yield


@functools.cache  # a process that forks trials makes the class once for all of them
def _late_writer_class(tensorflow: Any) -> Any:
    class LateWriter(tensorflow.summary.SummaryWriter):  # type: ignore[misc]  # known at run time
        """Creates the writer of `tf.summary.create_file_writer` on first use."""

        def __init__(self, folder: Path) -> None:
            self._folder = folder
            self._real: Any = None

        def __getattr__(self, name: str) -> Any:
            # `_resource` and other attributes that TensorFlow's summary ops read from a writer.
            if self._real is None:
                self._real = tensorflow.summary.create_file_writer(str(self._folder))
            return getattr(self._real, name)

        def init(self) -> Any:
            return self.__getattr__("init")()

        def flush(self) -> Any:
            return None if self._real is None else self._real.flush()

        def close(self) -> Any:
            return None if self._real is None else self._real.close()

    return LateWriter
