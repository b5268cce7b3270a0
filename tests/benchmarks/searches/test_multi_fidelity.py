"""The parts of the benchmark of multi-fidelity searches."""

import csv
import gzip
import itertools
import random

import pytest

from search.fidelity.growth import Growth
from tests.benchmarks.searches.multi_fidelity import METHODS, Step, regrets
from tests.benchmarks.searches.problems import keras_curves
from tests.benchmarks.searches.problems.learning_curves import CURVES, MAX_STEPS

HARTMANN, DIGITS = CURVES[:2], CURVES[2]
OPTIMA = (
    (0.114614, 0.555649, 0.852547),
    (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
)


@pytest.mark.parametrize(("curves", "optimum"), list(zip(HARTMANN, OPTIMA, strict=True)))
def test_the_functions_are_best_at_their_published_optimum(curves, optimum):
    params = dict(zip(curves.space, optimum, strict=True))
    assert curves.value(params, MAX_STEPS) == pytest.approx(curves.best, abs=1e-4)


@pytest.mark.parametrize("curves", HARTMANN)
def test_values_get_better_with_the_steps(curves):
    rng = random.Random(0)
    params = curves.space.decode([rng.random() for _ in curves.space])
    values = [curves.value(params, steps) for steps in (1, 3, 9, 27, 81)]
    assert values == sorted(values, reverse=True)
    assert values[0] >= curves.best


def test_the_recorded_values_are_those_of_the_file():
    with gzip.open(keras_curves.FILE, "rt") as file:
        rows = list(csv.DictReader(file))
    named = [{name: row[name] for name in keras_curves.GRID} for row in rows]
    grid = itertools.product(*keras_curves.GRID.values())
    assert [tuple(params.values()) for params in named] == [tuple(map(str, p)) for p in grid]
    for row, params in zip(rows, named, strict=True):
        point = {
            name: params[name]
            if isinstance(steps[0], str)
            else [*map(str, steps)].index(params[name])
            for name, steps in keras_curves.GRID.items()
        }
        for steps in (1, MAX_STEPS):
            misread = DIGITS.value(point, steps) * keras_curves.VALIDATED
            assert misread == pytest.approx(int(row[str(steps)]))
    finals = [int(row[str(MAX_STEPS)]) for row in rows]
    assert DIGITS.best * keras_curves.VALIDATED == pytest.approx(min(finals))


@pytest.mark.parametrize("curves", [HARTMANN[0], DIGITS])
@pytest.mark.parametrize("method", METHODS)
def test_every_search_spends_its_budget(method, curves):
    first, second = regrets(METHODS[method], curves, 1, (81, 120))
    assert first >= second >= -1e-5


def test_what_is_held_counts_by_its_value_after_full_training():
    curves = HARTMANN[0]
    near, far = (dict.fromkeys(curves.space, x) for x in (0.5, 0.9))

    def run(_, seed):
        yield Step(far, None)
        yield Step(far, -1.0)
        yield Step(near, -0.5)
        yield Step(near, -2.0)

    expected = [curves.value(params, MAX_STEPS) - curves.best for params in (far, near, near)]
    assert regrets(run, curves, 0, (3, 4, 9)) == expected


def test_a_search_that_is_progressive_gets_every_epoch_reported(monkeypatch):
    reports, report = [], Growth.report

    def noted(self, trial, step, value):
        reports.append(step)
        report(self, trial, step, value)

    monkeypatch.setattr(Growth, "report", noted)
    trained = list(itertools.islice(METHODS["hyperband_search, progressive=True"](DIGITS, 1), 300))
    ended = max(index for index, step in enumerate(trained) if step.value is not None)
    assert ended < len(reports) < ended + MAX_STEPS
