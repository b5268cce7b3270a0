"""Values of hyperparameters, and search spaces, in the form in which the tab's page gets them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from experiment.results.text import literal
from search.space.spaces import LARGEST_INTEGER, Choice, Space

_MOST_CHOICES = 1_000
_LONGEST = 200  # characters of a value

# Texts that could be another value: one that is no text, a missing one, or a text in quotes.
_LIKE_ANOTHER = re.compile(r"""None|True|False|nan|-?inf|-?\d{16,}|["'(\[{].*|""")


def shown_value(value: Any) -> bool | float | str:
    """Return a hyperparameter as JSON: bools and numbers as they are, others as text.

    Different values have different texts, since the page places and compares values by them.
    A page reads an integer beyond 2^53 as its neighbour, so it is text, too.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value if isinstance(value, str) and not _needs_quotes(value) else repr(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... #{blake2b(text.encode(), digest_size=6).hexdigest()}"


def _needs_quotes(text: str) -> bool:
    return not text.isprintable() or _LIKE_ANOTHER.fullmatch(text) is not None


def shown_space(space: Space | None) -> dict[str, dict[str, Any]]:
    """Return the domain of each hyperparameter; its values, or its bounds and scale.

    A long list of choices has neither: the page makes the axis from the values of the trials.
    """
    domains: dict[str, dict[str, Any]] = {}
    for name, domain in (space or {}).items():
        facts: dict[str, Any] = {"conditional": domain.when is not None}
        if not isinstance(domain, Choice):
            facts |= {"low": domain.low, "high": domain.high, "log": domain.log}
            facts["integer"] = isinstance(domain.low, int)
        elif len(domain.values) <= _MOST_CHOICES:
            facts["values"] = [shown_value(value) for value in domain.values]
        elif isinstance(domain.values, range):
            low, high = sorted((domain.values[0], domain.values[-1]))
            if max(-low, high) <= LARGEST_INTEGER:  # larger values are text
                facts |= {"low": low, "high": high, "log": False, "integer": True}
        domains[name] = facts
    return domains


def as_python(params: Mapping[str, Any]) -> str:
    """Return hyperparameters as a Python dict, one to a line, to copy into a program."""
    lines = [f"    {name!r}: {literal(value)},\n" for name, value in params.items()]
    return "{\n" + "".join(lines) + "}" if lines else "{}"
