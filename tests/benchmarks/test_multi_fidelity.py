"""The parts of the benchmark of multi-fidelity searches."""

import random

import pytest

from tests.benchmarks.learning_curves import CURVES, MAX_STEPS
from tests.benchmarks.multi_fidelity import METHODS, Step, regrets

OPTIMA = (
    (0.114614, 0.555649, 0.852547),
    (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
)


@pytest.mark.parametrize(("curves", "optimum"), list(zip(CURVES, OPTIMA, strict=True)))
def test_the_functions_are_best_at_their_published_optimum(curves, optimum):
    params = dict(zip(curves.space, optimum, strict=True))
    assert curves.value(params, MAX_STEPS) == pytest.approx(curves.best, abs=1e-4)


@pytest.mark.parametrize("curves", CURVES)
def test_values_get_better_with_the_steps(curves):
    rng = random.Random(0)
    params = curves.space.decode([rng.random() for _ in curves.space])
    values = [curves.value(params, steps) for steps in (1, 3, 9, 27, 81)]
    assert values == sorted(values, reverse=True)
    assert values[0] >= curves.best


@pytest.mark.parametrize("method", METHODS)
def test_every_search_spends_its_budget(method):
    first, second = regrets(METHODS[method], CURVES[0], 1, (81, 120))
    assert first >= second >= -1e-5


def test_what_is_held_counts_by_its_value_after_full_training():
    (curves, _) = CURVES
    near, far = (dict.fromkeys(curves.space, x) for x in (0.5, 0.9))

    def run(_, seed):
        yield Step(far, None)
        yield Step(far, -1.0)
        yield Step(near, -0.5)
        yield Step(near, -2.0)

    expected = [curves.value(params, MAX_STEPS) - curves.best for params in (far, near, near)]
    assert regrets(run, curves, 0, (3, 4, 9)) == expected
