"""Hyperband without a barrier; differential evolution or a model proposes its configurations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from search.checks import check_flag, check_integer, make_plain
from search.errors import InvalidArgument, shown
from search.fidelity.bracket import Bracket, bracket_sizes, rungs_between
from search.fidelity.growth import Growth
from search.fidelity.proposals import Evolved, Modelled, Proposals
from search.searcher import Problem, Searcher, check_own_budget, one_direction
from search.space.points import check_points
from search.space.tried import NONE_LEFT, Tried
from search.stopping.rules import StoppingJudge
from search.trial import Outcome, Trial

MODELS = ("evolution", "gaussian_process")
"""The models that propose new configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperband:
    """Settings of Hyperband; see `HyperbandSearch`.

    Args:
        max_epochs: Epochs, or other steps that trials report, of a full training, at least 2.
        reduction: Ratio of the epochs of one rung to those of the rung below, and of the trials of
            one rung to those of the rung above; at least 2.
        min_epochs: Minimum epochs of a trial, at least 1.
        iterations: How often all brackets are run, at least 1.
        model: The model that proposes new configurations: 'evolution' (differential evolution) or
            'gaussian_process'.
        progressive: Whether trials train longer only while that changes the ranking of the best;
            see `Growth`. Then there is one bracket per iteration, that with the shortest trials.

    Raises:
        InvalidArgument: A setting is out of its range.
    """

    max_epochs: int = 81
    reduction: int = 3
    min_epochs: int = 1
    iterations: int = 1
    model: str = "evolution"
    progressive: bool = False

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("max_epochs", self.max_epochs, 2)
        check_integer("reduction", self.reduction, 2)
        check_integer("min_epochs", self.min_epochs, 1)
        check_integer("iterations", self.iterations, 1)
        check_flag("progressive", self.progressive)
        if self.reduction > self.max_epochs:
            expected = f"at least reduction, {self.reduction}"
            raise InvalidArgument("max_epochs", expected, shown(self.max_epochs))
        if self.min_epochs * self.reduction > self.max_epochs:
            expected = f"at most max_epochs / reduction, {self.max_epochs} / {self.reduction}"
            raise InvalidArgument("min_epochs", expected, shown(self.min_epochs))
        if not isinstance(self.model, str) or self.model not in MODELS:
            raise InvalidArgument("model", " or ".join(map(repr, MODELS)), shown(self.model))

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        check_own_budget(problem)
        if problem.known:
            hint = "its trials resume from checkpoints of the same run; use points="
            raise InvalidArgument("warm_start", "none for hyperband_search", "some", hint)
        return HyperbandSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "hyperband", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A trial: a configuration in a rung of a bracket.

    Attributes:
        bracket: The bracket.
        configuration: The configuration's number.
        rung: The rung, from 0 for the lowest of all brackets.
        point: The configuration's point of the unit cube, at which its values lie.
        params: The configuration.
    """

    bracket: Bracket
    configuration: int
    rung: int
    point: list[float]
    params: Mapping[str, Any]


class HyperbandSearch:
    """Brackets of successive halving: most trials are short, and the best are promoted.

    Hyperband (Li et al., JMLR 18, 2018): each bracket begins with a number of configurations that
    train for a few epochs; of the trials of a rung, one in `reduction` is promoted to the next,
    where it trains `reduction` times as long, up to `max_epochs`. The brackets of an iteration
    differ in the length of their shortest trials, since short trials may mislead.

    A promoted trial is a new trial with the same hyperparameters. `Trial.parent` is the trial
    from whose checkpoint it resumes; without one it trains from the start. `Trial.max_steps` is the
    number of epochs after which it ends, counted from the start of the training.

    There is no barrier. A free slot gets, in this order: a trial that will be among the best of its
    rung however the others end; a new configuration, also of the next bracket; the best of a rung
    so far, as in ASHA, so that the slot waits for no other trial. So with few slots the brackets
    are those of Hyperband, and with many no slot waits while a rung has a trial to promote.

    New configurations come from differential evolution as in DEHB, see `Evolved`, or from a
    Gaussian process, see `Modelled`. No configuration is proposed twice, except the user's points:
    a space with fewer of them ends the search early. A failed or stopped trial is not promoted, so
    its bracket has fewer trials.

    The same `rng` and the same order of `ask` and `tell` give the same trials; a search that is
    resumed keeps the trials that it had.

    Args:
        problem: The problem to search, with one objective and without prior observations. Its
            points are the first configurations.
        settings: The settings.

    Attributes:
        rungs: The epochs of each rung, ascending.
    """

    def __init__(self, problem: Problem, settings: Hyperband) -> None:
        self._direction = one_direction(problem)
        self._space = problem.space
        self._points = problem.points
        self._seed = problem.rng.getrandbits(64)
        self._rng = random.Random(self._seed)
        self.rungs = rungs_between(settings.min_epochs, settings.max_epochs, settings.reduction)
        shapes = bracket_sizes(len(self.rungs), settings.reduction)
        self._brackets = [
            Bracket(first, sizes, settings.reduction, self._direction)
            for first, sizes in (shapes[:1] if settings.progressive else shapes)
            * settings.iterations
        ]
        check_points(problem.points, self._room, "configurations")
        self._tried = Tried(self._space, self._rng, problem.points)
        kind: type[Modelled | Evolved] = (
            Modelled if settings.model == "gaussian_process" else Evolved
        )
        self._proposals: Proposals = kind(
            self._space, self._direction, rungs=len(self.rungs), tried=self._tried, rng=self._rng
        )
        self._growth = Growth(self.rungs, self._direction) if settings.progressive else None
        self._runs: dict[int, _Run] = {}
        self._in_flight: set[int] = set()
        self._configurations = 0
        self._exhausted: str | None = None
        self._close(len(problem.points) + self._tried.left(self._room - len(problem.points)))

    @property
    def total(self) -> int:
        """The number of trials; lower once some have failed, or it has ended early."""
        if self._stays_short:
            return self._asked
        return sum(bracket.total for bracket in self._brackets)

    @property
    def finished(self) -> bool:
        """Whether all trials were handed out."""
        return self._asked >= self.total

    @property
    def exhausted(self) -> str | None:
        """Why there are fewer trials than the brackets have; None if there are not."""
        if self._growth is not None and self._growth.compared and self._stays_short:
            return self._growth.why
        return self._exhausted

    @property
    def judge(self) -> StoppingJudge | None:
        """Receives the reports of a `progressive` search, and stops no trial."""
        return self._growth

    def ask(self) -> Trial | None:
        """Return the next trial; None while a rung waits for trials in flight."""
        return self._next(None)

    def ask_again(self, trial: Trial) -> Trial | None:
        """Return the same trial without proposing its configuration again."""
        return self._next(trial)

    def tell(self, outcome: Outcome) -> None:
        """Take in the outcome of a trial; a cancelled one stays in flight, it runs on a resume."""
        if outcome.status == "cancelled":
            return
        run = self._runs[outcome.trial]
        score = outcome.value if self._direction.better(outcome.value, None) else None
        self._proposals.take(run.point, run.rung, score)
        kept = score if outcome.status == "finished" else None  # a stopped trial has no model
        run.bracket.ended(run.rung, outcome.trial, kept)
        if self._growth is not None and kept is not None:
            self._growth.reached(run.configuration, run.rung, kept)
        # Last: with none in flight, `total` looks at the rungs, and other threads may read it.
        self._in_flight.remove(outcome.trial)

    @property
    def _asked(self) -> int:
        return len(self._runs)

    @property
    def _stays_short(self) -> bool:
        """Whether all that is left are trials in rungs that a `progressive` search does not use."""
        if self._growth is None or self._in_flight or self._room:
            return False
        return self._promotion(certain=True) is None

    @property
    def _room(self) -> int:
        """The number of configurations that the brackets still get."""
        return sum(bracket.room for bracket in self._brackets)

    @property
    def _highest(self) -> int:
        """The highest rung that trials may reach.

        With `progressive` that of the growth, if at least two trials can be compared there.
        """
        if self._growth is not None:
            highest = self._growth.highest
            if sum(bracket.ranked(highest) for bracket in self._brackets) > 1:
                return highest
        return len(self.rungs) - 1

    def _next(self, again: Trial | None) -> Trial | None:
        """Return the next trial; None if there is none, or not the one that is asked for again."""
        while True:
            promotion = self._promotion(certain=True)
            if promotion is None and self._room:
                was_new = again is None or again.parent is None
                run = self._new_run(again) if was_new else None
                if run is not None:
                    return self._begin(run, None)
                self._close(self._configurations)  # the space is used up
                continue
            promotion = promotion or self._promotion(certain=False)
            return None if promotion is None else self._begin(*promotion)

    def _promotion(self, *, certain: bool) -> tuple[_Run, int] | None:
        """Return a run that resumes from a trial, with that trial; None if there is none."""
        highest = self._highest
        for bracket in self._brackets:
            found = bracket.promotion(highest, certain=certain)
            if found is not None:
                rung, trial = found
                return replace(self._runs[trial], rung=rung), trial
        return None

    def _new_run(self, again: Trial | None) -> _Run | None:
        """Return the run of a new configuration; None if none is left."""
        number = self._configurations
        self._rng.seed(self._seed + number)  # so that a resumed search need not propose it again
        if again is not None:
            params: Mapping[str, Any] = again.params
        elif number < len(self._points):
            params = self._points[number]
        else:
            out = [self._runs[trial] for trial in sorted(self._in_flight)]
            point = self._proposals.propose(number, [(run.point, run.rung) for run in out])
            if point is None:
                return None
            params = self._space.decode(point)
        bracket = next(bracket for bracket in self._brackets if bracket.room)
        return _Run(
            bracket=bracket,
            configuration=number,
            rung=bracket.first,
            # Not the proposed point: a resumed search has the values alone, and equal choices are
            # equal to a model only at the same place.
            point=self._space.encode(params),
            params=params,
        )

    def _begin(self, run: _Run, parent: int | None) -> Trial:
        """Hand out a run."""
        number = self._asked
        if parent is None:
            self._configurations += 1
            if run.configuration >= len(self._points):  # they count as tried from the start
                self._tried.add(run.point)
            run.bracket.begin()
        else:
            run.bracket.promote(run.rung, parent)
        self._runs[number] = run
        self._in_flight.add(number)
        if self._growth is not None:
            self._growth.begin(number, run.configuration)
        return Trial(number, run.params, parent=parent, max_steps=self.rungs[run.rung])

    def _close(self, configurations: int) -> None:
        """Let the brackets have no more configurations than there are, in all."""
        left = configurations - self._configurations
        if left >= self._room:
            return
        for bracket in self._brackets:
            left -= bracket.limit(left)
        self._exhausted = NONE_LEFT
