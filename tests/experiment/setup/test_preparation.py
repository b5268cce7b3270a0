"""Decisions before a search starts."""

from __future__ import annotations

import pytest

from experiment.setup.function.imports import Preload
from experiment.setup.preparation import check_gpus_of_workers, shared_import
from experiment.setup.settings import Settings
from search.errors import InvalidArgument
from spark_jobs.cluster.task_needs import TaskNeeds
from spark_jobs.strategies.settings import Jax, Mirrored
from spark_jobs.zygote.shared_import import OURS, SELECTS_JAX


def test_a_strategy_on_jax_selects_the_backend_before_keras_is_imported():
    preload = Preload(required=("keras",))
    assert shared_import(preload, 0.0, Jax()).modules == (SELECTS_JAX, "keras", *OURS)
    assert shared_import(preload, 0.0, Mirrored()).modules == ("keras", *OURS)


@pytest.mark.parametrize("gpus", [0, 0.6, 1, 2])
def test_several_workers_with_a_gpu_each_or_none_are_allowed(gpus):
    check_gpus_of_workers(Settings(workers_per_trial=2), TaskNeeds(1, gpus))
    check_gpus_of_workers(Settings(), TaskNeeds(1, 0.5))


def test_several_workers_on_one_gpu_are_refused_if_sparks_setting_asks_for_it():
    with pytest.raises(InvalidArgument) as raised:
        check_gpus_of_workers(Settings(workers_per_trial=(1, 2)), TaskNeeds(1, 0.5))
    assert str(raised.value) == (
        "spark.task.resource.gpu.amount: expected at least 1 with 1 to 2 workers, got 0.5; pass "
        "gpus_per_trial=1: NCCL, over which workers share gradients, refuses two of them on one GPU"
    )
