from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csr_matrix

from search.errors import InvalidArgument
from spark_jobs.strategies.sharding import part_of


@given(st.integers(0, 1000), st.integers(1, 40))
def test_the_parts_have_each_item_once_and_about_the_same_length(items, workers):
    parts = [part_of(list(range(items)), rank, workers) for rank in range(workers)]
    assert sorted(item for part in parts for item in part) == list(range(items))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_arrays_in_structures_are_divided_alike():
    array = np.arange(10).reshape(5, 2)
    Pair = namedtuple("Pair", "x y")
    part = part_of({"a": array, "b": Pair([array, array], list("vwxyz"))}, 1, 2)
    assert part["a"].tolist() == [[2, 3], [6, 7]]
    assert [each.tolist() for each in part["b"].x] == [[[2, 3], [6, 7]]] * 2
    assert part["b"].y == ["w", "y"]


def test_rows_of_tables_are_divided():
    table = pd.DataFrame({"a": [1, 2, 3]}, index=[7.5, 8.5, 9.5])
    assert part_of(table, 0, 2)["a"].tolist() == [1, 3]
    assert part_of((table, table["a"]), 1, 2)[1].tolist() == [2]


def test_rows_of_sparse_matrices_are_divided():
    """Their length is refused by SciPy."""
    matrix = csr_matrix([[1, 0], [0, 2], [3, 0]])
    assert part_of(matrix, 0, 2).toarray().tolist() == [[1, 0], [3, 0]]
    with pytest.raises(InvalidArgument, match="data\\[0\\] of 3, data\\[1\\] of 2"):
        part_of((matrix, [1, 2]), 0, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data: expected an array, a list"),
        ({"x": None}, "data['x']: expected an array"),
        ((np.zeros(3), np.zeros(4)), "one length, got data[0] of 3, data[1] of 4"),
        (np.float64(1), "data: expected an array"),
        (coo_matrix([[1, 0], [0, 2]]), "data: expected an array with rows to choose, got <"),
    ],
)
def test_other_data_are_refused(data, message):
    with pytest.raises(InvalidArgument) as raised:
        part_of(data, 0, 2)
    assert message in str(raised.value)
