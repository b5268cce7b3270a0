"""Decisions before a search starts."""

from __future__ import annotations

from experiment.setup.function.imports import Preload
from experiment.setup.preparation import shared_import
from spark_jobs.strategies.settings import Jax, Mirrored
from spark_jobs.zygote.shared_import import OURS, SELECTS_JAX


def test_a_strategy_on_jax_selects_the_backend_before_keras_is_imported():
    preload = Preload(required=("keras",))
    assert shared_import(preload, 0.0, Jax()).modules == (SELECTS_JAX, "keras", *OURS)
    assert shared_import(preload, 0.0, Mirrored()).modules == ("keras", *OURS)
