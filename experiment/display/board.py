"""The TensorBoard events of a search: the columns of the HParams table, curves and texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import summary_v2 as hparams

from experiment.display.description import description, escaped, failure_description
from experiment.display.tags import BEST_OF_GENERATION, BEST_SO_FAR, FRONT
from experiment.results.status import Overview
from experiment.results.text import hyperparameter
from experiment.results.trial_result import TrialResult
from experiment.run_files.manifest import Manifest
from experiment.setup.specification import SearchSpec
from search.direction import Direction, Directions, Goal
from search.evolution.population_search import PopulationSearch
from search.searcher import judge_of
from search.space.spaces import Choice, Domain, Float, Integer
from search.trial import UNNAMED_OBJECTIVE
from search.values import is_finite
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot.trial_events import LAST_STEP, hparam, objective_tag
from spark_jobs.storage.local_files import make_folder
from spark_jobs.trial.events.event_file import EventFile

_SHARES = {
    "acceptance": "Share of new candidates accepted",
    "copied": "Share of members that resumed from another's checkpoint",
}
_MOST_METRICS = 3  # TensorBoard's table selects five columns of metrics at first
_MOST_CHOICES = 100
_MOST_ERRORS = 100  # each is an entry of the text page
_MOST_POINTS = 1_000  # TensorBoard shows no more per curve; beyond, one point per 0.1 % of it
_BUCKETS = 12  # of a histogram over a population, which has few members


class Board:
    """Writes the events of the search, in `search/`; an `Observer`. Slots write those of trials.

    Args:
        paths: The paths of the run.
        spec: The search.
        direction: The direction of the objective, or of each of several.
        manifest: The run's manifest.
        part: The number of the Spark application; each writes to a file of its own.
    """

    def __init__(
        self,
        paths: RunPaths,
        spec: SearchSpec,
        direction: Goal,
        manifest: Manifest,
        part: int = 1,
    ) -> None:
        make_folder(paths.search)
        writer = "trial" if part == 1 else f"trial.{part:06d}"  # TensorBoard reads them in order
        self._events = EventFile(paths.search, writer)
        self._trials = paths.trials
        self._spec = spec
        self._direction = direction
        searcher = spec.searcher
        self._stops = bool(manifest.stopping) or judge_of(searcher) is not None
        self._key = manifest.optimization_key
        self._evolution = searcher if isinstance(searcher, PopulationSearch) else None
        self._configured = False
        self._generations = 0
        self._points_to = 0  # number of ended trials at the last point of the curves
        recorded = () if self._evolution is None else self._evolution.logbook.header
        try:
            self._events.text("about", description(manifest))
            self._events.layout(_layout(recorded, direction))
        except BaseException:
            self._events.close()
            raise

    def ended(self, result: TrialResult, status: Overview) -> None:
        """Write the events of a trial that has ended."""
        # Columns are written once; a stopped trial may report other names than trials return.
        certain = self._key is not None or result.status == "finished"
        objectives = self._objectives(status.objective)
        if objectives and certain and not self._configured:
            self._configure(objectives, list(result.metrics))
        cancelled = result.status == "cancelled"
        if cancelled:  # its slot is lost and cannot write this
            self._end_row(Path(result.logdir).name)
        if status.ended % max(status.ended // _MOST_POINTS, 1) == 0:
            # The slot that sent this result counts as busy until it has its next trial.
            self._write_curves(status, None if cancelled else status.in_flight + 1)
        if result.error is not None and status.failed <= _MOST_ERRORS:
            self._events.text(f"failed/{Path(result.logdir).name}", failure_description(result))
        if self._evolution is not None and not cancelled:
            self._write_generations(self._evolution)  # complete generations only

    def close(self, optimization_key: str | None, status: Overview) -> None:
        """Write the last events and close the file, also where they cannot be written."""
        with self._events:
            self._write_curves(status, 0)
            # The last generation may have ended without an outcome, or by cancelled trials.
            if self._evolution is not None and not status.cancelled:
                self._write_generations(self._evolution)
            if not self._configured:  # no trial finished, but the failed ones need a table too
                name = status.objective or optimization_key or UNNAMED_OBJECTIVE
                self._configure(self._objectives(name), [])

    def _write_curves(self, status: Overview, busy: int | None) -> None:
        """Append a point to each curve.

        If no trial has ended since the last point, only to the curve of busy slots.
        """
        values: dict[str, float] = {} if busy is None else {"search/slots_busy": busy}
        if status.ended > self._points_to:
            self._points_to = status.ended
            values |= {"search/done": status.done, "search/failed": status.failed}
            values |= self._best_so_far(status)
        self._events.scalars(values, status.ended)

    def _best_so_far(self, status: Overview) -> dict[str, float]:
        if isinstance(self._direction, Direction):
            best = None if status.best is None else status.best.value
            return {} if best is None else {BEST_SO_FAR: best}
        values = {FRONT: float(len(status.front))}
        for name, direction in self._direction.by_name.items():
            best = direction.best((trial.values[name] for trial in status.front), float)
            if best is not None:
                values[_best_so_far_in(name)] = best
        return values

    def _objectives(self, name: str | None) -> Mapping[str, Direction]:
        """Return the objectives by name; empty while a single one has no name yet."""
        if isinstance(self._direction, Directions):
            return self._direction.by_name
        return {} if name is None else {name: self._direction}

    @property
    def path(self) -> Path:
        """The file."""
        return self._events.path

    def abandon(self) -> None:
        """Close the file and write nothing more."""
        self._events.close()

    def _end_row(self, attempt: str) -> None:
        folder = self._trials / attempt
        make_folder(folder)
        # On HDFS the slot has a file of its own. By its name TensorBoard reads this one later.
        with EventFile(folder, "trial.driver") as events:
            events.hparams_end("cancelled")

    def _configure(self, objectives: Mapping[str, Direction], metrics: list[str]) -> None:
        room = max(_MOST_METRICS - len(objectives), 0)
        others = [name for name in metrics if name not in objectives][:room]
        shown = [
            hparams.Metric(objective_tag(name), display_name=f"{name} {direction.arrow}")
            for name, direction in objectives.items()
        ]
        shown += [hparams.Metric(objective_tag(name), display_name=name) for name in others]
        if self._stops:
            shown.append(hparams.Metric(LAST_STEP, display_name="last step"))
        as_text = frozenset(self._spec.as_text)  # once: it looks at all points
        columns = [
            hparams.HParam(name, _tensorboard_domain(domain, name in as_text))
            for name, domain in self._spec.columns.items()
        ]
        if self._evolution is not None and "generation" not in self._spec.columns:
            last = self._evolution.generations
            columns.append(hparams.HParam("generation", hparams.IntInterval(0, last)))
        self._events.hparams_config(columns, shown, fixed=self._spec.fixed)
        self._configured = True

    def _write_generations(self, evolution: PopulationSearch[Any]) -> None:
        for record in evolution.logbook[self._generations :]:
            generation = record["gen"]
            values = {
                f"generation/{name}": record[name]
                for name in evolution.logbook.header
                if name not in ("gen", "evals")
            }
            if record.get("std") is not None:
                values["spread/low"] = record["mean"] - record["std"]
                values["spread/high"] = record["mean"] + record["std"]
            known = {tag: value for tag, value in values.items() if value is not None}
            self._events.scalars(known, generation)
            self._write_population(evolution.population, generation)
            self._generations += 1

    def _write_population(self, population: list[dict[str, Any]], generation: int) -> None:
        for name, domain in (self._spec.space or {}).items():
            some = [params[name] for params in population if name in params]
            if not some:  # no member fulfils the condition
                continue
            values, meaning = _axis(domain, some)
            self._events.histogram(
                f"population/{name}", values, generation, buckets=_BUCKETS, description=meaning
            )


def _axis(domain: Domain, values: list[Any]) -> tuple[list[float], str]:
    """Return values as numbers for a histogram, and the meaning of the numbers."""
    if isinstance(domain, Choice):
        some = domain.values
        if isinstance(some, range):  # its ends are furthest from zero; it may be long
            some = (some[0], some[-1])
        if all(is_finite(value) for value in some):
            return [float(value) for value in values], ""
        positions = [domain.index(value) for value in values]
        known = enumerate(domain.values[:_MOST_CHOICES])
        names = (f"{number}: {escaped(hyperparameter(value))}" for number, value in known)
        return [float(position) for position in positions], ", ".join(names)
    if domain.log:
        return [math.log10(value) for value in values], "log10"
    return values, ""


def _tensorboard_domain(domain: Any, as_text: bool) -> Any:
    match domain:
        case Float():
            return hparams.RealInterval(domain.low, domain.high)
        case Integer():
            return hparams.IntInterval(domain.low, domain.high)
        case Choice() if len(domain.values) <= _MOST_CHOICES:
            values = dict.fromkeys(hparam(value, as_text=as_text) for value in domain.values)
            if any(isinstance(value, float) for value in values):
                return hparams.Discrete(sorted(float(value) for value in values))
            return hparams.Discrete(list(values))
    return None


def _layout(recorded: Sequence[str], direction: Goal) -> layout_pb2.Layout:
    """Return the Custom Scalars page, with all charts of the search. Its tags are patterns.

    Args:
        recorded: Names of the values recorded per generation, the last one a share; empty without
            generations.
        direction: The direction of the objective, or of each of several.
    """
    charts = [_lines("Best so far", BEST_SO_FAR)]
    if isinstance(direction, Directions):
        charts = [
            _lines(f"Best {name} so far", re.escape(_best_so_far_in(name)))
            for name in direction.names
        ]
        charts.append(_lines("Trials on the front", FRONT))
    charts += [
        _lines("Trials done and failed", "search/(done|failed)"),
        _lines("Slots busy", "search/slots_busy"),
    ]
    categories = [layout_pb2.Category(title="Search, by trials done", chart=charts)]
    if recorded:
        charts = [
            *_of_population(recorded),
            _lines("Diversity of the population", "generation/diversity"),
            _lines(_SHARES[recorded[-1]], f"generation/{recorded[-1]}"),
        ]
        categories.insert(0, layout_pb2.Category(title="Population, by generation", chart=charts))
    return layout_pb2.Layout(category=categories)


def _of_population(recorded: Sequence[str]) -> list[layout_pb2.Chart]:
    """Return the charts of the population's scores, for the recorded names."""
    if "best" not in recorded:
        return [_lines("Individuals on the population's front", "generation/front")]
    band = layout_pb2.MarginChartContent.Series(
        value="generation/mean", lower="spread/low", upper="spread/high"
    )
    return [
        _lines("Best", BEST_OF_GENERATION),
        layout_pb2.Chart(
            title="Mean of the population, ± one standard deviation",
            margin=layout_pb2.MarginChartContent(series=[band]),
        ),
    ]


def _best_so_far_in(objective: str) -> str:
    """Return the tag of the best values in one of several objectives."""
    return f"{BEST_SO_FAR}/{objective}"


def _lines(title: str, tag: str) -> layout_pb2.Chart:
    return layout_pb2.Chart(
        title=title, multiline=layout_pb2.MultilineChartContent(tag=[f"^{tag}$"])
    )
