"""The contracts between a search algorithm, what it is started on and what evaluates its trials."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from search.checks import check_integer
from search.direction import Direction, Directions, Goal
from search.errors import ExperimentError, InvalidArgument, shown
from search.space.spaces import Space
from search.stopping import StoppingJudge
from search.trial import Evaluated, Outcome, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an algorithm is started on.

    Attributes:
        space: What to search.
        rng: Owned by the searcher from now on.
        direction: 'max' or 'min' of the objective, or of each of several.
        samples: How many trials, in all; None where the algorithm knows.
        points: Configurations to try first, counted among the samples.
        known: Configurations evaluated before, not counted among the samples.
        slots: Says how many trials may be out at once; the same number in a search that goes on
            with this one. Asked only where an algorithm works otherwise by it, since that may take
            seconds.
    """

    space: Space
    rng: random.Random
    direction: Goal = Direction.MAX
    samples: int | None = None
    points: Sequence[Mapping[str, Any]] = ()
    known: Sequence[Evaluated] = ()
    slots: Callable[[], int] = lambda: 1


class Searcher(Protocol):
    """An algorithm that proposes trials and learns from their outcomes.

    Not thread safe: one caller at a time. Several trials may be out at once, and outcomes may be
    told in any order, each once.
    """

    @property
    def total(self) -> int:
        """How many trials there will be in all."""

    @property
    def finished(self) -> bool:
        """True from the moment on when `ask` will never return a trial again.

        Trials may still be out then.
        """

    def ask(self) -> Trial | None:
        """Return the next trial, or None when there is none until something is told."""

    def tell(self, outcome: Outcome) -> None:
        """Take in the outcome of a trial that was asked for, failed ones too."""


@runtime_checkable
class Recalling(Protocol):
    """What a `Searcher` may be, too, whose `ask` takes long or may come to another trial elsewhere.

    As where a model is fitted: its last digits depend on the processor.
    """

    def ask_again(self, trial: Trial) -> Trial | None:
        """Do what `ask` did when it returned `trial`, without working it out.

        Returns:
            The same trial; another one, or None, where `ask` cannot have returned it.
        """


@runtime_checkable
class Generational(Protocol):
    """What a `Searcher` may be, too, that evaluates its trials in batches.

    The first trial of a batch is only asked for when all those of the one before were told.
    """

    @property
    def batch(self) -> int | None:
        """Trials of a batch; None where there are none after all."""


@runtime_checkable
class Judging(Protocol):
    """What a `Searcher` may be, too, that says itself which of its trials to end early."""

    @property
    def judge(self) -> StoppingJudge | None:
        """Hears what its trials report; None where none is to be ended."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether a trial took a place in its population.

    Attributes:
        trial: The trial.
        accepted: Did it take the place?
        holder: The trial that had the place; None where nobody had it, or a configuration that was
            known before the search. Where no trial is compared with a single other one, as in
            NSGA-II, a trial that has left the population, and None for one that was not accepted.
    """

    trial: int
    accepted: bool
    holder: int | None


@runtime_checkable
class Selecting(Protocol):
    """What a `Searcher` may be, too, that has a population in which trials replace each other."""

    @property
    def selections(self) -> Sequence[Selection]:
        """What the last `tell` has decided; each selection is there after one `tell` only."""


def selections_of(searcher: Searcher) -> Sequence[Selection]:
    """Return how the last outcome changed the population of a searcher; nothing without one."""
    return searcher.selections if isinstance(searcher, Selecting) else ()


def judge_of(searcher: Searcher) -> StoppingJudge | None:
    """Return what judges the trials of a searcher by what they report; None where nothing does."""
    return searcher.judge if isinstance(searcher, Judging) else None


def batch_of(searcher: Searcher) -> int | None:
    """Return how many trials a searcher has between two barriers; None where it has none."""
    return searcher.batch if isinstance(searcher, Generational) else None


def ask_again(searcher: Searcher, trial: Trial) -> Trial | None:
    """Ask a searcher for a trial that one like it was asked for before, as a journal has it.

    Returns:
        The same trial; another one, or None, where the search is not the same.
    """
    return searcher.ask_again(trial) if isinstance(searcher, Recalling) else searcher.ask()


class Algorithm(Protocol):
    """The settings of a search algorithm. Immutable: any number of searches can be started."""

    def start(self, problem: Problem) -> Searcher:
        """Return what searches a space.

        Raises:
            InvalidArgument: The algorithm cannot work on this problem.
        """

    def to_json(self) -> dict[str, Any]:
        """Return its type and arguments as JSON; two that are equal make the same trials."""


def one_direction(problem: Problem) -> Direction:
    """Return the direction of a problem's objective; `InvalidArgument` where it has several."""
    if isinstance(problem.direction, Directions):
        hint = "several objectives are for NSGA2, Optuna, Nevergrad, random search and grids"
        got = shown(problem.direction.to_json())
        raise InvalidArgument("direction", "'max' or 'min', of one objective", got, hint)
    return problem.direction


def samples_of(problem: Problem) -> int:
    """Return how many trials a problem says; `InvalidArgument` where it says none."""
    check_integer("samples", problem.samples, 1)
    assert problem.samples is not None
    return problem.samples


def check_own_budget(problem: Problem) -> None:
    """Raise `InvalidArgument` where a problem says how many trials, to who has its own number."""
    if problem.samples is not None:
        expected = "None, since the searcher knows how many trials there are"
        raise InvalidArgument("samples", expected, shown(problem.samples))


def drive(searcher: Searcher, evaluate: Callable[[Trial], Outcome]) -> list[Outcome]:
    """Run a search with a plain function, one trial after the other.

    Returns:
        The outcomes in the order of the trials.

    Raises:
        ExperimentError: The searcher has nothing to ask although it was told everything.
    """
    outcomes: list[Outcome] = []
    while not searcher.finished:
        trial = searcher.ask()
        if trial is None:
            raise ExperimentError(f"{type(searcher).__name__} waits for an outcome, none is out")
        outcome = evaluate(trial)
        outcomes.append(outcome)
        searcher.tell(outcome)
    return outcomes
