"""How many examples Hypothesis looks at: few by default, all with `--hypothesis-profile all`.

`make test-faults` runs every property with all of its examples.
"""

from __future__ import annotations

from typing import Any

import hypothesis

_SHARE = 0.15  # of the examples that are looked at by default
_LEAST = 1


def register() -> None:
    """Let Hypothesis know the two profiles, and use the one with few examples.

    A stall of the machine is no fault of what is tested, so no example has a time limit.
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
    """Return the settings of a property that wants other than 100 examples.

    Args:
        number: Of the examples that are looked at where all are.
        others: Further settings of Hypothesis.
    """
    share = hypothesis.settings().max_examples / 100
    least = min(number, _LEAST)
    return hypothesis.settings(max_examples=max(least, round(number * share)), **others)
