"""DEHB: differential evolution and Hyperband, for trials that can be cut short.

Awad, Mallik, Hutter: DEHB: Evolutionary Hyperband for Scalable, Robust and Efficient Hyperparameter
Optimization (IJCAI 2021).
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search.adapters.adapted import AdaptedSearch, needed_by
from search.checks import check_integer, make_plain
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher, one_direction
from search.space.domains import nearest
from search.space.spaces import Float, Integer

_WORST = sys.float_info.max
"""Loss of a trial that failed. Not infinity: DEHB takes that for one that was never evaluated."""


_DRAWS = 1_000  # for a configuration that the constraint allows; of some levels it may allow none


@dataclass(frozen=True, slots=True)
class DehbSearcher:
    """Settings of a search by DEHB. Needs `pip install dehb`.

    One hyperparameter is the fidelity: how long, or on how much data, a trial trains. Its levels
    are its high bound, that divided by `eta`, and so on as long as they are not below its low
    bound. DEHB chooses among them: most trials have the smallest, good configurations are promoted
    to `eta` times as much, and so on up to the largest. Trials of every fidelity count towards the
    samples, and any of them may be the best.

    A random configuration takes the place of one that the space's constraint does not allow.

    There is no barrier: the next bracket begins while trials of the last one are in flight. The
    user's points and prior observations replace worse members of the population of the nearest
    fidelity.

    Args:
        fidelity: The name of a `Float` or an `Integer` of the space with both bounds above zero,
            such as 'epochs', so far apart that there are two levels. Levels are rounded to its
            values; the rounded levels must differ.
        eta: Ratio of one fidelity to the next, and of trials to promoted trials; at least 2.

    Raises:
        InvalidArgument: DEHB is missing, or an argument is invalid.
    """

    fidelity: str
    eta: int = 3

    def __post_init__(self) -> None:
        _dehb()
        make_plain(self)
        if not isinstance(self.fidelity, str):
            raise InvalidArgument("fidelity", "the name of a hyperparameter", shown(self.fidelity))
        check_integer("eta", self.eta, 2)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        domain = problem.space.get(self.fidelity)
        if not isinstance(domain, Float | Integer) or domain.when is not None:
            expected = "the name of a number of the space that has no condition"
            raise InvalidArgument("fidelity", expected, shown(self.fidelity))
        if not 0 < domain.low < domain.high:
            expected = f"{self.fidelity!r} between different bounds above zero"
            raise InvalidArgument("fidelity", expected, shown(domain))
        if len(problem.space) == 1:
            expected = "hyperparameters besides the fidelity"
            raise InvalidArgument("space", expected, shown(dict(problem.space)))
        seed = problem.rng.getrandbits(32)
        return AdaptedSearch(
            problem,
            lambda: _Brackets(problem, self.fidelity, domain, self.eta, seed),
            own_numbers=True,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "dehb", **asdict(self)}


class _Brackets:
    """DEHB as an `Optimiser`; proposals are its jobs."""

    exhausted = False

    def __init__(
        self, problem: Problem, fidelity: str, domain: Float | Integer, eta: int, seed: int
    ) -> None:
        self._space = problem.space
        self._weight = one_direction(problem).weight
        self._fidelity = fidelity
        self._axis = list(problem.space).index(fidelity)
        self._rng = random.Random(seed)
        # No ConfigSpace: DEHB uses it only to convert to and from the unit cube.
        self._dehb = _quiet(_dehb().DEHB)(
            dimensions=len(problem.space) - 1,
            min_fidelity=domain.low,
            max_fidelity=domain.high,
            eta=eta,
            seed=seed,
            n_workers=1,  # DEHB would start as many processes; we only ask and tell
            save_freq="end",  # never reached: DEHB does not run the search itself
        )
        self._levels = {level: nearest(domain, level) for level in self._dehb.fidelities}
        _check_levels(fidelity, list(self._levels.values()), eta)

    def propose(self) -> tuple[Any, dict[str, Any]]:
        job = self._dehb.ask()
        level = self._levels[job["fidelity"]]
        params = self._params(job["config"], level)
        for _ in range(_DRAWS):
            if self._space.allows_params(params):
                break
            # Another configuration takes the place of one that the constraint does not allow: DEHB
            # would count that one as a trial of this level.
            job["config"] = np.array([self._rng.random() for _ in job["config"]])
            self._dehb.config_repository.configs[job["config_id"]].config = job["config"]
            params = self._params(job["config"], level)
        return job, params

    def _params(self, config: Any, level: float) -> dict[str, Any]:
        point = [float(unit) for unit in config]
        point.insert(self._axis, self._space[self._fidelity].encode(level))
        return self._space.decode(point) | {self._fidelity: level}

    def learn(self, proposal: Any, value: float | None) -> None:
        self._dehb.tell(proposal, {"fitness": self._loss(value), "cost": 1.0})

    def reject(self, proposal: Any) -> None:
        self.learn(proposal, None)

    def add(self, params: Mapping[str, Any], value: float | None) -> bool:
        if value is None:  # no member is worse: those not yet tried may be good
            return True
        level = min(self._levels, key=lambda level: abs(level - params[self._fidelity]))
        population, loss = self._dehb.de[level], self._loss(value)
        place = int(np.argmax(population.fitness))
        if loss < population.fitness[place]:
            point = self._space.encode(params)
            del point[self._axis]
            population.population[place] = point
            population.fitness[place] = loss
            population.population_ids[place] = self._dehb.config_repository.announce_config(
                np.array(point), level
            )
        return True

    def _loss(self, value: float | None) -> float:
        return _WORST if value is None else -self._weight * value


def _check_levels(fidelity: str, levels: list[float], eta: int) -> None:
    """Refuse a fidelity of a single level, or whose levels are the same once rounded."""
    if len(levels) == 1:
        expected = f"{fidelity!r} with at least two levels, each 1 / {eta} of the one above"
        hint = "lower its low bound, raise its high bound, or lower eta"
        raise InvalidArgument("fidelity", expected, f"{shown(levels[0])} alone", hint)
    if any(low >= high for low, high in itertools.pairwise(levels)):
        hint = "use a smaller step, or none, raise its low bound, or raise eta"
        raise InvalidArgument(
            "fidelity", f"levels of {fidelity!r} that ascend", shown(levels), hint
        )


def _quiet(dehb: Any) -> Any:
    """Return a DEHB that writes no log file, for which it would start a thread."""

    class Quiet(dehb):  # type: ignore[misc]  # known only now
        def _setup_logger(self, kwargs: dict[str, Any]) -> None:
            self.output_path = Path()  # DEHB creates this folder if missing, and reads it
            self.logger = logging.getLogger("dehb")

    return Quiet


def _dehb() -> Any:
    with needed_by("DehbSearcher", "dehb"):
        import dehb
    return dehb
