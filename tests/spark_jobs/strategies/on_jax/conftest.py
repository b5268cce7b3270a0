from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_jobs.strategies.gang import Gangs


@pytest.fixture(scope="session")
def jax_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangs]:
    """Runs functions in gangs of workers that were forked with Keras on JAX imported."""
    pytest.importorskip("jax", reason="needs the extra jax")
    with Gangs(tmp_path_factory.mktemp("jax_gangs"), backend="jax") as running:
        yield running
