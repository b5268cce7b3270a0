"""TensorBoard's view of a search: the columns of the HParams table, and the search as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.plugins.hparams import summary_v2 as hparams

from experiment.result import TrialResult
from search.direction import Direction
from search.evolution import DifferentialEvolution
from search.searcher import Searcher
from search.space import Choice, Float, Integer
from search.trial import UNNAMED_OBJECTIVE
from spark_jobs.events import EventFile
from spark_jobs.paths import RunPaths
from spark_jobs.slots import hparam, objective_tag
from spark_jobs.storage import make_folder

_MOST_METRICS = 3  # TensorBoard's table ticks five columns of metrics at first
_MOST_CHOICES = 100


class Board:
    """Writes the run `search/`; an `Observer`. The trials' own runs are written by the slots.

    Args:
        paths: Of the run.
        searcher: What drives the search.
        direction: Of the objective.
        columns: Each hyperparameter's domain, or None where there is none.
        as_text: Hyperparameters that are shown as text.
    """

    def __init__(
        self,
        paths: RunPaths,
        searcher: Searcher,
        direction: Direction,
        columns: dict[str, Any],
        as_text: tuple[str, ...],
    ) -> None:
        make_folder(paths.search)
        self._events = EventFile(paths.search)
        self._searcher, self._direction = searcher, direction
        self._columns, self._as_text = columns, as_text
        self._configured = False
        self._best: float | None = None
        self._ended = 0
        self._generations = 0

    def ended(self, result: TrialResult, objective: str | None) -> None:
        """See `Observer`."""
        if objective is not None and not self._configured:
            self._configure(objective, list(result.metrics))
        if result.status == "cancelled":  # its slot is gone, so nobody else says so
            _end_row(Path(result.logdir))
        if self._direction.better(result.value, self._best):
            self._best = result.value
        if self._best is not None:
            self._events.scalars({"search/best_so_far": self._best}, self._ended)
        self._ended += 1
        self._write_generations()

    def close(self, optimization_key: str | None) -> None:
        """Write what is missing and close the file."""
        if not self._configured:  # no trial finished; the failed ones still want a table
            self._configure(optimization_key or UNNAMED_OBJECTIVE, [])
        self._events.close()

    def _configure(self, objective: str, metrics: list[str]) -> None:
        others = [name for name in metrics if name != objective][: _MOST_METRICS - 1]
        arrow = "↑" if self._direction is Direction.MAX else "↓"
        shown = [hparams.Metric(objective_tag(objective), display_name=f"{objective} {arrow}")]
        shown += [hparams.Metric(objective_tag(name), display_name=name) for name in others]
        columns = [
            hparams.HParam(name, _tensorboard_domain(domain, as_text=name in self._as_text))
            for name, domain in self._columns.items()
        ]
        if isinstance(self._searcher, DifferentialEvolution) and "generation" not in self._columns:
            last = self._searcher.generations
            columns.append(hparams.HParam("generation", hparams.IntInterval(0, last)))
        self._events.hparams_config(columns, shown)
        self._configured = True

    def _write_generations(self) -> None:
        if not isinstance(self._searcher, DifferentialEvolution):
            return
        for record in self._searcher.logbook[self._generations :]:
            values = {name: record[name] for name in ("best", "mean", "std", "diversity")}
            known = {f"generation/{name}": v for name, v in values.items() if v is not None}
            self._events.scalars(known, record["gen"])
            self._generations += 1


def _end_row(folder: Path) -> None:
    if folder.is_dir():
        with EventFile(folder) as events:
            events.hparams_end("cancelled")


def _tensorboard_domain(domain: Any, *, as_text: bool) -> Any:
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
