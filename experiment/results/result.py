"""The results of searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiment.results import html
from experiment.results.curves import CurvePoint, curves_of
from experiment.results.importance import importance_of
from experiment.results.plotting.plots import PlotKind, draw, draw_front
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
        trials: All ended trials, failed ones too, in the order of their ids.
        direction: 'max' or 'min'; for several objectives a dict of their names to directions.
        logdir: The run's folder; `experiment.tensorboard(result)` opens it.
        objective: The name of the objective; 'metric' if no trial named it; None for several.
        total: Number of trials of the whole search; more than `trials` while it runs, and after an
            early end.
        problem: Why the search ended early, in one sentence; None otherwise.
        space: The search space; None for a list of points.
        target: The value of the objective at which the search ends; None without, and while it
            runs.
        exhausted: Why the search has fewer trials than it was asked for, in one sentence, such as
            that the space has no more configurations; None otherwise.
    """

    def by(self, objective: str) -> Result:
        """Return the same trials with one of several objectives alone, for `best` and plots.

        Raises:
            InvalidArgument: The search has no such objective.
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
            times=self._times,
            exhausted=self.exhausted,
            group_spaces=self._group_spaces,
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per trial, failed ones too, in the order of their ids.

        Columns: trial, status, value; each hyperparameter under its own name, or as `params.<name>`
        if that is taken, NaN for a trial without it; `metrics.<key>` for each number returned;
        max_steps (of `hyperband_search`), seconds, error, reason (if a trial was stopped), logdir.
        With several objectives, which are among the metrics, on_front (True or False) replaces
        value. A column has dtype object if it has an integer beyond 2^53, which a float would
        round, or a hyperparameter that is None, which would become NaN.
        """
        return frame_of(self)

    def split(self, name: str) -> Results:
        """Return one result per value of a hyperparameter, such as 'group' of `search_each`.

        A group of `search_each` has its own space. The `total` of each is the number of its trials
        so far.

        Raises:
            InvalidArgument: No trial has a hyperparameter of that name with a string as its value.
        """
        values: dict[str, list[TrialResult]] = {}
        for trial in self.trials:
            if isinstance(value := trial.params.get(name), str):
                values.setdefault(value, []).append(trial)
        if not values:
            expected = "a hyperparameter of the trials, with strings as values"
            raise InvalidArgument("name", expected, shown(name))
        spaces = self._group_spaces.get(name, {})
        parts = {
            value: self.part(trials, space=spaces.get(value, self.space), exhausted=None)
            for value, trials in values.items()
        }
        return Results(self, parts)

    def part(self, trials: Sequence[TrialResult], **others: Any) -> Result:
        """Return a result of some of the trials.

        Args:
            trials: The trials.
            **others: `total`, `problem`, `space`, `target`, `exhausted`, if they differ from this
                result's.
        """
        names = ("objective", "problem", "space", "target", "exhausted")
        same = {name: getattr(self, name) for name in names}
        return Result(trials, self._goal, self.logdir, times=self._times, **{**same, **others})

    def importance(self) -> pandas.DataFrame:
        """Return the importance of each hyperparameter, by PED-ANOVA, the most important first.

        It says how much more the best tenth of the finished trials have in common in a
        hyperparameter than all of them have, so it is of little use below about 50 trials.

        Returns:
            Columns: hyperparameter; importance, its share of the total, which is 1.

        Raises:
            InvalidArgument: There are several objectives: see `by`.
        """
        import pandas

        shares = importance_of(self)
        return pandas.DataFrame({"hyperparameter": list(shares), "importance": shares.values()})

    def curves(self) -> pandas.DataFrame:
        """Return the metrics that the trials reported, a row per point, from their event files.

        Of a trial that ran again they are those of its last attempt.

        `curves().pivot(index="step", columns="trial", values="value")` of one metric draws them.

        Returns:
            Columns: trial, step, metric, value. The numbers that trials returned are in
            `to_pandas`.

        Raises:
            OSError: A trial folder cannot be read.
        """
        import pandas

        return pandas.DataFrame(curves_of(self.trials), columns=CurvePoint._fields)

    def plot(
        self,
        kind: PlotKind = "convergence",
        *,
        parameter: str | tuple[str, str] | None = None,
        ax: matplotlib.axes.Axes | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw the search with matplotlib (`pip install matplotlib`).

        Axes of the objective leave the worst tenth of the trials out of view if these are far off.
        A star marks the best trial.

        Args:
            kind: 'convergence': each trial's value and the best so far, by trial; 'parallel':
                parallel coordinates, a line per trial over all hyperparameters; 'parameter': one
                hyperparameter against the objective; 'slice': all of them, each in a panel;
                'contour': two of them, the objective as colours; 'importance': a bar per
                hyperparameter, see `importance`; 'timeline': when each slot ran which trial.
            parameter: The hyperparameter for 'parameter', None for the only one; two of them for
                'contour', None for the most important ones.
            ax: The axes to draw on; None for a new figure, as it has to be for 'slice', which
                returns the first of its axes.

        Raises:
            InvalidArgument: The kind or the parameter is unknown, or there are several objectives:
                see `by` and `plot_front`.
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

        With more than two objectives, trials of the front may look dominated in the two.

        Args:
            across: The objective of the horizontal axis; None for the first.
            up: The objective of the vertical axis; None for the next one.
            ax: The axes to draw on; None for a new figure.

        Raises:
            InvalidArgument: There is only one objective, or none of that name.
            ImportError: matplotlib is not installed.
        """
        return draw_front(self, across, up, ax)

    def summary(self) -> str:
        """Return one line with the number of trials, of failed ones, and the best."""
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
        counts = f"{counts}, {words}" if words else counts
        return f"{counts}; {self.exhausted}" if self.exhausted else counts

    def __repr__(self) -> str:
        return f"<Result: {self.summary()}; {printable(self.logdir)}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
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
    """The results of the groups of a search: a mapping of groups to `Result`, in order. Immutable.

    A notebook shows the best trial of each group.

    Attributes:
        overall: The result of all trials.
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
        lines = [f"  {group!r}: {_summary(result)}" for group, result in self.items()]
        return "\n".join([f"<Results: {printable(self.logdir)}", *lines]) + ">"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        rows = [[printable(str(group)), _summary(result)] for group, result in self.items()]
        return html.block(html.table(["group", "trials"], rows))


def _summary(result: Result) -> str:
    return result.summary() + (f"; ended early: {result.problem}" if result.problem else "")


def results_of_groups(
    overall: Result,
    spaces: Mapping[str, Space],
    *,
    by: str,
    totals: Mapping[str, int],
    exhausted: Mapping[str, str],
    max_failures: int | None,
    target: float | None,
) -> Results:
    """Return the results of `search_each`.

    Args:
        overall: The result of all trials.
        spaces: A mapping of groups to their spaces.
        by: The hyperparameter with a trial's group.
        totals: A mapping of groups to their numbers of trials.
        exhausted: A mapping of groups to why they have fewer trials than asked for.
        max_failures: Maximum failed trials per group; None for any number.
        target: The value of the objective at which a group ends; None without.

    Raises:
        SearchFailed: Too many trials failed in every group.
    """
    groups = {}
    for group, space in spaces.items():
        trials = [trial for trial in overall.trials if trial.params[by] == group]
        failed, problem = sum(trial.status == "failed" for trial in trials), overall.problem
        if max_failures is not None and failed > max_failures:
            problem = too_many_failures(failed, max_failures)
        groups[group] = overall.part(
            trials,
            total=totals[group],
            problem=problem,
            space=space,
            target=target,
            exhausted=exhausted.get(group),
        )
    if overall.problem is None and all(result.problem for result in groups.values()):
        problems = (f"{group!r}: {result.problem}" for group, result in groups.items())
        raise SearchFailed("; ".join(problems), overall)
    return Results(overall, groups)


_MOST_ROWS = 50  # rows of a notebook's table
_MOST_FAILURES = 10  # tracebacks below it


def _more(left: int, noun: str) -> str:
    text = f"and {count(left, f'more {noun}')}; to_pandas() has all of them"
    return html.line(text) if left > 0 else ""


def too_many_failures(failed: int, most: int) -> str:
    """Return the problem of a search in which more trials failed than `max_failures`."""
    return f"{failed} trials failed, more than max_failures={most}"


class SearchFailed(ExperimentError):
    """A search ended before all trials were done, or every trial failed.

    Attributes:
        result: The `Result` of the trials so far.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])
