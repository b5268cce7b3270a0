"""The specification of a search, independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiment.results.result import Result, Results
from experiment.results.status import Observer
from experiment.results.trial_result import TrialResult
from experiment.setup.settings import Settings
from search.searcher import Searcher
from search.space.spaces import LARGEST_INTEGER, Choice, Space
from search.trial import Evaluated
from search.values import is_finite
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """One search by the arguments of a call: `run_search` runs it, `plan` plans it.

    Attributes:
        call: The name of the public function.
        spark: The user's SparkSession.
        train: The train function.
        settings: The settings that all searches share.
        seed: The searcher's seed.
        searcher: The searcher; a run uses it up.
        space: The search space; None for a list of points.
        points: The points; empty if there is a space.
        algorithm: The searcher's type and arguments, for the manifest.
        known: The searcher's prior observations, from other runs.
        slots: Number of parallel trials that the searcher was created for; None if it depends on
            none.
        grows: Whether trials are added while it runs, so that their number is not known before.
        observers: Observers that receive each result.
        opened: Called before the first trial with the run's folder, the settings of HDFS, and the
            number of slots requested from Spark.
        grown: Called with the number of slots requested when it has grown.
        workers_argument: The argument of the call that sets the workers of a trial, for errors.
        returned: Converts the result of all trials to the value that the call returns.
    """

    call: str
    spark: Any
    train: Callable[..., Any]
    settings: Settings
    seed: int
    searcher: Searcher
    space: Space | None
    points: Sequence[Mapping[str, Any]] = ()
    algorithm: Mapping[str, Any] | None = None
    known: Sequence[Evaluated] = ()
    slots: int | None = None
    grows: bool = False
    observers: Sequence[Observer] = ()
    opened: Callable[[Location, HadoopSettings, int], None] = lambda root, hadoop, slots: None
    grown: Callable[[int], None] = lambda slots: None
    workers_argument: str = "workers_per_trial"
    returned: Callable[[Result], Result | Results | TrialResult] = lambda result: result

    @property
    def columns(self) -> dict[str, Any]:
        """The domain of each hyperparameter; None for a list of points."""
        if self.space is not None:
            return dict(self.space)
        return dict.fromkeys(name for point in self.points for name in point)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Hyperparameters with the same value in all trials."""
        if self.space is None:
            texts = {
                name: {repr(p[name]) if name in p else None for p in self.points}
                for name in self.columns
            }
            return tuple(name for name, different in texts.items() if len(different) == 1)
        return tuple(
            name for name, d in self.space.items() if d.size == 1 and name not in self.conditional
        )

    @property
    def conditional(self) -> tuple[str, ...]:
        """Hyperparameters of a space that only some trials have."""
        return () if self.space is None else self.space.conditional

    @property
    def as_text(self) -> tuple[str, ...]:
        """Hyperparameters whose values are of several types, which a table column cannot hold."""
        values: dict[str, Sequence[Any]]
        if self.space is None:
            values = {name: [p[name] for p in self.points if name in p] for name in self.columns}
        else:
            values = {
                # A range may be long; its ends show whether some values are too large.
                name: (0, domain.values[0], domain.values[-1])
                if isinstance(domain.values, range)
                else domain.values
                for name, domain in self.space.items()
                if isinstance(domain, Choice)
            }
        return tuple(name for name, some in values.items() if len({_kind(v) for v in some}) > 1)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    too_large = isinstance(value, int) and abs(value) > LARGEST_INTEGER
    return "number" if is_finite(value) and not too_large else "text"
