"""What a search returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiment.results import html
from experiment.results.plots import PlotKind, draw, draw_front
from experiment.results.scored_trials import ScoredTrials
from experiment.results.tables import best_in_words, frame_of, front_in_words, table_of
from experiment.results.text import count, number, printable
from experiment.results.trial_result import TrialResult
from search.errors import ExperimentError, InvalidArgument, shown
from search.space.spaces import Space

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas


class Result(ScoredTrials):
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
        self.overall = overall
        self._groups = dict(groups)
        self.logdir = overall.logdir
        self.problem = overall.problem

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
