from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from search.sequential.evidence import MODELLED, Evidence
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


def test_constants_do_not_change_the_length_scales_of_the_others():
    def lengths(constants):
        evidence = Evidence([Float(0.0, 1.0)] * 2 + [Choice(["only"])] * constants)
        rng = np.random.default_rng(0)
        for x, y in rng.random((4, 2)).tolist():
            evidence.add([x, y] + [0.5] * constants, (x - 0.3) ** 2 + y)
        return np.exp(evidence._fitted()[0][:2])

    assert lengths(17) == pytest.approx(lengths(0), rel=0.01)
