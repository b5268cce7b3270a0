"""The tasks of each peer, their settings, and the columns of their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.benchmarks.main_job import best_use, log_normal_seconds


@dataclasses.dataclass(frozen=True)
class Column:
    """A measured value.

    Attributes:
        key: Its name in what a run measures.
        heading: The heading of the table's column.
        digits: Decimal places.
    """

    key: str
    heading: str
    digits: int


@dataclasses.dataclass(frozen=True)
class Task:
    """What a peer is to do.

    Attributes:
        name: Its name on the command line.
        kind: The function of `program.py` that measures it.
        title: The heading of its table.
        text: What it measures, for a reader of the report.
        columns: The measured values; the first sorts the table.
        settings: Settings of a full run.
        quick: Settings that differ in a quick run.
        limit: Seconds after which a run counts as hung.
        more_is_better: Whether the largest value of the first column is the best.
    """

    name: str
    kind: str
    title: str
    text: str
    columns: tuple[Column, ...]
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    limit: float = 300.0
    more_is_better: bool = False

    def chosen(self, quick: bool) -> dict[str, Any]:
        """Return the settings of a full or of a quick run."""
        return {**self.settings, **(self.quick if quick else {})}


PROCESSOR = Column("processor", "processor s", 1)
OTHERS = Column("others", "cores busy with other work", 2)

_LENGTHS = log_normal_seconds(60)
_SHORT = [length / 5 for length in log_normal_seconds(20)]
_USE = Column("use", "use of the slots", 2)
_TRIALS = Column("trials", "trials", 0)


def _fault(fault: str, what: str, limit: float | None = None) -> Task:
    return Task(
        name=fault,
        kind="fault",
        title=f"One of eight trials {what}",
        text="",
        columns=(),
        settings={
            "slots": 2,
            "trials": 8,
            "bad": 3,
            "fault": fault,
            "limit": limit,
            "patience": 90.0,
        },
        quick={},
    )


FAULTS = (
    _fault("raises", "raises"),
    _fault("exits", "ends its process"),
    _fault("hangs", "hangs", limit=30.0),
)

TIMED = (
    Task(
        name="null",
        kind="null",
        title="Trials that do nothing",
        text="On 2 slots, from the call to its return, in a warm session. The number of trials is "
        "what a peer runs in 10 s, at most 2,000.",
        columns=(
            Column("ms", "ms a trial", 2),
            Column("processor_ms", "processor ms a trial", 2),
            _TRIALS,
            OTHERS,
        ),
        settings={"slots": 2, "seconds": 10.0, "most": 2_000},
        quick={"seconds": 1.0, "most": 50},
    ),
    Task(
        name="sleeps",
        kind="sleeps",
        title="60 sleeps on 4 slots",
        text="Log-normal lengths of mean 0.5 s, the same for all. *Use* is their sum / (4 x the "
        "time from the call to its return), in a warm session. The best that any order without "
        f"waiting reaches with this list is {best_use(_LENGTHS, 4):.2f}.",
        columns=(_USE, PROCESSOR, OTHERS),
        settings={"slots": 4, "lengths": _LENGTHS},
        quick={"lengths": _SHORT},
        more_is_better=True,
    ),
    Task(
        name="evolution",
        kind="evolution",
        title="Differential evolution of 60 sleeps on 4 slots",
        text="Ten individuals and five generations of them, or as many trials without generations; "
        "the lengths above in the order in which trials start.",
        columns=(_USE, _TRIALS, PROCESSOR, OTHERS),
        settings={"slots": 4, "lengths": _LENGTHS, "popsize": 10},
        quick={"lengths": _SHORT},
        more_is_better=True,
    ),
    Task(
        name="keras",
        kind="keras",
        title="12 Keras trials on 2 slots",
        text="A small network on scikit-learn's handwritten digits, 5 epochs. *Cold* is a "
        "session's first call, *warm* its second.",
        columns=(
            Column("warm", "warm, s", 1),
            Column("cold", "cold, s", 1),
            PROCESSOR,
            OTHERS,
        ),
        settings={
            "slots": 2,
            "learning_rates": [0.001, 0.003, 0.01, 0.03],
            "dropouts": [0.2, 0.4, 0.6],
            "epochs": 5,
        },
        quick={"learning_rates": [0.001, 0.01], "dropouts": [0.2], "epochs": 1},
        limit=600.0,
    ),
    Task(
        name="start",
        kind="start",
        title="Start and end of a search",
        text="Seconds of calls with two trials that do nothing, on 2 slots: the first and the "
        "second of a session; and of opening and closing the session, without importing the "
        "library.",
        columns=(
            Column("second", "second call, s", 2),
            Column("first", "first call, s", 2),
            Column("open", "open, s", 2),
            Column("close", "close, s", 2),
            PROCESSOR,
            OTHERS,
        ),
        settings={"slots": 2, "trials": 2},
        quick={},
    ),
    Task(
        name="memory",
        kind="memory",
        title="Memory of the driver",
        text="Peak growth of the driver's Python process during a search of trials that do "
        "nothing, on 2 slots. The number of trials is what a peer ran before its time was over, at "
        "most 10,000; with few trials, the value says little. It includes what is free again, or "
        "was never Python's own, so it is more than the objects that `make bench` counts.",
        columns=(Column("kB", "kB a trial", 2), _TRIALS, PROCESSOR, OTHERS),
        settings={"slots": 2, "seconds": 50.0, "most": 10_000},
        quick={"seconds": 2.0, "most": 100},
    ),
)

TASKS = (*TIMED, *FAULTS)
