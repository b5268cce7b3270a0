"""The contracts between search algorithms, problems, and callers that evaluate the trials."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from search.checks import check_integer
from search.direction import Direction, Directions, Goal
from search.errors import ExperimentError, InvalidArgument, shown
from search.space.spaces import Space
from search.stopping.rules import StoppingJudge
from search.trial import Evaluated, Outcome, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The problem that an algorithm is started on.

    The searcher itself applies the constraint, the points and the prior observations.

    Attributes:
        space: The search space. Each trial has to be one that `space.allows_params` allows.
        rng: The generator, owned by the searcher from now on.
        direction: Direction of the objective, or of each of several.
        samples: The number of trials; None where the algorithm has its own.
        points: Configurations to try first, counted among the samples.
        known: Prior observations, not counted among the samples.
        slots: Returns the maximum number of trials in flight; the same number when the search is
            resumed. It may take seconds, so only algorithms that depend on it call it.
    """

    space: Space
    rng: random.Random
    direction: Goal = Direction.MAX
    samples: int | None = None
    points: Sequence[Mapping[str, Any]] = ()
    known: Sequence[Evaluated] = ()
    slots: Callable[[], int] = lambda: 1

    @property
    def given(self) -> list[Mapping[str, Any]]:
        """The configurations of the points and of the prior observations."""
        return [*self.points, *(item.params for item in self.known)]


class Searcher(Protocol):
    """An algorithm that proposes trials and learns from their outcomes.

    `ask` and `tell` are called one at a time; other threads may read `total` and `finished`
    meanwhile. Several trials may be in flight, and their outcomes may come in any order, each once.

    The names `judge`, `batch`, `exhausted`, `selections`, `acquisition_of`, `group_of` and
    `ask_again` are those of optional parts, such as `Judging`: a searcher has no other attributes
    of these names.
    """

    @property
    def total(self) -> int:
        """The number of trials of the whole search."""

    @property
    def finished(self) -> bool:
        """Whether `ask` will never return a trial again.

        Trials may still be in flight.
        """

    def ask(self) -> Trial | None:
        """Return the next trial, or None when there is none before the next `tell`.

        None is an error if no trial is in flight and the search is not `finished`.
        """

    def tell(self, outcome: Outcome) -> None:
        """Take in the outcome of a trial that `ask` returned, also of a failed one."""


class Recalling(Protocol):
    """An optional part of a `Searcher` whose `ask` is slow or depends on the machine.

    Such as one that fits a model: its last digits depend on the processor.
    """

    def ask_again(self, trial: Trial) -> Trial | None:
        """Change the searcher as `ask` did when it returned `trial`, without computing it again.

        Returns:
            The same trial; another one, or None, if `ask` cannot have returned it.
        """


@runtime_checkable
class Generational(Protocol):
    """An optional part of a `Searcher` that evaluates its trials in batches.

    `ask` returns the first trial of a batch once all outcomes of the batch before have come.
    """

    @property
    def batch(self) -> int | None:
        """The trials of a batch; None without batches."""


@runtime_checkable
class Judging(Protocol):
    """An optional part of a `Searcher` that stops some of its trials early."""

    @property
    def judge(self) -> StoppingJudge | None:
        """The judge that receives the trials' reports; None if it stops none."""


@runtime_checkable
class Exhaustible(Protocol):
    """An optional part of a `Searcher` that has fewer trials where the space is too small."""

    @property
    def exhausted(self) -> str | None:
        """Why there are fewer trials than asked for, in one sentence; None if there are not."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether a trial took a place in its population.

    Attributes:
        trial: The trial.
        accepted: Whether it took the place.
        holder: The trial that had the place; None for an empty place and for a prior observation.
            Where trials are not compared in pairs, as in NSGA-II and regularised evolution, a trial
            that left the population; None if this one was not accepted.
    """

    trial: int
    accepted: bool
    holder: int | None


class Selecting(Protocol):
    """An optional part of a `Searcher` with a population in which trials replace each other.

    Adapters do not have it: their libraries do not show the changes of a population.
    """

    @property
    def selections(self) -> Sequence[Selection]:
        """The selections made by the last `tell`; each appears after one `tell` only."""


