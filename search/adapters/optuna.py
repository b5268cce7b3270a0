"""Any sampler of Optuna (Akiba et al., KDD 2019): TPE, CMA-ES, Gaussian processes, QMC, ..."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from search.adapters.adapted import AdaptedSearch, described, needed_by
from search.direction import Directions, Goal
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher
from search.space.domains import nearest
from search.space.spaces import LARGEST_INTEGER, Choice, Domain, Float, Space
from search.space.user_values import is_number

_Score = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OptunaSearcher:
    """Settings of a search by a sampler of Optuna.

    Needs `pip install optuna`.

    Each search works on a copy of the sampler, in a study of its own in memory. A sampler without a
    seed is seeded from the search's seed. The study has the names and values of the active
    hyperparameters. Choices that Optuna does not support, ranges, ordered choices, and floats with
    a step that is rounded, such as 1 / 3, are in it by their position. A configuration that the
    constraint does not allow is pruned, a failed trial is failed. A sampler that has tried
    everything, such as a `GridSampler`, ends the search early.

    With a pruner, `experiment.report` is `trial.report`: the study receives the objective's
    reports, the pruner is asked after each step, and a trial that it prunes stops as by a rule of
    `stopping=`, which may be set as well. A stopped trial is pruned in the study. The user's points
    enter the study once they have ended, so the pruner never stops them.

    Args:
        sampler: A sampler of `optuna.samplers`, or any other `BaseSampler`; with several
            objectives, one that supports them. None for `TPESampler()`.
        pruner: A pruner of `optuna.pruners`, or any other `BasePruner`, for a single objective;
            None stops no trial.

    Raises:
        InvalidArgument: Optuna is missing, or `sampler` or `pruner` is of the wrong type.
    """

    sampler: Any = None
    pruner: Any = None

    def __post_init__(self) -> None:
        samplers, pruners = _optuna().samplers, _optuna().pruners
        if self.pruner is not None and not isinstance(self.pruner, pruners.BasePruner):
            hint = "such as optuna.pruners.MedianPruner()"
            raise InvalidArgument("pruner", "a pruner of Optuna, or None", shown(self.pruner), hint)
        if self.sampler is None:
            object.__setattr__(self, "sampler", samplers.TPESampler())
        elif not isinstance(self.sampler, samplers.BaseSampler):
            hint = "such as optuna.samplers.TPESampler()"
            raise InvalidArgument("sampler", "a sampler of Optuna", shown(self.sampler), hint)

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        for part in _parts(self.sampler, (_optuna().samplers.BaseSampler,)):
            _check_packages(type(part).__name__)
            _check_values(part, problem.space)
        if isinstance(problem.direction, Directions):
            self._check_several(problem.direction)
        self._check_space(problem)
        return self._search(problem, problem.rng.getrandbits(32))

    def _search(self, problem: Problem, seed: int) -> AdaptedSearch:
        return AdaptedSearch(
            problem,
            lambda: _Study(problem, self.sampler, self.pruner, seed),
            pruner=None if self.pruner is None else type(self.pruner).__name__,
            own_numbers=self._is_optunas_own(),
        )

    def _check_space(self, problem: Problem) -> None:
        """Refuse a sampler that fails at its first trial, as it cannot search the space."""
        first = replace(problem, rng=random.Random(0), samples=1, points=(), known=())
        try:
            self._search(first, 0).ask()
        except InvalidArgument:  # the constraint's
            raise
        except Exception as error:
            expected = "a sampler that can search the space"
            got = f"{type(self.sampler).__name__}, which raises {type(error).__name__}: {error}"
            raise InvalidArgument("searcher", expected, got) from error

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        sampler = described(self.sampler, _optuna().samplers.BaseSampler)
        arguments = {"type": "optuna", "sampler": sampler}
        if self.pruner is not None:
            arguments["pruner"] = described(self.pruner, _optuna().pruners.BasePruner)
        return arguments

    def _is_optunas_own(self) -> bool:
        """Return whether both are of Optuna itself, which draws no global random numbers."""
        kinds = _optuna().samplers.BaseSampler, _optuna().pruners.BasePruner
        return all(
            type(part).__module__.partition(".")[0] == "optuna"
            for thing in (self.sampler, self.pruner)
            for part in _parts(thing, kinds)
        )

    def _check_several(self, directions: Directions) -> None:
        """Refuse a pruner, and a sampler that fails on several objectives when it samples."""
        got = shown(directions.to_json())
        if self.pruner is not None:
            expected = "None with several objectives, for which Optuna prunes no trial"
            raise InvalidArgument("pruner", expected, shown(self.pruner))
        with _quiet():
            study = _optuna().create_study(
                directions=_names(directions), sampler=copy.deepcopy(self.sampler)
            )
            study.ask()
            try:
                study.sampler.sample_relative(study, study.trials[0], {})
            except (ValueError, RuntimeError, NotImplementedError):
                expected = f"'max' or 'min', of one objective, for {type(self.sampler).__name__}"
                hint = "TPESampler and NSGAIISampler take several"
                raise InvalidArgument("direction", expected, got, hint) from None


class _Study:
    """A study of Optuna as an `Optimiser` and a `Pruner`; proposals are its trials."""

    def __init__(self, problem: Problem, sampler: Any, pruner: Any, seed: int) -> None:
        self._optuna = _optuna()
        self._space = problem.space
        self._parameters = {
            name: _parameter(self._optuna.distributions, domain)
            for name, domain in problem.space.items()
        }
        own = copy.deepcopy(sampler)
        _seed(own, seed, self._optuna.samplers.BaseSampler)
        with _quiet():
            self._study = self._optuna.create_study(
                study_name="experiment",  # else drawn at random, and HyperbandPruner uses it
                directions=_names(problem.direction),
                sampler=own,
                pruner=copy.deepcopy(pruner) or self._optuna.pruners.NopPruner(),
            )
        self.exhausted = False
        self._lacks_numbers = False  # whether any report had none
        # Samplers call it once they have tried everything; Optuna's works only in Study.optimize.
        self._study.stop = self._stop

    def propose(self) -> tuple[Any, dict[str, Any]]:
        with _quiet():
            trial = self._study.ask()
            return trial, self._space.assemble(lambda name: self._suggested(trial, name))

    def learn(self, proposal: Any, value: _Score | None) -> None:
        with _quiet():
            if value is None:
                self._study.tell(proposal, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(proposal, value)

    def reject(self, proposal: Any) -> None:
        # Not failed: samplers ignore failed trials, and might propose the same for ever.
        with _quiet():
            self._study.tell(proposal, state=self._optuna.trial.TrialState.PRUNED)

    def report(self, proposal: Any, step: int, value: float) -> bool:
        self._lacks_numbers |= not math.isfinite(value)
        with _quiet(), _no_warnings() if self._lacks_numbers else contextlib.nullcontext():
            proposal.report(value, step)
            return bool(proposal.should_prune())

    def prune(self, proposal: Any) -> None:
        self.reject(proposal)  # Optuna takes its last report as its value

    def add(self, params: Mapping[str, Any], value: _Score | None) -> bool:
        states, parameters = self._optuna.trial.TrialState, self._parameters
        # In the order of `propose`, which BruteForceSampler needs.
        names = [name for name in self._space.parents_first if name in params]
        trial = self._optuna.trial.create_trial(
            state=states.FAIL if value is None else states.COMPLETE,
            values=[value] if isinstance(value, float | int) else value,
            params={name: parameters[name].encode(params[name]) for name in names},
            distributions={name: parameters[name].distribution for name in names},
        )
        with _quiet():
            self._study.add_trial(trial)
        return True

    def _suggested(self, trial: Any, name: str) -> Any:
        parameter, kinds = self._parameters[name], self._optuna.distributions
        asked = parameter.distribution
        if isinstance(asked, kinds.CategoricalDistribution):
            value = trial.suggest_categorical(name, asked.choices)
        elif isinstance(asked, kinds.IntDistribution):
            value = trial.suggest_int(name, asked.low, asked.high, step=asked.step, log=asked.log)
        else:
            value = trial.suggest_float(name, asked.low, asked.high, step=asked.step, log=asked.log)
        return parameter.decode(value)

    def _stop(self) -> None:
        self.exhausted = True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from writing to the terminal, which shows the search's progress."""
    logging = _optuna().logging
    before = logging.get_verbosity()
    logging.set_verbosity(max(before, logging.ERROR))
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Ignore the warnings of numpy about values that are all NaN.

    Use it where there are some alone: it restores the filters of the process, which another thread
    may have changed meanwhile.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _names(goal: Goal) -> list[str]:
    """Return the directions by Optuna's names."""
    return ["maximize" if weight > 0 else "minimize" for weight in goal.weights]


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A hyperparameter as Optuna knows it.

    Attributes:
        distribution: Optuna's distribution.
        decode: Turns Optuna's value into the hyperparameter's.
        encode: Turns the hyperparameter's value into Optuna's.
    """

    distribution: Any
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]


def _parameter(kinds: Any, domain: Domain) -> _Parameter:
    if isinstance(domain, Choice):
        return _choice(kinds, domain)
    span = domain.high - domain.low
    if math.isinf(span) or 0 < span < sys.float_info.min:  # Optuna computes with it, too
        return _Parameter(kinds.FloatDistribution(0.0, 1.0), domain.decode, domain.encode)
    if isinstance(domain, Float) and domain.step is not None and not _ends_on_a_step(domain):
        return _steps(kinds, domain)
    kind = kinds.FloatDistribution if isinstance(domain, Float) else kinds.IntDistribution
    log = domain.log if isinstance(domain, Float) else domain.is_logarithmic
    distribution = kind(domain.low, domain.high, log=log, step=domain.step)
    # 0.1 + 2 * 0.1 is not 0.3, and a point that the user gives may lie between two steps.
    value_of = functools.partial(nearest, domain)
    return _Parameter(distribution, value_of, value_of)


def _ends_on_a_step(domain: Float) -> bool:
    """Return whether Optuna, which counts steps in decimals, finds the high bound among them."""
    low, high, step = (Fraction(repr(number)) for number in (domain.low, domain.high, domain.step))
    return (high - low) % step == 0


def _steps(kinds: Any, domain: Float) -> _Parameter:
    """Return a hyperparameter with steps by their position."""
    count = cast(int, domain.size)
    return _Parameter(
        kinds.IntDistribution(0, count - 1),
        lambda position: domain.decode((position + 0.5) / count),
        lambda value: min(int(domain.encode(value) * count), count - 1),
    )


def _choice(kinds: Any, domain: Choice) -> _Parameter:
    values, last = domain.values, len(domain.values) - 1
    if last > LARGEST_INTEGER:
        return _Parameter(kinds.FloatDistribution(0.0, 1.0), domain.decode, domain.encode)
    if domain.ordered or isinstance(values, range):  # it may have a billion values
        return _Parameter(kinds.IntDistribution(0, last), values.__getitem__, domain.index)
    plain = all(value is None or type(value) in (bool, int, float, str) for value in values)
    if plain and len(set(values)) == len(values):  # 1 and True are the same to Optuna
        return _Parameter(kinds.CategoricalDistribution(values), _same, _same)
    positions = kinds.CategoricalDistribution(range(len(values)))
    return _Parameter(positions, values.__getitem__, domain.index)


def _same(value: Any) -> Any:
    return value


def _parts(thing: Any, kinds: tuple[type, ...]) -> Iterator[Any]:
    """Yield a sampler or a pruner, and those inside it; nothing for None."""
    if isinstance(thing, kinds):
        yield thing
        for value in vars(thing).values():
            yield from _parts(value, kinds)


def _seed(sampler: Any, seed: int, kind: type) -> bool:
    """Seed a sampler, and the samplers inside it, unless the user did, as `seed=` would have done.

    No method of Optuna does this: `reseed_rng` takes the machine's entropy, and `seed=` is an
    argument of the constructor.

    Returns:
        Whether anything was seeded.
    """
    found = False
    for value in vars(sampler).values():
        if isinstance(value, kind):
            found |= _seed(value, seed, kind)
        elif type(value).__name__ == "LazyRandomState" and value._rng is None:
            value.rng.seed(seed)
            found = True
    if found and hasattr(sampler, "_seed"):  # QMCSampler has drawn one at random
        sampler._seed = seed
    return found


def _check_values(sampler: Any, space: Space) -> None:
    """Refuse values of a sampler outside the bounds, with which Optuna itself would go on."""
    samplers = _optuna().samplers
    given: Mapping[str, Any] = {}
    if isinstance(sampler, samplers.GridSampler):
        given = sampler._search_space
    elif isinstance(sampler, samplers.PartialFixedSampler):
        given = {name: [value] for name, value in sampler._fixed_params.items()}
    kinds = _optuna().distributions
    for name in given.keys() & space.keys():
        asked = _parameter(kinds, space[name]).distribution
        if isinstance(asked, kinds.CategoricalDistribution):
            continue  # Optuna refuses other values itself
        rounding = 1e-9 * max(abs(asked.low), abs(asked.high))
        low, high = asked.low - rounding, asked.high + rounding
        outside = [
            value for value in given[name] if not (is_number(value) and low <= value <= high)
        ]
        if outside:
            expected = f"values of {name!r} from {asked.low!r} to {asked.high!r}"
            got = f"{shown(outside[0])} in {type(sampler).__name__}"
            raise InvalidArgument("searcher", expected, got)


def _check_packages(sampler: str) -> None:
    """Import the sampler's packages, which Optuna would import only in the middle of a search."""
    match sampler:
        case "CmaEsSampler":
            with needed_by(sampler, "cmaes"):
                import cmaes  # noqa: F401
        case "GPSampler":
            with needed_by(sampler, "torch"):
                import torch  # noqa: F401
        case "QMCSampler":
            with needed_by(sampler, "scipy"):
                import scipy  # noqa: F401


def _optuna() -> Any:
    with needed_by("OptunaSearcher", "optuna"):
        import optuna
    return optuna
