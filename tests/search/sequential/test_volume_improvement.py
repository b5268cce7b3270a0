import itertools

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.integrate import trapezoid
from scipy.stats import norm

from search.sequential.volume_improvement import VolumeImprovement
from tests.properties import examples

VALUES = st.integers(2, 3).flatmap(
    lambda objectives: arrays.arrays(
        float,
        st.tuples(st.integers(1, 30), st.just(objectives)),
        elements=st.integers(-8, 8).map(lambda number: number / 4),
    )
)


def volume(values, reference):
    """Return the volume above the reference that values dominate."""
    inside = values[(values > reference).all(axis=1)]
    return moocore.hypervolume(-inside, ref=-reference) if len(inside) else 0.0


def reference_of(values):
    worst, best = values.min(axis=0), values.max(axis=0)
    return worst - 0.1 * np.where(best > worst, best - worst, 1.0)


@given(VALUES, st.integers(0, 10**6))
@examples(150)
def test_without_uncertainty_it_is_the_volume_that_a_value_adds(values, seed):
    reference = reference_of(values)
    points = np.random.default_rng(seed).uniform(-3, 3, (5, values.shape[1]))
    before = volume(values, reference)
    added = [volume(np.vstack([values, point]), reference) - before for point in points]
    found = np.exp(VolumeImprovement(values)(points, np.full(points.shape, 1e-9)))
    assert found == pytest.approx(added, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("objectives", [2, 3])
def test_it_is_the_mean_over_what_the_model_expects(objectives):
    rng = np.random.default_rng(objectives)
    values = rng.normal(size=(20, objectives))
    mean, std = np.full(objectives, 0.5), rng.uniform(0.3, 1.0, objectives)
    reference, before = reference_of(values), volume(values, reference_of(values))
    axes = [np.linspace(m - 5 * s, m + 5 * s, 31) for m, s in zip(mean, std, strict=True)]
    grid = [
        volume(np.vstack([values, point]), reference) - before for point in itertools.product(*axes)
    ]
    expected = np.reshape(grid, [31] * objectives)
    for axis, m, s in zip(axes, mean, std, strict=True):
        density = norm.pdf(axis, m, s).reshape([-1] + [1] * (expected.ndim - 1))
        expected = trapezoid(expected * density, axis, axis=0)
    [found] = np.exp(VolumeImprovement(values)(mean[np.newaxis], std[np.newaxis]))
    assert found == pytest.approx(expected, rel=0.02)


def test_improvements_too_small_for_a_float_are_finite():
    improvement = VolumeImprovement(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isfinite(improvement(np.full((3, 2), -1e9), np.full((3, 2), 1e-6))).all()


@pytest.mark.parametrize("values", [[[1.0, 2.0]], [[1.0, 2.0]] * 3], ids=["one", "equal"])
def test_values_that_are_all_equal_have_an_improvement(values):
    improvement = VolumeImprovement(np.array(values))
    low, high = improvement(np.array([[1.0, 1.9], [1.5, 2.5]]), np.full((2, 2), 0.1))
    assert low < high


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_the_objectives_and_blocks_of_boxes_do_not_matter(order, monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.random(30)
    values = np.column_stack([x, 1 - x, x + 0.1 * rng.random(30)])
    mean, std = rng.random((7, 3)), rng.uniform(0.05, 0.5, (7, 3))
    expected = VolumeImprovement(values)(mean, std)
    monkeypatch.setattr("search.sequential.volume_improvement._AT_ONCE", 30)
    order = list(order)
    found = VolumeImprovement(values[:, order])(mean[:, order], std[:, order])
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("objectives", "least", "most"), [(2, 101, 101), (3, 1000, 2000)])
def test_a_hundred_values_make_so_many_boxes(objectives, least, most):
    values = np.abs(np.random.default_rng(0).normal(size=(100, objectives)))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    assert least <= len(VolumeImprovement(values)._bounds[0][1]) <= most


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_objectives_that_agree_make_few_boxes_in_any_order(order):
    rng = np.random.default_rng(0)
    x = rng.random(200)
    values = np.column_stack([x, 1 - x, x + 1e-6 * rng.random(200)])[:, order]
    improvement = VolumeImprovement(values)
    assert len(improvement._bounds[0][1]) < 1000  # and not n**2 / 2
    reference = reference_of(values)
    point = np.array([0.5, 0.55, 0.5])[list(order)]
    added = volume(np.vstack([values, point]), reference) - volume(values, reference)
    [found] = np.exp(improvement(point[np.newaxis], np.full((1, 3), 1e-9)))
    assert found == pytest.approx(added, rel=1e-6)
