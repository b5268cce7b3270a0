"""The digests of `spark_jobs.strategies.mirrored.keras_versions`, from wheels of Keras.

`pip download --no-deps keras==3.16.0`, then
`python -m tests.spark_jobs.strategies.mirrored.keras_sources keras-3.16.0-py3-none-any.whl`. Read
the functions before you add a digest.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from pathlib import Path

from spark_jobs.strategies.mirrored.keras_versions import digest_of

_FUNCTIONS = (
    ("keras/src/backend/tensorflow/trainer.py", "reduce_per_replica"),
    ("keras/src/backend/tensorflow/trainer.py", "_maybe_symbolic_build"),
    ("keras/src/trainers/data_adapters/py_dataset_adapter.py", "_standardize_batch"),
    ("keras/src/trainers/trainer.py", "_get_metrics_result_or_logs"),
    ("keras/src/metrics/metric.py", "add_variable"),
    ("keras/src/optimizers/base_optimizer.py", "apply"),
    ("keras/src/optimizers/base_optimizer.py", "_backend_apply_gradients"),
    ("keras/src/optimizers/base_optimizer.py", "_clip_gradients"),
    ("keras/src/backend/tensorflow/optimizer.py", "_all_reduce_sum_gradients"),
    ("keras/src/losses/loss.py", "reduce_values"),
    ("keras/src/optimizers/loss_scale_optimizer.py", "_tf_apply"),
    ("keras/src/optimizers/loss_scale_optimizer.py", "check_finite"),
)


def source_of(text: str, name: str) -> str:
    """Return the source of the function of a module that has this name."""
    (function,) = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return "\n".join(text.splitlines()[function.lineno - 1 : function.end_lineno])


def sources(root: Path | zipfile.Path) -> list[str]:
    """Return the sources of the known functions in a wheel, or in a folder of packages."""
    return [source_of((root / path).read_text(), name) for path, name in _FUNCTIONS]


if __name__ == "__main__":
    for wheel in sys.argv[1:]:
        print(digest_of(sources(zipfile.Path(wheel))), Path(wheel).name)
