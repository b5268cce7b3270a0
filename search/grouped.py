"""One search per group, such as one model per region, over the same slots."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import msgspec

from search.direction import Direction, Goal
from search.errors import InvalidArgument, shown
from search.searcher import (
    Algorithm,
    Problem,
    Searcher,
    Selection,
    acquisition_of,
    ask_again,
    judge_of,
    selections_of,
    why_exhausted,
)
from search.space.points import completed
from search.space.sampling import check_constraint
from search.space.spaces import Choice, Domain, Space
from search.stopping.rules import StoppingJudge
from search.trial import Outcome, Status, Trial


@dataclass(frozen=True, slots=True)
class Grouped:
    """One search per group, over the same slots; see `GroupedSearch`.

    Args:
        searcher: The algorithm that searches each group.
        spaces: Group to its space.
        by: The hyperparameter that holds a trial's group.
        max_failures: A group gets no more trials once more than this many have failed; None for any
            number.
        target: A group gets no more trials once it has a value this good or better; None for none.
    """

    searcher: Algorithm
    spaces: Mapping[str, Space]
    _: KW_ONLY
    by: str = "group"
    max_failures: int | None = None
    target: float | None = None

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for all groups.

        The problem's space is the union of the groups'. Each of its points and prior observations
        belongs to the group that it names.
        """
        searchers = {}
        for group, space in self.spaces.items():
            own = self._of_group(group, space, problem)
            with _naming(group):
                searchers[group] = self.searcher.start(own)
        return GroupedSearch(
            searchers,
            by=self.by,
            direction=problem.direction,
            max_failures=self.max_failures,
            target=self.target,
        )

    def _of_group(self, group: str, space: Space, problem: Problem) -> Problem:
        points = [
            self._own(group, space, params) for params in problem.points if params[self.by] == group
        ]
        known = [
            msgspec.structs.replace(item, params=self._own(group, space, item.params))
            for item in problem.known
            if item.params[self.by] == group
        ]
        rng = random.Random(problem.rng.getrandbits(64))
        with _naming(group):
            check_constraint(space, random.Random(0))
        return replace(problem, space=space, rng=rng, points=points, known=known)

    def _own(self, group: str, space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hyperparameters of a group's configuration without the group."""
        own = {name: value for name, value in params.items() if name != self.by}
        for name, value in own.items():
            if not _is_inside(value, space[name]):
                where, hint = f"bounds[{group!r}][{name!r}]", "points= or warm_start= has that"
                expected, got = f"bounds around {shown(value)}", shown(space[name])
                raise InvalidArgument(where, expected, got, hint)
        return own

    def completed_each(
        self, space: Space, points: Mapping[str, Mapping[str, Any]], rng: random.Random
    ) -> list[dict[str, Any]]:
        """Return the configurations of points, with what is missing drawn from a group's bounds.

        A point without a group gets one whose bounds and constraint allow it, if any do: the one
        with the fewest points, those that name it included.

        Args:
            space: The union of the groups' spaces.
            points: Some hyperparameters of each point, by the point's name for errors.
            rng: Generator for the others.

        Raises:
            InvalidArgument: No configuration with a point's hyperparameters is allowed.
        """
        counts = Counter(point[self.by] for point in points.values() if self.by in point)
        found = []
        for name, given in points.items():
            found.append(self._completed(name, given, rng, counts))
            if self.by not in given:
                counts[found[-1][self.by]] += 1
        return found

    def _completed(
        self, name: str, given: Mapping[str, Any], rng: random.Random, counts: Mapping[str, int]
    ) -> dict[str, Any]:
        own = {key: value for key, value in given.items() if key != self.by}
        groups = [given[self.by]] if self.by in given else self._holding(name, own, rng)
        groups.sort(key=lambda group: counts[group])  # in random order where equal
        for group in groups[:-1]:
            with contextlib.suppress(InvalidArgument):  # another group may allow the point
                return {self.by: group, **completed(self.spaces[group], name, own, rng)}
        return {self.by: groups[-1], **completed(self.spaces[groups[-1]], name, own, rng)}

    def _holding(self, point: str, own: Mapping[str, Any], rng: random.Random) -> list[str]:
        """Return the groups whose bounds hold a point, in random order."""
        groups = [
            group
            for group, space in self.spaces.items()
            if all(_is_inside(value, space[name]) for name, value in own.items())
        ]
        if not groups:
            raise InvalidArgument(point, "values within the bounds of a group", shown(own))
        return rng.sample(groups, len(groups))

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        groups = {group: space.to_json() for group, space in self.spaces.items()}
        searcher = self.searcher.to_json()
        return {"type": "search each", "searcher": searcher, "by": self.by, "bounds": groups}


@contextlib.contextmanager
def _naming(group: str) -> Iterator[None]:
    """Name the group in the errors of its search."""
    try:
        yield
    except InvalidArgument as error:
        got = f"group {group!r}: {error.got}"
        raise type(error)(error.name, error.expected, got, error.hint) from error.__cause__


def spaces_of_groups(algorithm: Mapping[str, Any]) -> dict[str, dict[str, Space]]:
    """Return the spaces of a recorded algorithm's groups, by its `by`; empty if it has no groups.

    Args:
        algorithm: What `Grouped.to_json` returned, or another algorithm.

    Raises:
        ValueError: A recorded space cannot be read.
    """
    match algorithm:
        case {"type": "search each", "by": str(by), "bounds": dict(bounds)}:
            return {by: {group: Space.from_json(space) for group, space in bounds.items()}}
    return {}


class GroupedSearch:
    """Searches that take turns: each `ask` returns a trial of the next group that has one.

    Each search proposes its own trials and receives their outcomes only, so the trials of a group
    do not depend on other groups.

    Args:
        searchers: Group to its searcher, owned by this searcher from now on.
        by: The hyperparameter that holds a trial's group, the first of its `params`.
        direction: Direction of the objective, or of each of several; for `target`.
        max_failures: A group gets no more trials once more than this many have failed; None for any
            number.
        target: A group gets no more trials once it has a value this good or better; None for none.
            Ignored with several objectives.
    """

    def __init__(
        self,
        searchers: Mapping[str, Searcher],
        *,
        by: str = "group",
        direction: Goal = Direction.MAX,
        max_failures: int | None = None,
        target: float | None = None,
    ) -> None:
        self._by = by
        self._direction = direction
        self._max_failures = max_failures
        self._target = target
        self._groups = {
            name: _Group(name=name, searcher=searcher) for name, searcher in searchers.items()
        }
        self._waiting = list(self._groups.values())  # in the order of their turns
        self._of: list[tuple[_Group, int]] = []  # each trial's group, and its number in the group
        self._last: _Group | None = None  # the group of the last outcome

    @property
    def total(self) -> int:
        """The number of trials of all groups; lower once a group has ended early."""
        return sum(group.total for group in self._groups.values())

    @property
    def finished(self) -> bool:
        """Whether every group's search has finished or was ended."""
        return all(group.finished for group in self._groups.values())

    @property
    def totals(self) -> dict[str, int]:
        """Group to its number of trials; lower once it has ended early."""
        return {name: group.total for name, group in self._groups.items()}

    @property
    def exhausted_groups(self) -> dict[str, str]:
        """Group to why it has fewer trials than asked for, for the groups that have."""
        reasons = {name: why_exhausted(group.searcher) for name, group in self._groups.items()}
        return {name: why for name, why in reasons.items() if why is not None}

    @property
    def exhausted(self) -> str | None:
        """Why groups have fewer trials than asked for, with their names; None if none has."""
        return "; ".join(f"{name!r}: {why}" for name, why in self.exhausted_groups.items()) or None

    @property
    def judge(self) -> StoppingJudge | None:
        """The judge that passes each report to the judge of the trial's group."""
        judged = any(judge_of(group.searcher) is not None for group in self._groups.values())
        return _JudgeOfSearchers(self._of) if judged else None

    def ask(self) -> Trial | None:
        """Return a trial of the next group that has one; None while none has."""
        for group in self._waiting:
            trial = None if group.finished else group.searcher.ask()
            if trial is not None:
                return self._handed_out(group, trial)
        return None

    def ask_again(self, trial: Trial) -> Trial | None:
        """Ask the trial's group for it again."""
        params = dict(trial.params)
        group = self._groups.get(params.pop(self._by, None))
        if group is None:
            return None
        parent = None if trial.parent is None else self._of[trial.parent][1]
        own = msgspec.structs.replace(trial, id=len(group.trials), params=params, parent=parent)
        again = ask_again(group.searcher, own)
        return None if again is None else self._handed_out(group, again)

    def group_of(self, trial: int) -> str:
        """Return the group of a trial."""
        return self._of[trial][0].name

    def acquisition_of(self, trial: int) -> float | None:
        """Return the acquisition at a trial in flight, by the model of its group."""
        group, number = self._of[trial]
        return acquisition_of(group.searcher, number)

    def tell(self, outcome: Outcome) -> None:
        """Pass an outcome to its group, and end the group where its limits say so."""
        group, number = self._of[outcome.trial]
        group.searcher.tell(msgspec.structs.replace(outcome, trial=number))
        self._last = group
        group.failures += outcome.status == "failed"
        failed = self._max_failures is not None and group.failures > self._max_failures
        reached = isinstance(self._direction, Direction) and self._direction.reaches(
            outcome.value, self._target
        )
        group.ended = group.ended or failed or reached

    @property
    def selections(self) -> Sequence[Selection]:
        """The selections of the group that received the last outcome."""
        if self._last is None:
            return ()
        trials = self._last.trials
        return [
            Selection(
                trials[selection.trial],
                selection.accepted,
                None if selection.holder is None else trials[selection.holder],
            )
            for selection in selections_of(self._last.searcher)
        ]

    def _handed_out(self, group: _Group, trial: Trial) -> Trial:
        """Return a group's trial with its number among all, and move the group to the end."""
        self._waiting.remove(group)
        self._waiting.append(group)
        parent = None if trial.parent is None else group.trials[trial.parent]
        params = {self._by: group.name, **trial.params}
        group.trials.append(len(self._of))
        self._of.append((group, trial.id))
        return msgspec.structs.replace(trial, id=len(self._of) - 1, params=params, parent=parent)


class _JudgeOfSearchers:
    """Passes reports to the judge of the trial's group."""

    def __init__(self, of: Sequence[tuple[_Group, int]]) -> None:
        self._of = of

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        group, number = self._of[trial]
        judge = judge_of(group.searcher)
        return None if judge is None else judge.report(number, step, value)

    def ended(self, trial: int, status: Status) -> None:
        group, number = self._of[trial]
        judge = judge_of(group.searcher)
        if judge is not None:
            judge.ended(number, status)


@dataclass(eq=False, kw_only=True)
class _Group:
    """A group's search.

    Attributes:
        trials: The numbers, among all groups' trials, of the group's.
        failures: The number of failed trials.
        ended: Whether too many failed, or the target was reached.
    """

    name: str
    searcher: Searcher
    trials: list[int] = field(default_factory=list)
    failures: int = 0
    ended: bool = False

    @property
    def total(self) -> int:
        return len(self.trials) if self.ended else self.searcher.total

    @property
    def finished(self) -> bool:
        return self.ended or self.searcher.finished


def _is_inside(value: Any, domain: Domain) -> bool:
    """Return whether a value is a choice's, or lies between bounds, perhaps between two steps."""
    if isinstance(domain, Choice):
        return value in domain
    return bool(domain.low <= value <= domain.high)
