"""Surrogates of real tuning tasks: scikit-learn's models on its own data sets.

A task is evaluated once, by cross-validation, on a design that is always the same; a random forest
through these results stands for the task, so that an evaluation takes no time (Eggensperger et al.:
Efficient benchmarking of hyperparameter optimizers via surrogates, AAAI 2015).

The results of the real fits are kept in `build/` until this file or scikit-learn changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from search.space.sampling import latin_hypercube
from search.space.spaces import Choice, Float, Integer, Space

FITTED = 400
"""Points of the design of a task."""

_ROWS = 600  # rows of a data set, so that a fit takes a tenth of a second
_FOLDS = 3
_SEARCHED = 40_000  # points evaluated for the lowest value of a surrogate, half of them at random
_FOLDER = Path("build", "bench-search")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model to tune.

    Attributes:
        name: The model and the data set.
        space: The hyperparameters of the model.
        data: A function that returns inputs and targets.
        model: A function that creates the model from hyperparameters.
        scoring: scikit-learn's name of a score; its negative is minimised.
    """

    name: str
    space: Space
    data: Callable[..., tuple[Any, Any]]
    model: Callable[[Mapping[str, Any]], BaseEstimator]
    scoring: str


TASKS = {
    task.name: task
    for task in (
        Task(
            name="SVC on digits",
            space=Space(
                {
                    "C": Float(0.01, 1000.0, log=True),
                    "gamma": Float(0.00001, 1.0, log=True),
                    "kernel": Choice(["rbf", "poly", "sigmoid"]),
                    "degree": Integer(2, 5),
                    "coef0": Float(0.0, 1.0),
                }
            ),
            data=load_digits,
            model=lambda params: make_pipeline(StandardScaler(), SVC(**params)),
            scoring="accuracy",
        ),
        Task(
            name="network on digits",
            space=Space(
                {
                    "learning_rate_init": Float(0.0001, 0.3, log=True),
                    "alpha": Float(0.000001, 1.0, log=True),
                    "hidden_layer_sizes": Integer(4, 128, log=True),
                    "batch_size": Integer(8, 256, log=True),
                    "activation": Choice(["relu", "tanh", "logistic"]),
                }
            ),
            data=load_digits,
            model=lambda params: make_pipeline(
                StandardScaler(), MLPClassifier(**params, max_iter=10, random_state=0)
            ),
            scoring="accuracy",
        ),
        Task(
            name="boosting on breast cancer",
            space=Space(
                {
                    "learning_rate": Float(0.005, 1.0, log=True),
                    "n_estimators": Integer(5, 100, log=True),
                    "max_depth": Integer(1, 6),
                    "subsample": Float(0.3, 1.0),
                    "min_samples_leaf": Integer(1, 40),
                    "max_features": Float(0.1, 1.0),
                }
            ),
            data=load_breast_cancer,
            model=lambda params: GradientBoostingClassifier(**params, random_state=0),
            scoring="neg_log_loss",
        ),
        Task(
            name="SVR on diabetes",
            space=Space(
                {
                    "C": Float(0.1, 10000.0, log=True),
                    "epsilon": Float(0.1, 100.0, log=True),
                    "gamma": Float(0.0001, 10.0, log=True),
                    "kernel": Choice(["rbf", "sigmoid"]),
                    "shrinking": Choice([False, True]),
                }
            ),
            data=load_diabetes,
            model=lambda params: make_pipeline(StandardScaler(), SVR(**params, max_iter=10_000)),
            scoring="neg_median_absolute_error",
        ),
        Task(
            name="trees on wine",
            space=Space(
                {
                    "n_estimators": Integer(5, 60, log=True),
                    "max_features": Float(0.05, 1.0),
                    "min_samples_leaf": Integer(1, 20),
                    "max_depth": Integer(1, 10),
                    "criterion": Choice(["gini", "entropy", "log_loss"]),
                    "bootstrap": Choice([False, True]),
                }
            ),
            data=load_wine,
            model=lambda params: ExtraTreesClassifier(**params, random_state=0),
            scoring="neg_log_loss",
        ),
    )
}


class Surrogate:
    """A random forest fitted to the real results of a task.

    Attributes:
        space: The task's space.
        best: The lowest value found by a long search.
    """

    def __init__(self, task: Task, fitted: int = FITTED) -> None:
        self.space = task.space
        design = _design(task.space, fitted)
        forest = RandomForestRegressor(n_estimators=50, random_state=0)
        forest.fit([self._features(params) for params in design], _results(task, design))
        # As `forest.predict`, without its checks, which take longer than the prediction.
        self._trees = [tree.tree_ for tree in forest.estimators_]
        self.best = self._lowest()

    def value(self, params: Mapping[str, Any]) -> float:
        """Return the surrogate's value of hyperparameters; the lower, the better."""
        return float(self._predict([self._features(params)])[0])

    def _predict(self, features: Sequence[Sequence[float]]) -> Any:
        rows = np.asarray(features, dtype=np.float32)
        return sum(tree.predict(rows)[:, 0] for tree in self._trees) / len(self._trees)

    def _features(self, params: Mapping[str, Any]) -> list[float]:
        """Return numbers on their scale, and one number per value of a choice."""
        features: list[float] = []
        for name, domain in self.space.items():
            if isinstance(domain, Choice):
                chosen = domain.index(params[name])
                features += [float(index == chosen) for index in range(len(domain.values))]
            else:
                features.append(domain.encode(params[name]))
        return features

    def _lowest(self) -> float:
        """Search at random, then around the best points found, ever closer."""
        rng = random.Random(0)
        points = [[rng.random() for _ in self.space] for _ in range(_SEARCHED // 2)]
        lowest = math.inf
        for width in (0.3, 0.1, 0.03, 0.01, 0.003):
            values = self._predict([self._features(self.space.decode(p)) for p in points])
            lowest = min(lowest, float(values.min()))
            parents = [points[index] for index in np.argsort(values)[:40]]
            points = [
                [min(max(rng.gauss(x, width), 0.0), 1.0) if rng.random() < 0.5 else x for x in p]
                for p in parents
                for _ in range(_SEARCHED // 10 // len(parents))
            ] + parents
        return lowest


def _design(space: Space, count: int) -> list[dict[str, Any]]:
    points = latin_hypercube(count, len(space), random.Random(0))
    return [space.decode(point) for point in points]


def _results(task: Task, design: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the results of real fits, from the cached file if it exists."""
    made_of = f"{sklearn.__version__} {len(design)} {task.name} {Path(__file__).read_text()}"
    file = _FOLDER / f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.json"
    if not file.exists():
        values = [evaluate(task, params) for params in design]
        _FOLDER.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    return list(map(float, json.loads(file.read_text())))


def evaluate(task: Task, params: Mapping[str, Any]) -> float:
    """Fit a task's model; return its cross-validated loss."""
    inputs, targets = task.data(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))[:_ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with bad hyperparameters models do not converge
        scores = cross_val_score(
            task.model(params), inputs[order], targets[order], scoring=task.scoring, cv=_FOLDS
        )
    return -float(np.mean(scores))


def prepare(processes: int) -> None:
    """Fit all tasks that are not cached yet, in several processes."""
    with Pool(processes) as pool:
        pool.map(_prepare, TASKS, chunksize=1)


def _prepare(name: str) -> None:
    _results(TASKS[name], _design(TASKS[name].space, FITTED))
