"""A simulation of workers whose evaluations take different times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.searcher import Searcher
from search.trial import Outcome


@dataclass(frozen=True)
class Simulated:
    """What became of a search.

    Attributes:
        seconds: Until the target was reached, or until the search was over.
        reached: Whether the target was.
        use: The share of the workers' time until then that they were busy.
    """

    seconds: float
    reached: bool
    use: float


def simulate(
    searcher: Searcher,
    objective: Callable[[Mapping[str, Any]], float],
    *,
    workers: int,
    sigma: float,
    target: float,
    rng: random.Random,
) -> Simulated:
    """Minimise with workers that ask as soon as they are free, until a value is at most `target`.

    Args:
        searcher: Asked and told; that takes no time.
        objective: Returns the value of hyperparameters.
        workers: Evaluations at a time, at the most.
        sigma: Standard deviation of the logarithm of an evaluation's duration, whose median is 1 s.
        target: Ends the search.
        rng: Draws the durations.
    """
    now = busy = 0.0
    out: list[tuple[float, float, int, float]] = []  # end, begin, trial, value
    while True:
        while len(out) < workers and (trial := searcher.ask()) is not None:
            seconds = rng.lognormvariate(0, sigma)
            heapq.heappush(out, (now + seconds, now, trial.id, objective(trial.params)))
        if not out:
            return Simulated(now, False, busy / (workers * now))
        now, begin, number, value = heapq.heappop(out)
        busy += now - begin
        if value <= target:
            busy += sum(now - begin for _, begin, _, _ in out)
            return Simulated(now, True, busy / (workers * now))
        searcher.tell(Outcome(number, "finished", value))


def expected_running_time(runs: Sequence[Simulated]) -> float:
    """Return the time spent in all runs by the number of those that reached the target.

    Hansen et al.: COCO, a platform for comparing continuous optimizers (2021), section 5. Infinite
    where none reached it.
    """
    reached = sum(run.reached for run in runs)
    return sum(run.seconds for run in runs) / reached if reached else float("inf")
