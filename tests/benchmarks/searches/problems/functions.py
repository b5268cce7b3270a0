"""The problems for the comparison of searches: 23 functions with a known best value.

- BBOB: two functions of each of the five groups of the COCO platform, in 3 to 10 dimensions
  (Hansen et al.: COCO, a platform for comparing continuous optimizers, 2021).
- Mixed: log scales, integers and choices. Two are BBOB functions with each coordinate read off a
  hyperparameter of another kind; three have the structure of tuning tasks and are written here.
- Tuning: surrogates of real fits of scikit-learn models, see `surrogates.py`.
- Noisy: one of each of these kinds, with normal noise on what the search sees.

All are minimised.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cocoex
import numpy as np

from search.space.spaces import Choice, Domain, Float, Integer, Space
from tests.benchmarks.searches.problems.surrogates import TASKS, Surrogate

_INSTANCE = 1


@dataclass(frozen=True)
class Problem:
    """A function to be minimised.

    Attributes:
        name: Unique among the problems.
        space: Its domain.
        value: The function of hyperparameters, without noise.
        best: The lowest value, or the lowest known.
        noise: Standard deviation of the noise added to the values for a search.
    """

    name: str
    space: Space
    value: Callable[[Mapping[str, Any]], float]
    best: float
    noise: float = 0.0


def bbob(number: int, dimensions: int) -> Problem:
    """Return a function of COCO's suite bbob, of 24, on its box."""
    function = cocoex.BareProblem("bbob", number, dimensions, _INSTANCE)
    space = Space({f"x{axis}": Float(-5.0, 5.0) for axis in range(dimensions)})
    return Problem(
        f"BBOB f{number}, {dimensions}-d",
        space,
        lambda params: float(function(list(params.values()))),
        function.best_value(),
    )


_KINDS: tuple[Domain, ...] = (
    Float(0.00001, 0.1, log=True),
    Integer(1, 9),
    Choice(["a", "b", "c", "d", "e"]),
    Integer(8, 512, log=True),
    Float(0.0, 1.0),
)


def _mixed_bbob(number: int) -> Problem:
    """Return a BBOB function of five hyperparameters of different kinds.

    As in COCO's suite bbob-mixint the values of a discrete one are moved so that the function's
    best point is among them. Those of the choice are shuffled.
    """
    function = cocoex.BareProblem("bbob", number, len(_KINDS), _INSTANCE)
    optimum = function.best_parameter()
    space = Space({f"x{axis}": domain for axis, domain in enumerate(_KINDS)})
    shuffled = random.Random(number).sample(range(5), 5)

    def value(params: Mapping[str, Any]) -> float:
        units = space.encode(params)
        units[2] = (shuffled[_KINDS[2].index(params["x2"])] + 0.5) / 5
        point = [10 * (u - shift) - 5 for u, shift in zip(units, shifts, strict=True)]
        return float(function(point))

    nearest = space.snap([(x + 5) / 10 for x in optimum])  # the bins are equal but for the order
    shifts = [
        0.0 if isinstance(domain, Float) else bin_ - (x + 5) / 10
        for domain, bin_, x in zip(_KINDS, nearest, optimum, strict=True)
    ]
    return Problem(f"mixed BBOB f{number}, 5-d", space, value, function.best_value())


def _network() -> Problem:
    """Return a function with the structure of a small network's validation error.

    The best learning rate depends on the optimizer and falls with the width, too high a rate is
    worse than too low a one, and a wide network needs dropout.
    """
    space = Space(
        {
            "learning_rate": Float(0.00001, 1.0, log=True),
            "units": Integer(8, 512, log=True),
            "layers": Integer(1, 6),
            "dropout": Float(0.0, 0.7),
            "optimizer": Choice(["sgd", "momentum", "adam", "rmsprop"]),
            "activation": Choice(["relu", "tanh", "sigmoid"]),
        }
    )
    rates = {"sgd": -1.0, "momentum": -2.0, "adam": -3.0, "rmsprop": -3.5}
    optimizers = {"sgd": 0.06, "momentum": 0.02, "adam": 0.0, "rmsprop": 0.01}
    activations = {"relu": 0.0, "tanh": 0.02, "sigmoid": 0.08}

    def value(params: Mapping[str, Any]) -> float:
        width = math.log2(params["units"]) - 7
        rate = math.log10(params["learning_rate"]) - rates[params["optimizer"]] + width / 8
        loss = (0.4 if rate > 0 else 0.1) * rate**2
        loss += 0.01 * width**2 + 0.02 * (params["layers"] - 3) ** 2
        loss += (params["dropout"] - 0.3 - width / 15) ** 2
        loss += optimizers[params["optimizer"]] + activations[params["activation"]]
        return math.tanh(loss)

    return Problem("network", space, value, 0.0)


