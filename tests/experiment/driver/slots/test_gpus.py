"""Searches on simulated GPUs: Spark assigns them, and a library replaces NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiment
from tests.fake_nvml import FakeNvml
from tests.servers.clusters import MEMORY, gpu_settings
from tests.spark_jobs.trial.events.reading import scalars

GIB = 1 << 30


@pytest.fixture(scope="module")
def gpus(tmp_path_factory):
    return FakeNvml(tmp_path_factory.mktemp("gpus"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory, nvml_library, gpus):
    """The settings of an executor with two slots, each of which has a GPU."""
    return {
        **MEMORY,
        **gpu_settings(tmp_path_factory.mktemp("discovery"), '["0", "1"]'),
        "spark.executorEnv.LD_LIBRARY_PATH": str(nvml_library.parent),
        "spark.executorEnv.FAKE_NVML": str(gpus.root),
    }


@pytest.fixture
def two_gpus(sparks, settings, gpus):
    yield sparks.get("local-cluster[1,2,1024]", **settings)
    for gpu in (0, 1):
        (gpus.root / str(gpu) / "kept").unlink(missing_ok=True)


def keep(gpu, memory):
    import os
    import pathlib

    pathlib.Path(os.environ["FAKE_NVML"], gpu, "kept").write_text(str(memory))


@pytest.mark.slow
@pytest.mark.contract
def test_a_gpu_that_keeps_memory_is_set_aside_and_the_search_continues_on_the_other(
    two_gpus, logdir
):
    def train(x):
        import os
        import pathlib
        import time

        gpu = os.environ["CUDA_VISIBLE_DEVICES"]
        if gpu == "1":
            keep(gpu, 4 << 30)
        elif x < 2:  # the slot with GPU 1 reports it before it writes the outcome
            trials = pathlib.Path(experiment.logdir()).parent
            while not (trials / f"{1 - x:06d}" / "outcome.json").exists():
                time.sleep(0.01)
        return int(gpu)

    with pytest.warns(UserWarning, match="keeps") as warned:
        result = experiment.launch(two_gpus, train, {"x": range(6)}, logdir=logdir, preload=())
    on_1 = [trial for trial in result.trials if trial.value == 1.0]
    assert [trial.status for trial in result.trials] == ["finished"] * 6
    assert len(on_1) == 1
    (warning,) = [str(warning.message) for warning in warned if "GPU" in str(warning.message)]
    host, trial = warning.split()[4], on_1[0].id
    assert warning == (
        f"GPU 1 of host {host} keeps 4.0 GiB after trial {trial} and gets no more trials"
    )
    other = Path(result.trials[1 - trial].logdir)
    curves = scalars(other)
    assert {value for _, value in curves["gpu/0/memory_GiB"]} == {0.5}
    assert {value for _, value in curves["gpu/0/utilization"]} == {0.5}


@pytest.mark.slow
def test_a_search_whose_gpus_are_all_set_aside_ends_with_the_reason(two_gpus, logdir):
    def train(x):
        import os

        keep(os.environ["CUDA_VISIBLE_DEVICES"], 5 << 29)
        return x

    with (
        pytest.warns(UserWarning, match="keeps 2.5 GiB"),
        pytest.raises(experiment.SearchFailed) as caught,
    ):
        experiment.launch(two_gpus, train, {"x": range(50)}, logdir=logdir, preload=())
    for gpu in (0, 1):
        assert f"GPU {gpu} of host " in str(caught.value)
    assert str(caught.value).count("keeps 2.5 GiB after trial ") == 2
    finished = [trial for trial in caught.value.result.trials if trial.status == "finished"]
    assert len(finished) == 2
