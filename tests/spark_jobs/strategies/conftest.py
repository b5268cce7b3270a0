from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_jobs.strategies.gang import Gangs


@pytest.fixture(scope="session")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangs]:
    """Runs functions in gangs of forked workers."""
    with Gangs(tmp_path_factory.mktemp("gangs")) as running:
        yield running
