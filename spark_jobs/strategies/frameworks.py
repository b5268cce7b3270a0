"""Whether the framework of a strategy is there."""

from __future__ import annotations

from search.errors import InvalidArgument
from spark_jobs.installed import is_installed


def check_installed(module: str, framework: str, strategy: str, rank: int) -> None:
    """Refuse a strategy whose framework is not installed on the host of a worker.

    Args:
        module: The framework's module.
        framework: Its name.
        strategy: The strategy's name.
        rank: The worker's rank.

    Raises:
        InvalidArgument: It is not installed.
    """
    if not is_installed(module):
        got = f"none on the host of worker {rank}"
        raise InvalidArgument(
            "strategy", f"{framework}, for {strategy!r}", got, "install it, or use None"
        )
