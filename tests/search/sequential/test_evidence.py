from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from search.sequential.evidence import DRAWN, MODELLED, Evidence
from search.sequential.gaussian_process import DRAWS
from search.space.spaces import Choice, Float


def test_searches_at_once_have_one_thread_each_and_restore_the_number_of_threads():
    before = threadpool_info()

    def limited(_):
        with Evidence.one_thread():
            pools = threadpool_info()
            return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}

    with ThreadPoolExecutor(4) as threads:
        assert set().union(*threads.map(limited, range(100))) == {1}
    assert threadpool_info() == before


def test_the_latest_points_in_flight_are_in_the_model():
    evidence = Evidence([Float(0.0, 1.0)])
    for number in range(3):
        evidence.add([number / 3], float(number))
    in_flight = np.linspace(0.0, 1.0, 2 * MODELLED)[:, np.newaxis]
    model = evidence.model(in_flight.tolist())
    assert model.points[3:].tolist() == in_flight[MODELLED:].tolist()
    assert len(model.values) == 3 + MODELLED


@pytest.mark.parametrize(
    ("evaluated", "in_flight", "objectives", "draws"),
    [
        (3, 0, 1, DRAWS),
        (DRAWN, 0, 1, DRAWS),
        (DRAWN + 20, 0, 1, 1),
        (3, DRAWN - 3, 1, DRAWS),
        (3, 2 * DRAWN - 3, 1, DRAWS // 2),
        (3, MODELLED, 1, DRAWS * DRAWN // (3 + MODELLED)),
        (3, 0, 2, 1),
    ],
)
def test_a_model_is_averaged_over_fewer_draws_the_more_points_it_has(
    evaluated, in_flight, objectives, draws
):
    evidence = Evidence([Float(0.0, 1.0)], objectives)
    for x in np.linspace(0, 1, evaluated).tolist():
        evidence.add([x], *[(x - 0.3) ** 2] * objectives)
    model = evidence.model([[0.5]] * in_flight)
    assert [len(process.thetas) for process in model.processes] == [draws] * objectives


def test_constants_do_not_change_the_length_scales_of_the_others():
    def lengths(constants):
        evidence = Evidence([Float(0.0, 1.0)] * 2 + [Choice(["only"])] * constants)
        rng = np.random.default_rng(0)
        for x, y in rng.random((4, 2)).tolist():
            evidence.add([x, y] + [0.5] * constants, (x - 0.3) ** 2 + y)
        [draws] = evidence._fitted()
        return np.exp(draws)

    assert (lengths(17) == lengths(0)).all()
