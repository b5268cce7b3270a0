"""What a slot writes to a trial's event file: its row of the table, its GPUs' use, its outcome."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import Any, Literal

from search.space.spaces import LARGEST_INTEGER
from search.trial import Outcome, Trial
from spark_jobs.trial.events.event_file import EventFile


def row_name(attempt: str, run: str) -> str:
    """Return the name of an attempt at a trial in TensorBoard's table.

    TensorBoard takes rows of the same name for one and averages them, also across runs. The name is
    short, since its column is narrow.

    Args:
        attempt: The name of the attempt's folder.
        run: The name of the run's folder, whose random last part is used.
    """
    return f"{attempt} {run.rpartition('-')[2]}"


def columns_of(trial: Trial, as_text: Collection[str]) -> dict[str, bool | float | str]:
    """Return a trial's columns of TensorBoard's table; `as_text` are hyperparameters as text."""
    columns = {name: hparam(value, as_text=name in as_text) for name, value in trial.params.items()}
    if trial.generation is not None and "generation" not in columns:
        columns["generation"] = trial.generation
    return columns


def hparam(value: Any, *, as_text: bool = False) -> bool | float | str:
    """Return a hyperparameter in a type that TensorBoard's table supports; others as text."""
    if as_text or not isinstance(value, int | float):
        return value if isinstance(value, str) else repr(value)
    # A column holds floats, and TensorBoard cannot serve infinite ones.
    largest = LARGEST_INTEGER if isinstance(value, int) else sys.float_info.max
    return value if abs(value) <= largest else repr(value)


def write_outcome(events: EventFile, outcome: Outcome) -> None:
    """Write a trial's outcome to its event file."""
    if outcome.objective is not None or outcome.values:
        events.scalars(
            {objective_tag(name): value for name, value in outcome.metrics.items()}, step=0
        )
    if outcome.step is not None:
        events.scalars({LAST_STEP: outcome.step}, step=0)
    if outcome.reason:
        events.text("stopped", _verbatim(f"stopped at {outcome.reason}"))
    if outcome.error is not None:
        events.text("error", _verbatim(outcome.error.traceback or outcome.error.message))
    events.hparams_end(outcome.status)


def _verbatim(text: str) -> str:
    """Return text as Markdown that shows it unchanged."""
    return "\n".join("    " + line for line in text.splitlines())


LAST_STEP = "trial/last_step"
"""TensorBoard's tag of a trial's last reported step."""


def objective_tag(name: str) -> str:
    """Return TensorBoard's tag of a returned metric, different from the curve of its name."""
    return f"objective/{name}"


def gpu_tag(gpu: int, name: Literal["memory_GiB", "utilization"]) -> str:
    """Return TensorBoard's tag of the use of a GPU; the steps of its curve are seconds."""
    return f"gpu/{gpu}/{name}"


def is_curve(tag: str) -> bool:
    """Return whether a tag is of a curve, not of a number of the outcome."""
    return not tag.startswith("objective/") and tag != LAST_STEP


def is_reported(tag: str) -> bool:
    """Return whether a tag is of a curve that the train function reported."""
    return is_curve(tag) and not re.fullmatch(r"gpu/\d+/(memory_GiB|utilization)", tag)