class Expecting(Protocol):
    """An optional part of a `Searcher` that tries the points of which a model promises the most."""

    def acquisition_of(self, trial: int) -> float | None:
        """Return the value of the acquisition function at a trial in flight, the highest found.

        None for a trial that was proposed otherwise.
        """


@runtime_checkable
class Dividing(Protocol):
    """An optional part of a `Searcher` whose trials belong to groups that are not compared."""

    def group_of(self, trial: int) -> str:
        """Return the group of a trial that `ask` returned."""


def selections_of(searcher: Searcher) -> Sequence[Selection]:
    """Return the selections that the last outcome led to; empty without a population."""
    # By its name, as in all that is called for each trial: `isinstance` of a protocol takes longer
    # than most searchers do for a trial.
    selections: Sequence[Selection] = getattr(searcher, "selections", ())
    return selections


def acquisition_of(searcher: Searcher, trial: int) -> float | None:
    """Return the acquisition at a trial in flight that a model has proposed; else None."""
    of: Callable[[int], float | None] | None = getattr(searcher, "acquisition_of", None)
    return None if of is None else of(trial)


def judge_of(searcher: Searcher) -> StoppingJudge | None:
    """Return a searcher's judge of its trials; None without one."""
    return searcher.judge if isinstance(searcher, Judging) else None


def batch_of(searcher: Searcher) -> int | None:
    """Return how many trials a searcher has between two barriers; None without barriers."""
    return searcher.batch if isinstance(searcher, Generational) else None


def why_exhausted(searcher: Searcher) -> str | None:
    """Return why a searcher has fewer trials than asked for; None if it has not."""
    return searcher.exhausted if isinstance(searcher, Exhaustible) else None


def ask_again(searcher: Searcher, trial: Trial) -> Trial | None:
    """Ask a searcher for a trial that it proposed before, as recorded in a journal.

    Returns:
        The same trial; another one, or None, if the search has changed.
    """
    again: Callable[[Trial], Trial | None] | None = getattr(searcher, "ask_again", None)
    return searcher.ask() if again is None else again(trial)


class Algorithm(Protocol):
    """The settings of a search algorithm. Immutable: any number of searches can be started."""

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for a problem.

        Raises:
            InvalidArgument: The algorithm cannot search this problem.
        """

    def to_json(self) -> dict[str, Any]:
        """Return type and arguments as JSON; equal settings propose the same trials."""


def one_direction(problem: Problem) -> Direction:
    """Return the direction of a problem's objective; `InvalidArgument` if it has several."""
    if isinstance(problem.direction, Directions):
        hint = (
            "several objectives are for NSGA2, BayesianOptimization, Optuna, Nevergrad, random "
            "search and grids"
        )
        got = shown(problem.direction.to_json())
        raise InvalidArgument("direction", "'max' or 'min', of one objective", got, hint)
    return problem.direction


def samples_of(problem: Problem) -> int:
    """Return a problem's number of trials; `InvalidArgument` if it has none."""
    check_integer("samples", problem.samples, 1)
    assert problem.samples is not None
    return problem.samples


def check_own_budget(problem: Problem) -> None:
    """Raise `InvalidArgument` if a problem has `samples`, for an algorithm with its own number."""
    if problem.samples is not None:
        expected = "None, since the searcher's own arguments set the number of trials"
        raise InvalidArgument("samples", expected, shown(problem.samples))


def drive(searcher: Searcher, evaluate: Callable[[Trial], Outcome]) -> list[Outcome]:
    """Run a search with a plain function, one trial after the other.

    Returns:
        The outcomes in the order of the trials.

    Raises:
        ExperimentError: The searcher has no trial although none is in flight.
    """
    outcomes: list[Outcome] = []
    while not searcher.finished:
        trial = searcher.ask()
        if trial is None:  # an error, unless the space is used up
            break
        outcome = evaluate(trial)
        outcomes.append(outcome)
        searcher.tell(outcome)
    if not searcher.finished:
        name = type(searcher).__name__
        raise ExperimentError(f"{name} waits for an outcome, but no trial is in flight")
    return outcomes
