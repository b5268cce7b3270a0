"""What these tests need of a machine, and slots on its GPU."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.slot.gpus.devices import gpu_share, trial_environment
from spark_jobs.slot.runners import ProcessRunner
from tests.gpu.training import NothingToTrainOn, framework_on
from tests.spark_jobs.slot.running import Runner, program


@pytest.fixture(scope="session")
def framework() -> str:
    """JAX or PyTorch, whichever finds the GPU; skipped where none does."""
    try:
        return framework_on("gpu")
    except NothingToTrainOn as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def keras_backend(framework: str) -> str:
    """The same, as a backend of Keras; skipped where Keras is not installed."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    return framework


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Runner]]:
    """Make runners on the GPUs of a slot; leave them in the end."""
    with contextlib.ExitStack() as stack:

        def start(
            function: Callable[..., Any],
            gpus: Sequence[str] = ("0",),
            trials: int = 1,
            backend: str | None = None,
            **settings: Any,
        ) -> Runner:
            share = gpu_share(gpus, trials)
            environment = trial_environment(gpus, spark_assigns_gpus=True, cpus=1, share=share)
            if backend is not None:
                environment["KERAS_BACKEND"] = backend
            shared = program(function, gpu_share=share, **settings)
            runner = stack.enter_context(ProcessRunner(shared, environment))
            return Runner(runner, tmp_path / "run")

        yield start
