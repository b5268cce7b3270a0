"""The importance of the hyperparameters of a result."""

from __future__ import annotations

from experiment.results.scored_trials import ScoredTrials
from search.direction import Direction
from search.errors import InvalidArgument


def importance_of(result: ScoredTrials) -> dict[str, float]:
    """Return each hyperparameter's share of the importance; see `Result.importance`."""
    if result.objectives:
        got = ", ".join(map(repr, result.objectives))
        hint = f"use result.by({next(iter(result.objectives))!r})"
        raise InvalidArgument("result", "one objective", got, hint)
    # Here, since scipy takes long to import.
    from search.importance import importance

    finished = [(t.params, value) for t, value in result.scores if t.status == "finished"]
    return importance(finished, Direction.parse(result.direction), result.space)
