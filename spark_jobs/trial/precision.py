"""The precision in which Keras computes in a trial."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from search.errors import InvalidArgument, did_you_mean, shown
from spark_jobs.installed import is_installed

Precision = Literal["mixed_bfloat16", "mixed_float16"]

NEEDS_GPU = "without a GPU float16 is slower than float32, while bfloat16 may be faster"
"""Why 'mixed_float16' is refused without a GPU."""

_OF_BFLOAT16 = {"amx_bf16", "avx512_bf16", "bf16"}  # the last one is ARM's
_FLAGS = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)


def read_precision(name: str, value: object) -> Precision | None:
    """Return the precision that a user passed.

    Args:
        name: The argument's name for the error.
        value: A precision, or None.

    Raises:
        InvalidArgument: There is no such precision.
    """
    if value is None:
        return None
    for precision in get_args(Precision):
        if value == precision:
            return precision  # type: ignore[no-any-return]  # one of the literals
    expected = "'mixed_bfloat16', 'mixed_float16' or None"
    raise InvalidArgument(name, expected, shown(value), did_you_mean(value, get_args(Precision)))


@contextlib.contextmanager
def computing_in(precision: Precision | None) -> Iterator[None]:
    """Set Keras' dtype policy for a block that calls the train function.

    Args:
        precision: The precision; None leaves the policy as it is, and imports no Keras.

    Raises:
        InvalidArgument: Keras is not installed, or it would compute in float16 without a GPU.
    """
    if precision is None:
        yield
        return
    if not is_installed("keras"):
        expected = "None where Keras is not installed"
        raise InvalidArgument("precision", expected, shown(precision))
    # Late: trials without a precision need no Keras.
    import keras

    if precision == "mixed_float16" and not _has_gpu(keras.backend.backend()):
        expected = "'mixed_bfloat16' or None for a trial that has no GPU"
        raise InvalidArgument("precision", expected, shown(precision), NEEDS_GPU)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _has_gpu(backend: str) -> bool:
    """Return whether a backend of Keras has a GPU, without starting TensorFlow's runtime."""
    if backend == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    if backend == "torch":
        import torch

        return bool(torch.cuda.is_available())
    import tensorflow

    return bool(tensorflow.config.list_physical_devices("GPU"))


def why_slow(precision: Precision | None, *, gpus: int, cpuinfo: Path | None = None) -> str:
    """Return why a precision is probably slow on this host, in a sentence; '' if it is not.

    Args:
        precision: The precision of the trials.
        gpus: Number of GPUs that a trial may use.
        cpuinfo: The kernel's description of the processors. Default: that of Linux.
    """
    if precision != "mixed_bfloat16" or gpus:
        return ""
    try:
        flags = _FLAGS.search((cpuinfo or Path("/proc/cpuinfo")).read_text())
    except OSError:
        return ""
    if flags is None or not _OF_BFLOAT16.isdisjoint(flags[1].split()):
        return ""
    return (
        "precision='mixed_bfloat16' is probably slower than None on executors without a GPU whose "
        "processor has neither AMX nor AVX512-BF16, as in this search"
    )
