"""`tf.summary` in a trial: a default writer into the trial's folder, made when it is first used.

Making TensorFlow's writer runs an op, which starts TensorFlow's runtime: time and memory that a
trial without `tf.summary` should not pay. So the default writer is one that makes the real one
late.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType
from typing import Any

from spark_jobs.trial.import_hooks import when_imported


@contextlib.contextmanager
def default_writer(folder: Path) -> Any:
    """Let `tf.summary` write to `folder` inside the block, where TensorFlow may be imported."""
    with contextlib.ExitStack() as entered:

        def enter(tensorflow: ModuleType) -> None:
            entered.enter_context(_late_writer(tensorflow, folder).as_default())

        with when_imported("tensorflow", enter):
            yield


def _late_writer(tensorflow: Any, folder: Path) -> Any:
    class LateWriter(tensorflow.summary.SummaryWriter):  # type: ignore[misc]  # known at run time
        """Stands in for the writer of `tf.summary.create_file_writer`."""

        def __init__(self) -> None:
            self._real: Any = None

        def __getattr__(self, name: str) -> Any:
            # `_resource` and what else TensorFlow's summary ops look up in a writer
            if self._real is None:
                self._real = tensorflow.summary.create_file_writer(str(folder))
            return getattr(self._real, name)

        def init(self) -> Any:
            return self.__getattr__("init")()

        def flush(self) -> Any:
            return None if self._real is None else self._real.flush()

        def close(self) -> Any:
            return None if self._real is None else self._real.close()

    return LateWriter()
