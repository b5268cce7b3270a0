"""The trials of a search with their scores: the best, the front, the ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import mean
from typing import Any, NamedTuple, overload

from experiment.results.trial_result import TrialResult
from experiment.results.trial_times import TrialTime, TrialTimes
from search.direction import Direction, DirectionName, Directions, Goal
from search.errors import ExperimentError
from search.space.spaces import Space
from search.trial import UNNAMED_OBJECTIVE
from search.values import identity


class Mean(NamedTuple):
    """A configuration that was evaluated several times.

    Attributes:
        params: A dict of hyperparameters to values.
        value: The mean value of the objective.
        trials: Its trials with a value.
    """

    params: dict[str, Any]
    value: float
    trials: list[TrialResult]


class ScoredTrials(Sequence[TrialResult]):
    """The trials of a search, in the order of their ids, with their scores. Immutable.

    See `Result` for the attributes. `group_spaces` are the spaces of groups of `search_each`, by
    the hyperparameter that names a trial's group.
    """

    def __init__(
        self,
        trials: Sequence[TrialResult],
        direction: Goal,
        logdir: str,
        *,
        objective: str | None = None,
        total: int | None = None,
        problem: str | None = None,
        space: Space | None = None,
        target: float | None = None,
        times: TrialTimes | None = None,
        exhausted: str | None = None,
        group_spaces: Mapping[str, Mapping[str, Space]] | None = None,
    ) -> None:
        self.trials = sorted(trials, key=lambda trial: trial.id)
        self._goal = direction
        self.direction: DirectionName | dict[str, DirectionName] = direction.to_json()
        self.logdir = logdir
        several = isinstance(direction, Directions)
        self.objective = None if several else objective or UNNAMED_OBJECTIVE
        self.total = len(self.trials) if total is None else total
        self.problem = problem
        self.space = space
        self.target = target
        self.exhausted = exhausted
        self._times = times or TrialTimes()
        self._group_spaces = group_spaces or {}

    def time_of(self, trial: TrialResult) -> TrialTime | None:
        """Return when and where a trial ran; None if that is unknown."""
        return self._times.of(trial.id)

    @property
    def best(self) -> TrialResult | None:
        """The trial with the best value, the first of equals; None if none has a value.

        With a noisy objective this may be luck; see `best_mean`.

        Raises:
            ExperimentError: There are several objectives.
        """
        if self.objectives:
            raise ExperimentError(
                f"no trial is the best in {' and '.join(map(repr, self.objectives))} at once: use "
                f".front, or .by({next(iter(self.objectives))!r}).best"
            )
        return next(iter(self.front), None)

    @cached_property
    def front(self) -> list[TrialResult]:
        """The non-dominated trials (Pareto front), the best in the first objective first.

        A trial dominates another if it is no worse in any objective and better in at least one.
        With one objective, the best trial alone.
        """
        return self._goal.front(self.trials)

    @property
    def objectives(self) -> dict[str, Direction]:
        """A dict of several objectives to their directions; empty for a single objective."""
        return dict(self._goal.by_name) if isinstance(self._goal, Directions) else {}

    @property
    def best_mean(self) -> Mean | None:
        """The configuration with the best mean, among those with several values; None if none.

        Several values are of trials with the same hyperparameters and `max_steps`. For a noisy
        objective: `evolutionary_search(noisy=True)` repeats the best configuration.
        """
        if not isinstance(self._goal, Direction):
            return None
        same: dict[Any, list[tuple[TrialResult, float]]] = {}
        for trial, value in self.scores:
            key = identity((trial.params, trial.max_steps))
            same.setdefault(key, []).append((trial, value))
        means = [
            Mean(scores[0][0].params, mean(v for _, v in scores), [trial for trial, _ in scores])
            for scores in same.values()
            if len(scores) > 1
        ]
        return self._goal.best(means, lambda mean: mean.value)

    @property
    def target_reached(self) -> bool:
        """Whether the best value is as good as `target` or better; False without a target."""
        if not isinstance(self._goal, Direction):
            return False
        return self._goal.reaches(None if self.best is None else self.best.value, self.target)

    @property
    def failed(self) -> list[TrialResult]:
        """The trials that failed, each with `.error.message` and `.error.traceback`."""
        return [trial for trial in self.trials if trial.status == "failed"]

    @property
    def done(self) -> int:
        """Number of trials without the cancelled ones."""
        return sum(trial.status != "cancelled" for trial in self.trials)

    @property
    def ranking(self) -> list[TrialResult]:
        """The trials from the best to the worst, those without a value last.

        With several objectives the front comes first, and both parts are ordered by the first
        objective.
        """
        if isinstance(self._goal, Direction):
            direction, scores = self._goal, [trial.value for trial in self.trials]
        else:
            name, direction = next(iter(self.objectives.items()))
            scores = [trial.values.get(name) for trial in self.trials]
        front = {trial.id for trial in self.front}
        merits = [direction.merit(score) for score in scores]
        ranked = zip(self.trials, merits, strict=True)
        order = sorted(ranked, key=lambda pair: (pair[0].id not in front, -pair[1]))
        return [trial for trial, _ in order]

    @property
    def scores(self) -> list[tuple[TrialResult, float]]:
        """The trials with a value, each with its value, in the order of their ids."""
        return [(trial, trial.value) for trial in self.trials if trial.value is not None]

    @property
    def objective_title(self) -> str:
        """The objective's name with an arrow for its direction: "accuracy ↑"; all of several."""
        return ", ".join(self.objective_titles)

    @property
    def objective_titles(self) -> list[str]:
        """The title of each objective, also of a single one."""
        if isinstance(self._goal, Direction):
            return [f"{self.objective} {self._goal.arrow}"]
        return [f"{name} {direction.arrow}" for name, direction in self.objectives.items()]

    def __len__(self) -> int:
        return len(self.trials)

    @overload
    def __getitem__(self, index: int) -> TrialResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[TrialResult]: ...

    def __getitem__(self, index: int | slice) -> TrialResult | list[TrialResult]:
        return self.trials[index]
