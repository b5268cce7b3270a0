"""The number of Hypothesis' examples: few by default, all with `--hypothesis-profile all`.

`make test-faults` runs every property with all of its examples.
"""

from __future__ import annotations

from typing import Any

import hypothesis

_SHARE = 0.15  # share of the examples that run by default
_LEAST = 1


def register() -> None:
    """Register the two profiles with Hypothesis, and use the one with few examples.

    No example has a time limit, since a busy machine may stall.
    """
    everything = hypothesis.settings(
        deadline=None,
        max_examples=100,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.register_profile("all", everything)
    few = hypothesis.settings(everything, max_examples=round(100 * _SHARE))
    hypothesis.settings.register_profile("few", few)
    hypothesis.settings.load_profile("few")


def examples(number: int, **others: Any) -> hypothesis.settings:
    """Return the settings of a property with another number of examples than 100.

    Args:
        number: The number of examples with all of them.
        others: Further settings of Hypothesis.
    """
    share = hypothesis.settings().max_examples / 100
    least = min(number, _LEAST)
    return hypothesis.settings(max_examples=max(least, round(number * share)), **others)
