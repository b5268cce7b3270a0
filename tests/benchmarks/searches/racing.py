"""How often a race of repeats finds the right configuration: a table of `make bench-search`.

In a simulated search of 30 configurations, one trial after the other, the value of a repeat is the
quality of the configuration, plus the difficulty of the repeat, which all configurations share
(standard deviation 2), plus noise (0.5). The best configuration is 0.5 better than the bound of the
others, whose distance from it is exponential with a mean of 1 / 0.7.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from search.direction import Direction
from search.stopping.racing import StudentRacing, WilcoxonRacing
from search.stopping.rules import AnyOf, StoppingRule

RULES: Mapping[str, Sequence[StoppingRule]] = {
    "none": (),
    "`StudentRacing()`": (StudentRacing(),),
    "`WilcoxonRacing()`": (WilcoxonRacing(),),
}
REPEATS = (3, 5, 10, 20)

SEEDS = 500
"""Searches of each row."""

_CONFIGURATIONS = 30
_BEST = 0.5
_NOISE = 0.5


def _of_heavy_tails(rng: random.Random) -> float:
    """Return a number of Student's t-distribution with 3 degrees of freedom, of variance 1."""
    squares = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
    return rng.gauss(0, 1) / math.sqrt(squares)


def _skewed(rng: random.Random) -> float:
    """Return a number whose negative is log-normal, of mean 0 and variance 1."""
    return (math.exp(0.5) - rng.lognormvariate(0, 1)) / math.sqrt(math.e * (math.e - 1))


NOISES: Mapping[str, Callable[[random.Random], float]] = {
    "normal": lambda rng: rng.gauss(0, 1),
    "heavy tails": _of_heavy_tails,
    "skewed": _skewed,
}


@dataclass(frozen=True, kw_only=True)
class Race:
    """The end of a simulated search.

    Attributes:
        found: Whether its best finished trial has the best configuration.
        share: The share of the repeats that were made.
    """

    found: bool
    share: float


def race(seed: int, *, rules: Sequence[StoppingRule], repeats: int, noise: str = "normal") -> Race:
    """Simulate a search; with the same seed all rules see the same values."""
    rng = random.Random(seed)
    qualities = [_BEST, *(-rng.expovariate(0.7) for _ in range(_CONFIGURATIONS - 1))]
    rng.shuffle(qualities)
    difficulties = [rng.gauss(0, 2) for _ in range(repeats)]
    draw = NOISES[noise]
    values = [
        [quality + difficulty + _NOISE * draw(rng) for difficulty in difficulties]
        for quality in qualities
    ]
    judge, made, means = AnyOf([rule.start(Direction.MAX) for rule in rules]), 0, {}
    for trial, of_trial in enumerate(values):
        for step, value in enumerate(of_trial):
            made += 1
            # The end of a trial arrives with its last report, so this does not stop it any more.
            if judge.report(trial, step, value) is not None and step < repeats - 1:
                judge.ended(trial, "stopped")
                break
        else:
            means[trial] = fmean(of_trial)
            judge.ended(trial, "finished")
    found = qualities[max(means, key=means.__getitem__)] == _BEST
    return Race(found=found, share=made / (_CONFIGURATIONS * repeats))


def rows(seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: the share of right configurations, and of repeats made."""
    yield ("noise", "repeats", *RULES)
    for noise, repeats in itertools.product(NOISES, REPEATS):
        cells = []
        for rules in RULES.values():
            races = [race(seed, rules=rules, repeats=repeats, noise=noise) for seed in seeds]
            found, share = fmean(it.found for it in races), fmean(it.share for it in races)
            cells.append(f"{found:.1%} right, {share:.0%} made")
        yield (noise, f"{repeats}", *cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of searches of each row")
    for number, row in enumerate(rows(range(parser.parse_args().seeds))):
        print("| " + " | ".join(row) + " |", flush=True)
        if not number:
            print("|" + " --- |" * len(row))


if __name__ == "__main__":
    main()
