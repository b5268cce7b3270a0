"""What a search returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import mean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from experiment.results import html
from experiment.results.tables import (
    best_in_words,
    facts_of,
    frame_of,
    front_in_words,
    table_of,
    trial_in_words,
)
from experiment.results.text import count, number, printable
from search.direction import Direction, DirectionName, Directions, Goal
from search.errors import ExperimentError, InvalidArgument, shown
from search.space.spaces import Space
from search.trial import UNNAMED_OBJECTIVE, Failure, Outcome, Status, Trial

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

PlotKind = Literal["convergence", "parallel", "parameter"]


@dataclass(frozen=True, slots=True, repr=False)
class TrialResult:
    """A trial and what became of it. A notebook shows it as a table.

    Attributes:
        id: Its number, from 0 in the order of the search.
        params: Hyperparameter name to value.
        value: The objective; None where it failed, and where there are several objectives.
        metrics: Every number that the train function returned, the objective included.
        status: 'finished', 'failed', 'stopped' or 'cancelled'.
        error: Why it failed, with `.kind`, `.message`, `.traceback`; None otherwise.
        seconds: Wall time of the train function.
        reason: Why it was stopped, such as "step 7: ..."; '' otherwise.
        logdir: Its folder: logs, TensorBoard events, what it wrote.
        attempt: Which attempt at it that was, from 1.
        values: Where there are several objectives, each by name; empty where it failed.
    """

    id: int
    params: dict[str, Any]
    value: float | None
    metrics: dict[str, float]
    status: Status
    error: Failure | None
    seconds: float
    logdir: str
    reason: str = ""
    attempt: int = 1
    values: dict[str, float] = field(default_factory=dict)

    @property
    def score(self) -> str:
        """The objective as text, several by name: "0.9", "accuracy=0.9, latency=3.1"."""
        if self.value is not None:
            return number(self.value)
        return ", ".join(f"{printable(name)}={number(v)}" for name, v in self.values.items())

    @property
    def ending(self) -> str:
        """What became of it, with the reason: "stopped at step 7: ...", "failed: ValueError"."""
        if self.error is not None:
            return f"{self.status}: {self.error}"
        return f"{self.status} at {self.reason}" if self.reason else self.status

    @property
    def files(self) -> list[str]:
        """What the train function wrote below `experiment.logdir()`: paths or URLs, sorted.

        Raises:
            OSError: The folder cannot be read.
        """
        from experiment.results.trial_files import (
            files_of_trial,  # late: most results are not asked for it
        )

        return files_of_trial(self.logdir)

    def __str__(self) -> str:
        return trial_in_words(self)

    def __repr__(self) -> str:
        return f"<TrialResult: {self}; {printable(self.logdir)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        traceback = "" if self.error is None else self.error.traceback
        return html.block(
            html.table([f"trial {self.id}", ""], facts_of(self)),
            html.folded("Traceback", traceback) if traceback else "",
        )

    @classmethod
    def of(cls, trial: Trial, outcome: Outcome, logdir: str, attempt: int = 1) -> TrialResult:
        """Return a trial with its outcome."""
        return cls(
            trial.id,
            dict(trial.params),
            outcome.value,
            dict(outcome.metrics),
            outcome.status,
            outcome.error,
            outcome.seconds,
            logdir,
            outcome.reason,
            attempt,
            dict(outcome.values),
        )


class Mean(NamedTuple):
    """A configuration that was tried several times.

    Attributes:
        params: Hyperparameter name to value.
        value: The mean of the objective.
        trials: Those that have a value.
    """

    params: dict[str, Any]
    value: float
    trials: list[TrialResult]


class Result(Sequence[TrialResult]):
    """The trials of a search: a sequence of `TrialResult`, in the order of their ids. Immutable.

    A notebook shows it as a table, the best trial first and failed ones last.

    Attributes:
        trials: All that came to an end, failed ones too, in the order of their ids.
        direction: 'max' or 'min'; a dict of several objectives' names to these.
        logdir: The run's folder; `experiment.tensorboard(result)` opens it.
        objective: What the objective is called; 'metric' where no trial has said so; None where
            there are several.
        total: How many trials the search has in all; more than there are here while it runs, and
            where it ended early.
        problem: Why it ended early, in one sentence; None otherwise.
        space: What was searched; None for explicit points.
        target: The value of the objective that was to end the search; None without, and while it
            runs.
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

    @property
    def best(self) -> TrialResult | None:
        """The trial with the best value, the first of equals; None when none finished.

        Where the objective is noisy that may be the luckiest one; see `best_mean`.

        Raises:
            ExperimentError: There are several objectives.
        """
        if self.objectives:
            raise ExperimentError(
                f"no trial is the best in {' and '.join(map(repr, self.objectives))} at once: see "
                f".front, or .by({next(iter(self.objectives))!r}).best"
            )
        return next(iter(self.front), None)

    @cached_property
    def front(self) -> list[TrialResult]:
        """The trials that no other dominates (Pareto front), the best in the first objective first.

        A trial dominates another that it is no worse than in any objective and better than in one.
        With one objective, the best trial alone.
        """
        return self._goal.front(self.trials)

    @property
    def objectives(self) -> dict[str, Direction]:
        """Several objectives with their directions; empty where there is one."""
        return dict(self._goal.by_name) if isinstance(self._goal, Directions) else {}

    def by(self, objective: str) -> Result:
        """Return the same trials judged by one of several objectives alone, for `best` and plots.

        Raises:
            InvalidArgument: It is none of them.
        """
        if objective not in self.objectives:
            known = " or ".join(map(repr, self.objectives)) or "one of several objectives"
            raise InvalidArgument("objective", known, shown(objective))
        return Result(
            [replace(t, value=t.values.get(objective), values={}) for t in self.trials],
            self.objectives[objective],
            self.logdir,
            objective=objective,
            total=self.total,
            problem=self.problem,
            space=self.space,
        )

    @property
    def best_mean(self) -> Mean | None:
        """The configuration with the best mean, of those that have several values; None if none.

        For a noisy objective: `evolutionary_search(noisy=True)` tries what seems best again.
        """
        if not isinstance(self._goal, Direction):
            return None
        same: dict[str, list[tuple[TrialResult, float]]] = {}
        for trial, value in self.scores:
            same.setdefault(repr(trial.params), []).append((trial, value))
        means = [
            Mean(scores[0][0].params, mean(v for _, v in scores), [trial for trial, _ in scores])
            for scores in same.values()
            if len(scores) > 1
        ]
        return self._goal.best(means, lambda mean: mean.value)

    @property
    def target_reached(self) -> bool:
        """Is the best value as good as `target`, or better? False without a target."""
        if not isinstance(self._goal, Direction):
            return False
        return self._goal.reaches(None if self.best is None else self.best.value, self.target)

    @property
    def failed(self) -> list[TrialResult]:
        """The trials that failed, each with `.error.message` and `.error.traceback`."""
        return [trial for trial in self.trials if trial.status == "failed"]

    @property
    def done(self) -> int:
        """How many trials came to an end of their own: all but the cancelled ones."""
        return sum(trial.status != "cancelled" for trial in self.trials)

    @property
    def ranking(self) -> list[TrialResult]:
        """The trials from the best to the worst, those without a value last.

        With several objectives those on the front come first, and each part goes by the first one.
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
        """Each trial that has a value, with it, in the order of the ids."""
        return [(trial, trial.value) for trial in self.trials if trial.value is not None]

    @property
    def objective_title(self) -> str:
        """The objective's name and which way is better: "accuracy ↑"; of several, each."""
        return ", ".join(self.objective_titles)

    @property
    def objective_titles(self) -> list[str]:
        """The title of each objective, of which there may be one."""
        if isinstance(self._goal, Direction):
            return [f"{self.objective} {self._goal.arrow}"]
        return [f"{name} {direction.arrow}" for name, direction in self.objectives.items()]

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per trial, failed ones too, in order of id.

        Columns: trial, status, value; each parameter under its own name, or as `params.<name>`
        where that is taken, NaN where a trial lacks it; `metrics.<key>` for each number returned;
        seconds, error, reason (where a trial was stopped), logdir. With several objectives, which
        are among the metrics, there is on_front (True or False) in the place of value.
        """
        import pandas

        columns, rows = frame_of(self)
        return pandas.DataFrame(rows, columns=columns)

    def split(self, name: str) -> Results:
        """Return one result per value of a hyperparameter, as of 'group' of `search_each`.

        Raises:
            InvalidArgument: No trial has a hyperparameter of that name, with strings as values.
        """
        values: dict[str, list[TrialResult]] = {}
        for trial in self.trials:
            if isinstance(value := trial.params.get(name), str):
                values.setdefault(value, []).append(trial)
        if not values:
            expected = "a hyperparameter of the trials, with strings as values"
            raise InvalidArgument("name", expected, shown(name))
        return Results(self, {value: self.part(trials) for value, trials in values.items()})

    def part(self, trials: Sequence[TrialResult], **others: Any) -> Result:
        """Return a result of some of the trials.

        Args:
            trials: Those.
            **others: `total`, `problem`, `space`, `target`, where they are not this result's.
        """
        same = {name: getattr(self, name) for name in ("objective", "problem", "space", "target")}
        return Result(trials, self._goal, self.logdir, **{**same, **others})

    def plot(
        self,
        kind: PlotKind = "convergence",
        *,
        parameter: str | None = None,
        ax: matplotlib.axes.Axes | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw the search with matplotlib (`pip install 'spark-tf-experiment[plot]'`).

        Args:
            kind: 'convergence': each trial's value and the best so far, by trial; 'parallel':
                parallel coordinates, a line per trial over all hyperparameters; 'parameter': one
                hyperparameter against the objective.
            parameter: Which one, for 'parameter'; may be left out where there is only one.
            ax: Where to draw; a new figure when left out.

        Raises:
            InvalidArgument: An unknown kind or parameter, or several objectives: see `by` and
                `plot_front`.
            ImportError: matplotlib is not installed.
        """
        from experiment.results.plots import draw

        return draw(self, kind, parameter, ax)

    def plot_front(
        self,
        across: str | None = None,
        up: str | None = None,
        *,
        ax: matplotlib.axes.Axes | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw two of several objectives, each trial a point, with matplotlib.

        Where there are more than two, the trials that no other dominates in all of them may look
        as if some others did.

        Args:
            across: The objective of the horizontal axis; left out, the first.
            up: That of the vertical axis; left out, the next one.
            ax: Where to draw; a new figure when left out.

        Raises:
            InvalidArgument: There is one objective, or none of that name.
            ImportError: matplotlib is not installed.
        """
        from experiment.results.plots import draw_front

        return draw_front(self, across, up, ax)

    def summary(self) -> str:
        """Return in one line how many trials there are, how many failed, and the best."""
        counts = count(self.done, "trial")
        if self.total > self.done:
            counts = f"{self.done} of {count(self.total, 'trial')}"
        if stopped := sum(trial.status == "stopped" for trial in self.trials):
            counts += f", {stopped} stopped"
        if self.failed:
            counts += f", {len(self.failed)} failed"
        if self.done < len(self.trials):
            counts += f", {len(self.trials) - self.done} cancelled"
        if self.target is not None and self.target_reached:
            counts += f", target {number(self.target)} reached"
        best = next(iter(self.front), None)
        words = front_in_words(self.front) or best_in_words(best, self.objective)
        return f"{counts}, {words}" if words else counts

    def __len__(self) -> int:
        return len(self.trials)

    @overload
    def __getitem__(self, index: int) -> TrialResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[TrialResult]: ...

    def __getitem__(self, index: int | slice) -> TrialResult | list[TrialResult]:
        return self.trials[index]

    def __repr__(self) -> str:
        return f"<Result: {self.summary()}; {printable(self.logdir)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        failures = [
            html.folded(f"Trial {trial.id} failed: {trial.error}", trial.error.traceback)
            for trial in self.failed[:_MOST_FAILURES]
            if trial.error is not None
        ]
        left = len(self.failed) - len(failures)
        return html.block(
            html.line(self.summary()),
            html.line(f"Ended early: {self.problem}") if self.problem else "",
            html.table(*table_of(self, self.ranking[:_MOST_ROWS])),
            _more(len(self.trials) - _MOST_ROWS, "trial"),
            *failures,
            _more(left, "failed trial"),
        )


class Results(Mapping[str, Result]):
    """The results of the groups of a search: group to `Result`, in their order. Immutable.

    A notebook shows the best of each group.

    Attributes:
        overall: Of all trials.
        logdir: The run's folder, the same for all.
        problem: Why the search ended early, in one sentence; None otherwise.
    """

    def __init__(self, overall: Result, groups: Mapping[str, Result]) -> None:
        self.overall, self._groups = overall, dict(groups)
        self.logdir, self.problem = overall.logdir, overall.problem

    def __getitem__(self, group: str) -> Result:
        return self._groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        lines = [f"  {group!r}: {_told(result)}" for group, result in self.items()]
        return "\n".join([f"<Results: {printable(self.logdir)}", *lines]) + ">"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = [[printable(str(group)), _told(result)] for group, result in self.items()]
        return html.block(html.table(["group", "trials"], rows))


def _told(result: Result) -> str:
    return result.summary() + (f"; ended early: {result.problem}" if result.problem else "")


def results_of_groups(
    overall: Result,
    spaces: Mapping[str, Space],
    *,
    by: str,
    max_failures: int | None,
    target: float | None,
) -> Results:
    """Return the results of `search_each`.

    Args:
        overall: Of all trials.
        spaces: Group to its space.
        by: The hyperparameter that told a trial its group.
        max_failures: A group of which more trials failed got no more; None for any number.
        target: A value with which a group got no more trials; None for none.

    Raises:
        SearchFailed: Too many trials failed in each of the groups.
    """
    groups = {}
    for group, space in spaces.items():
        trials = [trial for trial in overall.trials if trial.params[by] == group]
        failed, problem = sum(trial.status == "failed" for trial in trials), overall.problem
        if max_failures is not None and failed > max_failures:
            problem = too_many_failures(failed, max_failures)
        total = overall.total // len(spaces)
        groups[group] = overall.part(
            trials, total=total, problem=problem, space=space, target=target
        )
    if overall.problem is None and all(result.problem for result in groups.values()):
        told = (f"{group!r}: {result.problem}" for group, result in groups.items())
        raise SearchFailed("; ".join(told), overall)
    return Results(overall, groups)


_MOST_ROWS = 50  # of a table in a notebook, and failures below it
_MOST_FAILURES = 10


def _more(left: int, noun: str) -> str:
    text = f"and {count(left, f'more {noun}')}; to_pandas() has all of them"
    return html.line(text) if left > 0 else ""


def too_many_failures(failed: int, most: int) -> str:
    """Return the problem of a search in which more trials failed than `max_failures`."""
    return f"{failed} trials failed, more than max_failures={most}"


class SearchFailed(ExperimentError):
    """A search that ended without being done, or in which every trial failed.

    Attributes:
        result: What there is: a `Result`.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])
