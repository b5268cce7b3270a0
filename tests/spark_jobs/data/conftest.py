"""Stores with data, and a trial that reads from them."""

import fsspec
import pytest

from spark_jobs.storage.host_cache import CacheSettings
from spark_jobs.trial.context import DataSettings, TrialContext, entered
from tests.spark_jobs.data.files import put


@pytest.fixture
def copies(tmp_path):
    """The folder of this host's copies."""
    return tmp_path / "copies"


@pytest.fixture
def trial(tmp_path, copies):
    return TrialContext(
        params={}, folder=tmp_path, data=DataSettings(cache=CacheSettings(str(copies)))
    )


@pytest.fixture
def inside(trial):
    with entered(trial):
        yield


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """An empty folder of this host, and one of a store."""
    if request.param == "local":
        yield str(tmp_path / "data")
        return
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    yield "memory://bucket/data"
    memory.rm("/", recursive=True)


@pytest.fixture
def store(folder):
    """A function of a path below the folder and bytes; a test with it runs for each folder."""
    return lambda path, content: put(f"{folder}/{path}", content)


@pytest.fixture
def remote():
    memory = fsspec.filesystem("memory")
    memory.rm("/", recursive=True)
    yield "memory://bucket"
    memory.rm("/", recursive=True)


@pytest.fixture
def tensorflow():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def features(tensorflow):
    return {
        "n": tensorflow.io.FixedLenFeature([], tensorflow.int64),
        "xy": tensorflow.io.FixedLenFeature([2], tensorflow.float32),
    }
