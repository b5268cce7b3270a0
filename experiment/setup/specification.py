"""What one search is, before it meets Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiment.results.result import Result, Results
from experiment.results.status import Observer
from experiment.setup.settings import Settings
from search.searcher import Searcher
from search.space.spaces import LARGEST_INTEGER, Choice, Space
from search.trial import Evaluated
from search.values import is_finite
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """One search, as the arguments of a call say it: `run_search` runs it, `plan` plans it.

    Attributes:
        call: The name of the public function.
        spark: The user's SparkSession.
        train: The train function.
        settings: The settings that all searches share.
        seed: The seed that the searcher was made with.
        searcher: Makes the trials; a run uses it up.
        space: None for explicit points.
        points: The explicit points; empty otherwise.
        algorithm: What the manifest says of the searcher.
        known: Prior observations that the searcher was given, from other runs.
        slots: How many trials at once the searcher was made for; None where it does not matter.
        grows: Do trials come while it runs, so that nobody knows beforehand how many?
        observers: Told of each result.
        opened: Called before the first trial with the run's folder, where HDFS is, and how many
            slots Spark is asked for.
        grown: Called with how many they are when they have become more.
        returned: Makes what the call returns of the result of all trials.
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
    returned: Callable[[Result], Result | Results] = lambda result: result

    @property
    def columns(self) -> dict[str, Any]:
        """Each hyperparameter with its domain, or None for explicit points."""
        if self.space is not None:
            return dict(self.space)
        return dict.fromkeys(name for point in self.points for name in point)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Hyperparameters that are the same in all trials."""
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
        """Hyperparameters of a space that some trials get and others do not."""
        return () if self.space is None else self.space.conditional

    @property
    def as_text(self) -> tuple[str, ...]:
        """Hyperparameters whose values are of several types, which a table column cannot hold."""
        values: dict[str, Sequence[Any]]
        if self.space is None:
            values = {name: [p[name] for p in self.points if name in p] for name in self.columns}
        else:
            values = {
                # Of a range, which may be long, its ends say whether some are too large.
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
