"""Arrays in flat buffers, and their descriptions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from search.errors import InvalidArgument
from spark_jobs.communicator.arrays import ArrayType, Flat, as_bytes, read_array, type_of

NUMBERS = st.one_of(
    npst.floating_dtypes(),
    npst.integer_dtypes(),
    npst.unsigned_integer_dtypes(),
    npst.complex_number_dtypes(),
)
ARRAYS = npst.arrays(NUMBERS, npst.array_shapes(min_dims=0, min_side=0, max_side=4))


@given(st.lists(ARRAYS, max_size=5))
def test_flat_arrays_are_the_arrays(arrays):
    read = [read_array("x", array) for array in arrays]
    flat = Flat(read)
    assert sum(map(len, flat.buffers)) == sum(array.size for array in arrays)
    assert len({buffer.dtype for buffer in flat.buffers}) == len(flat.buffers)
    for found, array in zip(flat.arrays(), arrays, strict=True):
        assert found.shape == array.shape
        np.testing.assert_array_equal(found, array)


@given(ARRAYS)
def test_a_type_tells_the_bytes(array):
    read = read_array("x", array)
    assert type_of(read).nbytes == len(as_bytes(read.copy("C"))) == array.nbytes


@pytest.mark.parametrize("dtype", ["O", "object", "V8", "nonsense", "<U3", "datetime64[s]", "bool"])
def test_other_types_than_numbers_have_no_size(dtype):
    with pytest.raises(ValueError, match="no type of numbers"):
        _ = ArrayType(dtype, (1,)).nbytes


@pytest.mark.parametrize("value", ["text", None, object(), [[1], [2, 3]], np.array([True])])
def test_other_values_than_numbers_are_refused(value):
    with pytest.raises(InvalidArgument, match="x: expected an array of numbers, got"):
        read_array("x", value)
