"""NSGA-II, the elitist genetic algorithm for several objectives.

Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II (IEEE
Transactions on Evolutionary Computation 6, 2002). Without a barrier it is the steady-state form of
Durillo, Nebro, Luna, Alba: On the effect of the steady-state selection scheme in multi-objective
genetic algorithms (EMO 2009), which finds better fronts there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from search.checks import check_flag, check_integer, check_number, make_plain
from search.direction import Directions
from search.errors import InvalidArgument
from search.evolution.genetic_operators import breed, make_toolbox
from search.evolution.population_search import Individual, PopulationSearch
from search.evolution.screening import Screen
from search.evolution.settings import read_candidates
from search.searcher import Problem, Searcher, check_own_budget
from search.space.points import check_points
from search.space.sampling import TRIES
from search.space.tried import Tried
from search.trial import Evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class NSGA2:
    """NSGA-II, for several objectives; see `NSGA2Search`.

    `popsize * (generations + 1)` trials.

    Args:
        popsize: Number of individuals, at least 4.
        generations: Number of generations after the initial population, at least 1.
        crossover: Probability of [0, 1] that a child has two parents.
        mutation: Probability of [0, 1] that a hyperparameter of a child mutates; None for one
            hyperparameter on average.
        generational: Whether each generation waits for the last trial of the one before.
        candidates: Children per screened trial, of which the most promising one is evaluated, at
            least 1; None for 20. Not with `generational`.

    Raises:
        InvalidArgument: A setting is out of its range.
    """

    popsize: int = 10
    generations: int = 9
    crossover: float = 0.9
    mutation: float | None = None
    generational: bool = False
    candidates: int | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("popsize", self.popsize, 4)
        check_integer("generations", self.generations, 1)
        expected, inside = "a number of [0, 1]", lambda rate: 0 <= rate <= 1
        check_number("crossover", self.crossover, expected, inside)
        if self.mutation is not None:
            check_number("mutation", self.mutation, f"{expected}, or None", inside)
        check_flag("generational", self.generational)
        candidates = read_candidates(self.candidates, generational=self.generational)
        object.__setattr__(self, "candidates", candidates)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        check_own_budget(problem)
        if not isinstance(problem.direction, Directions):
            expected = "several objectives, such as {'accuracy': 'max', 'latency': 'min'}"
            raise InvalidArgument("direction", expected, repr(problem.direction.value))
        return NSGA2Search(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        arguments = asdict(self)
        if self.generational:
            del arguments["candidates"]
        return {"type": "NSGA-II", **arguments}


class NSGA2Search(PopulationSearch[Individual]):
    """NSGA-II, with or without a barrier between generations.

    The first trials are `points`, then design points: Latin hypercubes of `popsize` points, until
    `popsize` configurations were evaluated and two have values. From then on a trial is a child of
    two individuals, each the winner of a tournament by dominance and crowding distance.

    By default, each evaluated trial joins the population, which then loses the individual that is
    last by non-dominated sorting and crowding distance. Of `candidates` children the most promising
    one is tried: by the ranks of the evaluated configurations near it and by its distance from
    them, see `Screen`; beyond 160 trials, fewer and fewer are screened. There is always another
    trial, whatever is in flight, and the same `rng` and the same order of `ask` and `tell` give the
    same trials. With `generational`, a generation joins as a whole: `ask` returns None while its
    last trials are in flight, the order of their outcomes does not matter, and nothing is screened.

    A trial that failed, or lacks an objective, does not join. No configuration (going by the values
    of the hyperparameters) is tried twice, so a space with fewer of them than trials ends the
    search; the user's points are tried in any case. A random point replaces a design point that the
    space's constraint does not allow, and a child where it allows none of `2 * candidates`, at
    least 20.

    Args:
        problem: The problem to search, with several objectives. The best of the prior observations
            that have values are the first population.
        settings: The settings.

    Attributes:
        toolbox: DEAP's toolbox with `population`, `select`, `parent`, `mate` and `mutate`; to
            replace one, register a function of the same signature before the first `ask`.
        logbook: DEAP's logbook, one record per `popsize` evaluated trials: gen, evals, front (the
            number of non-dominated individuals), diversity (the population's standard deviation in
            the unit cube, averaged over the axes), acceptance (the share of these trials that
            joined the population; None for the first record).
        hall_of_fame: DEAP's `ParetoFront` as of the last record.
    """

    def __init__(self, problem: Problem, settings: NSGA2) -> None:
        super().__init__(
            problem.space,
            direction=problem.direction,
            popsize=settings.popsize,
            generations=settings.generations,
            share="acceptance",
        )
        self._generational = settings.generational
        check_points(problem.points, self.total, "trials")
        self._tried = Tried(problem.space, problem.rng, problem.given)
        self._try_each_once(self._tried, len(problem.points))
        self.toolbox = make_toolbox(
            problem.space,
            popsize=settings.popsize,
            crossover=settings.crossover,
            mutation=settings.mutation,
            rng=problem.rng,
        )
        self._points = problem.points
        self._rng = problem.rng
        self._candidates = settings.candidates or 1
        screens = self._candidates > 1
        self._screen = Screen(problem.space, problem.direction) if screens else None
        self._design: list[list[float]] = []  # unused points of the Latin hypercube
        self._received: list[Individual] = []  # candidates since the last record of the logbook
        self._accepted = 0  # how many of these joined
        self._evaluated = 0  # candidates, prior observations included
        self._learn(problem.known)

    @property
    def batch(self) -> int | None:
        """The trials of a generation; None without a barrier."""
        return self.popsize if self._generational else None

    def _learn(self, known: Sequence[Evaluated]) -> None:
        first: dict[tuple[float, ...], Individual] = {}
        for item in known:
            candidate, scores = self._given(item.params), self._goal.scores(item)
            if scores is not None:
                candidate.fitness.values = scores
                first.setdefault(self._space.snap(candidate), candidate)
            self._add_to_screen(candidate)
        self._join(list(first.values()))

    def _add_to_screen(self, candidate: Individual) -> None:
        if self._screen is not None:
            missing = [None] * len(self._goal.each)
            valid = candidate.fitness.valid
            self._screen.add(candidate, *(candidate.fitness.values if valid else missing))

    def _given(self, params: Mapping[str, Any]) -> Individual:
        return Individual(self._space.encode(params), self._goal, params=params)

    def _next(self) -> Individual | None:
        if self._generational and self._in_flight and self._asked % self.popsize == 0:
            return None
        if self._asked < len(self._points):
            return self._given(self._points[self._asked])
        point = self._new_point()
        if point is None:
            self.total = self._asked
            if self._received and not self._in_flight:  # no outcome is to come
                self._record()
            return None
        self._tried.add(point)
        return Individual(point, self._goal)

    def _new_point(self) -> list[float] | None:
        if self._evaluated >= self.popsize and len(self._population) > 1:
            tries = max(TRIES, 2 * self._candidates)
            children = (breed(self.toolbox, self._population) for _ in range(tries))
            new = filter(self._tried.is_new, children)
            if self._screen is None:
                chosen = next(new, None)
            else:
                chosen = self._screen.choose(new, self._candidates, self._rng)
            return chosen or self._tried.another()
        if not self._design:
            self._design = list(self.toolbox.population())
        return self._tried.this_or_another(self._design.pop(0))

    def _take(self, candidate: Individual) -> None:
        self._add_to_screen(candidate)
        self._received.append(candidate)
        if not self._generational:
            self._accepted += self._select([candidate])
        if self._ends_generation(len(self._received)):
            self._record()

    def _record(self) -> None:
        """Record the candidates since the last record as a generation."""
        if self._generational:
            self._received.sort(key=operator.attrgetter("trial"))
            self._accepted = self._select(self._received)
        share = self._accepted / len(self._received) if self.logbook else None
        self._end_generation(self._received, share, evals=len(self._received))
        self._received = []
        self._accepted = 0

    def _select(self, candidates: Sequence[Individual]) -> int:
        """Let evaluated candidates join, and note which did; return how many."""
        before = self._population
        self._join(candidates)
        there = set(map(id, self._population))
        left = (member for member in before if id(member) not in there)
        for candidate in candidates:
            accepted = id(candidate) in there
            holder = next(left, None) if accepted else None
            self._selected(candidate, holder, accepted=accepted)
        return sum(id(candidate) in there for candidate in candidates)

    def _join(self, candidates: Sequence[Individual]) -> None:
        """Replace the population by the best of itself and of the candidates."""
        self._evaluated += len(candidates)
        valid = [candidate for candidate in candidates if candidate.fitness.valid]
        self._population = self.toolbox.select([*self._population, *valid], self.popsize)
