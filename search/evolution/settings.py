"""The settings of differential evolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from search.checks import check_flag, check_integer, check_number, make_plain, plain
from search.errors import InvalidArgument, shown

Mutation: TypeAlias = float | tuple[float, float]
"""A differential weight F, or two bounds between which each trial's is drawn (dither)."""

VARIANTS = ("rand1bin", "current-to-pbest1bin")
"""The variants by their usual names: mutation, number of differences, binomial crossover."""


CANDIDATES = 20
"""Default trial vectors, or children, per screened trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSettings:
    """Settings of differential evolution: `popsize * (generations + 1)` trials.

    Args:
        popsize: Number of individuals, at least 4, since a mutant is made of four different ones.
            Without `generational`, 8 to 10 are good up to 300 trials; 20 beyond, with 50 trials in
            flight, or with a noisy objective. It may be less than the number of trials in flight.
        generations: Number of generations after the initial population, at least 1.
        crossover: Crossover rate CR of [0, 1]: the probability with which a coordinate is the
            mutant's; one of them is in any case.
        mutation: Differential weight F of (0, 2], or two bounds between which each trial's is drawn
            evenly; None for 0.5 with `generational`, otherwise (0.5, 1.0).
        variant: 'rand1bin' or 'current-to-pbest1bin'; None for the first with `generational`,
            otherwise the second.
        generational: Whether each generation waits for the last trial of the one before.
        noisy: Whether evaluations of the same configuration differ. Not with `generational`.
        candidates: Trial vectors per screened trial, of which the most promising one is evaluated,
            at least 1; None for 20. Not with `generational`.

    Raises:
        InvalidArgument: A setting is out of its range.
    """

    popsize: int = 10
    generations: int = 3
    crossover: float = 0.7
    mutation: Mutation | None = None
    variant: str | None = None
    generational: bool = False
    noisy: bool = False
    candidates: int | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_flag("generational", self.generational)
        check_flag("noisy", self.noisy)
        if self.noisy and self.generational:
            hint = "a generational search repeats no trial"
            raise InvalidArgument("noisy", "False with generational=True", "True", hint)
        defaults = ("rand1bin", 0.5) if self.generational else ("current-to-pbest1bin", (0.5, 1.0))
        for name, default in zip(("variant", "mutation"), defaults, strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        candidates = read_candidates(self.candidates, generational=self.generational)
        object.__setattr__(self, "candidates", candidates)
        check_integer("popsize", self.popsize, 4)
        check_integer("generations", self.generations, 1)
        if not isinstance(self.variant, str) or self.variant not in VARIANTS:
            expected = " or ".join(map(repr, VARIANTS))
            raise InvalidArgument("variant", expected, shown(self.variant))
        check_number("crossover", self.crossover, "a number of [0, 1]", lambda rate: 0 <= rate <= 1)
        self._check_mutation()

    def _check_mutation(self) -> None:
        given, weights = self.mutation, [self.mutation]
        if isinstance(given, tuple | list) and len(given) == 2:
            weights = [plain(weight) for weight in given]
            object.__setattr__(self, "mutation", tuple(weights))
        for weight in weights:
            expected = "a number of (0, 2], or two of them"
            check_number("mutation", weight, expected, lambda weight: 0 < weight <= 2)


def read_candidates(candidates: Any, *, generational: bool) -> int | None:
    """Return the number of points drawn per screened trial; None in a generational search.

    Raises:
        InvalidArgument: It is no positive integer, or is given with `generational`.
    """
    if generational and candidates is not None:
        hint, got = "a generational search does not screen", shown(candidates)
        raise InvalidArgument("candidates", "None with generational=True", got, hint)
    if generational:
        return None
    chosen: int = CANDIDATES if candidates is None else candidates
    check_integer("candidates", chosen, 1)
    return chosen
