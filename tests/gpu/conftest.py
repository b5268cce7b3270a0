"""What these tests need of a machine."""

from __future__ import annotations

import pytest

from tests.gpu.training import NothingToTrainOn, framework_on


@pytest.fixture(scope="session")
def framework() -> str:
    """JAX or PyTorch, whichever finds the GPU; skipped where none does."""
    try:
        return framework_on("gpu")
    except NothingToTrainOn as problem:
        pytest.skip(str(problem))