def _boosting() -> Problem:
    """Return a function with the structure of boosted trees' error.

    A narrow valley: learning rate times number of trees. Deep trees want strong regularisation.
    """
    space = Space(
        {
            "learning_rate": Float(0.001, 1.0, log=True),
            "trees": Integer(10, 2000, log=True),
            "depth": Integer(1, 12),
            "min_samples": Integer(1, 100, log=True),
            "subsample": Float(0.2, 1.0),
            "l2": Float(0.0001, 100.0, log=True),
        }
    )

    def value(params: Mapping[str, Any]) -> float:
        strength = math.log10(params["learning_rate"] * params["trees"]) - math.log10(30)
        rate = math.log10(params["learning_rate"]) + 1.0
        depth = params["depth"] - 6
        loss = 0.5 * strength**2 + 0.02 * rate**2 + 0.005 * depth**2
        loss += 0.02 * (math.log10(params["l2"]) - depth / 4) ** 2
        loss += 0.02 * (math.log10(params["min_samples"]) - 1) ** 2
        return loss + 0.2 * (params["subsample"] - 0.7) ** 2

    return Problem("boosting", space, value, 0.0)


def _choices() -> Problem:
    """Return a function of four choices, each pair of which has an effect, and two numbers."""
    sizes = {"augmentation": 4, "block": 5, "normalisation": 3, "schedule": 4}
    rng = random.Random(4)
    main = {name: [rng.random() for _ in range(size)] for name, size in sizes.items()}
    pairs = {
        (a, b): [[rng.uniform(-0.3, 0.3) for _ in range(sizes[b])] for _ in range(sizes[a])]
        for a, b in itertools.combinations(sizes, 2)
    }
    space = Space(
        {name: Choice([f"{name} {index}" for index in range(size)]) for name, size in sizes.items()}
        | {"learning_rate": Float(0.0001, 1.0, log=True), "smoothing": Float(0.0, 0.5)}
    )

    def effect(index: Mapping[str, int]) -> float:
        alone = sum(main[name][index[name]] for name in sizes)
        return alone + sum(table[index[a]][index[b]] for (a, b), table in pairs.items())

    def value(params: Mapping[str, Any]) -> float:
        index = {name: int(params[name].split()[1]) for name in sizes}
        rate = math.log10(params["learning_rate"]) + 3 - 0.5 * index["schedule"]
        return effect(index) + 0.2 * rate**2 + 2 * (params["smoothing"] - 0.1) ** 2

    indices = itertools.product(*map(range, sizes.values()))
    best = min(effect(dict(zip(sizes, index, strict=True))) for index in indices)
    return Problem("choices", space, value, best)


def _tuning(name: str) -> Problem:
    surrogate = Surrogate(TASKS[name])
    return Problem(name, surrogate.space, surrogate.value, surrogate.best)


def _noisy(problem: Problem) -> Problem:
    """Return a problem with noise.

    Its standard deviation is the regret of the best of a hundred random points.
    """
    rng = random.Random(0)
    points = ([rng.random() for _ in problem.space] for _ in range(1000))
    values = [problem.value(problem.space.decode(point)) for point in points]
    noise = float(np.percentile(values, 1)) - problem.best
    return Problem(f"noisy {problem.name}", problem.space, problem.value, problem.best, noise)


_MAKERS: dict[str, Callable[[], Problem]] = {
    **{
        f"BBOB f{number}, {dimensions}-d": functools.partial(bbob, number, dimensions)
        for number, dimensions in (
            (2, 3),  # separable: ellipsoid, Rastrigin
            (3, 5),
            (6, 5),  # of moderate condition: attractive sector, Rosenbrock
            (8, 3),
            (10, 5),  # ill-conditioned: ellipsoid, sharp ridge
            (13, 10),
            (15, 3),  # multimodal: Rastrigin, Schaffers
            (17, 10),
            (20, 5),  # of weak structure: Schwefel, Gallagher
            (21, 5),
        )
    },
    "mixed BBOB f8, 5-d": lambda: _mixed_bbob(8),
    "mixed BBOB f15, 5-d": lambda: _mixed_bbob(15),
    "network": _network,
    "boosting": _boosting,
    "choices": _choices,
    **{name: functools.partial(_tuning, name) for name in TASKS},
    "noisy BBOB f8, 5-d": lambda: _noisy(bbob(8, 5)),
    "noisy network": lambda: _noisy(_network()),
    "noisy SVC on digits": lambda: _noisy(_tuning("SVC on digits")),
}

NAMES = tuple(_MAKERS)
"""The names of the problems, in the order of the tables."""


@functools.cache
def problem(name: str) -> Problem:
    """Return a problem by name, created once per process."""
    return _MAKERS[name]()
