"""The strategy of a search's trials: the one of the call, or the one that suits its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiment.setup.function.imports import FRAMEWORKS, imports_of
from experiment.setup.settings import Settings
from spark_jobs.installed import is_installed
from spark_jobs.session.session import Session
from spark_jobs.strategies.in_step.exposure import check_port
from spark_jobs.strategies.settings import Mirrored, Strategy


def strategy_of(settings: Settings, train: Callable[..., Any], session: Session) -> Strategy | None:
    """Return how the workers of each trial train together; None leaves it to the train function.

    Args:
        settings: The search's settings.
        train: The train function.
        session: The session that runs the search.

    Raises:
        InvalidArgument: The strategy opens ports that the session's settings protect.
    """
    if settings.workers_per_trial == 1:
        return None
    strategy = settings.strategy
    if isinstance(strategy, str):
        strategy = Mirrored() if _trains_by_tensorflow(train) else None
    check_port("strategy", strategy, session.protection)
    return strategy


def _trains_by_tensorflow(train: Callable[..., Any]) -> bool:
    """Return whether a function imports TensorFlow or Keras, where Keras may run on it."""
    packages = {name.partition(".")[0] for name in imports_of(train)}
    return not FRAMEWORKS.isdisjoint(packages) and is_installed("tensorflow")
