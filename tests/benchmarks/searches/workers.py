"""A simulation of workers whose evaluations take different times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.searcher import Searcher
from search.trial import Outcome


@dataclass(frozen=True)
class Simulated:
    """The result of a simulated search.

    Attributes:
        seconds: Seconds until the target was reached, or until the search ended.
        reached: Whether the target was reached.
        use: The busy share of the workers' time until then.
    """

    seconds: float
    reached: bool
    use: float


@dataclass(frozen=True)
class End:
    """The end of an evaluation.

    Attributes:
        seconds: Its time.
        value: The value.
        busy: The seconds that the workers have been busy until then, all added up.
    """

    seconds: float
    value: float
    busy: float


def ends(
    searcher: Searcher,
    objective: Callable[[Mapping[str, Any]], float],
    *,
    workers: int,
    sigma: float,
    rng: random.Random,
) -> Iterator[End]:
    """Minimise with workers that ask as soon as they are free, and yield the ends of evaluations.

    Args:
        searcher: The searcher; its calls take no time.
        objective: The function of hyperparameters.
        workers: Maximum evaluations at a time.
        sigma: Standard deviation of the logarithm of an evaluation's duration, whose median is 1 s.
        rng: The generator of the durations.
    """
    now = ended = 0.0
    in_flight: list[tuple[float, float, int, float]] = []  # end, begin, trial, value
    while True:
        while len(in_flight) < workers and (trial := searcher.ask()) is not None:
            seconds = rng.lognormvariate(0, sigma)
            heapq.heappush(in_flight, (now + seconds, now, trial.id, objective(trial.params)))
        if not in_flight:
            return
        now, begin, number, value = heapq.heappop(in_flight)
        ended += now - begin
        yield End(now, value, ended + sum(now - begin for _, begin, _, _ in in_flight))
        searcher.tell(Outcome(number, "finished", value))


def simulate(
    searcher: Searcher,
    objective: Callable[[Mapping[str, Any]], float],
    *,
    workers: int,
    sigma: float,
    target: float,
    rng: random.Random,
) -> Simulated:
    """Minimise as `ends` does, until a value is at most `target`."""
    for end in ends(searcher, objective, workers=workers, sigma=sigma, rng=rng):
        if end.value <= target:
            break
    return Simulated(end.seconds, end.value <= target, end.busy / (workers * end.seconds))


def expected_running_time(runs: Sequence[Simulated]) -> float:
    """Return the time spent in all runs by the number of those that reached the target.

    Hansen et al.: COCO, a platform for comparing continuous optimizers (2021), section 5. Infinite
    where none reached it.
    """
    reached = sum(run.reached for run in runs)
    return sum(run.seconds for run in runs) / reached if reached else float("inf")
