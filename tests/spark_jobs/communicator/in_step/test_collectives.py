"""Collectives compute what NumPy computes, for any number of members and any arrays."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from search.errors import InvalidArgument
from spark_jobs.communicator import mesh
from spark_jobs.communicator.in_step.ring import CHUNK
from spark_jobs.communicator.membership import GangBroken, MembersDisagree
from tests.properties import examples
from tests.spark_jobs.communicator.gangs import Gang, results

REAL = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.uint32]
FLOATS = [np.float16, np.float32, np.float64]
NUMPY = {"sum": np.sum, "min": np.min, "max": np.max, "mean": np.mean}


def whole_numbers(dtype):
    """Small whole numbers, whose sums are exact in every type and order."""
    return st.integers(0, 9).map(dtype)


@st.composite
def gangs_of_arrays(draw, types=REAL):
    """For each member a list of arrays, with the same types and shapes in all."""
    size = draw(st.integers(1, 5))
    dtypes = draw(st.lists(st.sampled_from(types), max_size=4))
    shapes = [
        draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7)) for _ in dtypes
    ]
    return [
        [
            draw(npst.arrays(dtype, shape, elements=whole_numbers(dtype)))
            for dtype, shape in zip(dtypes, shapes, strict=True)
        ]
        for _ in range(size)
    ]


@examples(40)
@given(gangs_of_arrays(), st.sampled_from(["sum", "min", "max"]))
def test_all_reduce_equals_numpy(gang, op):
    expected = [NUMPY[op](np.stack(same), axis=0) for same in zip(*gang, strict=True)]
    for found in results(len(gang), lambda c: c.all_reduce(gang[c.rank], op)):
        assert len(found) == len(expected)
        for array, wanted, mine in zip(found, expected, gang[0], strict=True):
            assert array.dtype == mine.dtype
            assert array.shape == mine.shape
            np.testing.assert_array_equal(array, wanted.astype(mine.dtype))


def assert_reduced(gang, op, **options):
    """Assert that an all-reduce of small whole numbers equals NumPy's in each member."""
    expected = [NUMPY[op](np.stack(same), axis=0) for same in zip(*gang, strict=True)]
    for found in results(len(gang), lambda c: c.all_reduce(gang[c.rank], op, **options)):
        for array, wanted, mine in zip(found, expected, gang[0], strict=True):
            assert array.dtype == mine.dtype
            assert array.shape == mine.shape
            np.testing.assert_array_equal(array, wanted.astype(mine.dtype))


@examples(40)
@given(gangs_of_arrays(), st.sampled_from(["sum", "min", "max"]), st.data())
def test_several_rings_equal_numpy(gang, op, data):
    assert_reduced(gang, op, rings=data.draw(st.integers(1, max(1, len(gang) - 1))))


@examples(40)
@given(gangs_of_arrays(FLOATS), st.sampled_from(["sum", "min", "max"]), st.data())
def test_halves_equal_numpy(gang, op, data):
    rings = data.draw(st.integers(1, max(1, len(gang) - 1)))
    assert_reduced(gang, op, rings=rings, compress="float16")


@pytest.mark.parametrize(("size", "rings"), [(3, 2), (4, 3), (5, 4)])
@pytest.mark.parametrize("length", [1, 3, CHUNK + 1, 5 * CHUNK // 4 + 3])
@pytest.mark.parametrize("compress", [None, "float16"])
def test_the_mean_in_several_rings_is_the_same_in_all_members(size, rings, length, compress):
    arrays = np.random.default_rng(length).normal(size=(size, length)).astype(np.float32)
    options = {"rings": rings, "compress": compress}
    found = results(size, lambda c: c.all_reduce([arrays[c.rank]], **options)[0])
    # Each of up to 5 sums on the way is off by up to 2 ** -11 of itself, and none is above 16.
    off = 1e-6 if compress is None else 5 * 16 * 2**-11 / size
    np.testing.assert_allclose(found[0], arrays.mean(axis=0), rtol=1e-5, atol=off)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_calls_with_other_numbers_of_rings_follow_each_other():
    def body(communicator):
        sums = []
        for number, rings in enumerate([1, 3, 2, 1, 2, 3]):
            given = [np.full(100_003, communicator.rank + number), np.float32([number])]
            array, one = communicator.all_reduce(given, "sum", rings=rings)
            assert one == 4 * number
            communicator.barrier()
            (copied,) = communicator.broadcast([array], root=number % 4)
            sums.append(set(copied.tolist()))
        return sums

    assert results(4, body) == [[{6 + 4 * number} for number in range(6)]] * 4


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("numbers", "op", "largest"),
    [
        ([70_000.0, 1.0, 1.0, 1.0], "sum", (70_000, 70_003)),  # one worker's
        ([60_000.0, 60_000.0, 0.0, 0.0], "sum", (120_000, 120_000)),  # a sum
        ([-70_000.0, 1.0, 1.0, 1.0], "min", (70_000, 70_000)),
        ([300_000.0, 1.0, 1.0, 1.0], "mean", (75_000, 300_003)),
    ],
)
def test_what_16_bits_do_not_hold_is_named_in_all_members_which_go_on(size, numbers, op, largest):
    def body(communicator):
        array = np.full(7, numbers[communicator.rank], np.float32)
        with pytest.raises(InvalidArgument) as raised:
            communicator.all_reduce([np.ones(3, np.float32), array], op, compress="float16")
        communicator.barrier()
        return str(raised.value)

    (text,) = set(results(size, body))
    found = re.match(r"arrays\[1\]: .* from -65504 to 65504 .*, got (\d+);", text)
    assert largest[0] <= int(found[1]) <= largest[1]


def test_16_bits_hold_a_mean_whose_sum_they_do_not_hold():
    def body(communicator):
        (mean,) = communicator.all_reduce([np.float16([40_000.0, -65_504.0])], "mean")
        return mean.dtype.name, mean.tolist()

    assert results(3, body) == [("float16", [40_000.0, -65_504.0])] * 3


def test_numbers_that_are_infinite_before_the_call_are_returned():
    def body(communicator):
        given = np.float32([np.inf if communicator.rank else 1.0, np.nan, 2.0])
        return communicator.all_reduce([given], "sum", compress="float16")[0].tolist()

    for found in results(3, body):
        assert found[0] == np.inf
        assert np.isnan(found[1])
        assert found[2] == 6


def test_a_number_that_16_bits_do_not_hold_is_no_error_if_another_is_the_least():
    def body(communicator):
        given = np.float32([100_000.0 if communicator.rank else 3.0])
        return communicator.all_reduce([given], "min", compress="float16")[0].tolist()

    assert results(3, body) == [[3.0]] * 3


def test_numbers_that_were_infinite_do_not_hide_which_array_16_bits_do_not_hold():
    def body(communicator):
        large = np.float32([np.nan, 100_000.0 if communicator.rank else 3.0])
        given = [np.float32(np.inf), large]
        least = communicator.all_reduce(given, "min", compress="float16")
        with pytest.raises(InvalidArgument, match=r"arrays\[1\]: .*, got 10000[03];"):
            communicator.all_reduce(given, "sum", compress="float16")
        communicator.barrier()
        return least[0] == np.inf and least[1][1] == 3

    assert results(2, body) == [True] * 2


def test_one_worker_takes_the_options_of_several_and_rounds_nothing():
    (found,) = results(1, lambda c: c.all_reduce([[0.1, 1e9]], rings=3, compress="float16"))
    assert found[0].tolist() == [0.1, 1e9]


@examples(20)
@given(gangs_of_arrays(), st.data())
def test_broadcast_returns_the_arrays_of_the_root(gang, data):
    root = data.draw(st.integers(0, len(gang) - 1))
    for found in results(len(gang), lambda c: c.broadcast(gang[c.rank], root)):
        for array, wanted in zip(found, gang[root], strict=True):
            assert array.dtype == wanted.dtype
            np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("length", [1, 3, CHUNK // 4 - 1, CHUNK // 4 + 1, 5 * CHUNK // 4 + 3])
def test_the_mean_of_any_length_is_the_same_in_all_members(size, length):
    arrays = np.random.default_rng(length).normal(size=(size, length)).astype(np.float32)
    found = results(size, lambda c: c.all_reduce([arrays[c.rank]])[0])
    np.testing.assert_allclose(found[0], arrays.mean(axis=0), rtol=1e-5, atol=1e-6)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_complex_numbers_and_arrays_in_other_orders():
    given = [
        np.array([1 + 2j, 3 - 1j]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10.0)[::3],
        np.arange(4, dtype=">i4"),
        7,
    ]
    for found in results(3, lambda c: c.all_reduce(given, "sum")):
        for array, wanted in zip(found, given, strict=True):
            np.testing.assert_array_equal(array, 3 * np.asarray(wanted))


def test_arguments_stay_as_they_were_and_results_are_their_members_own():
    given = np.ones(5)

    def body(communicator):
        (first,) = communicator.all_reduce([given], "sum")
        first += communicator.rank
        (second,) = communicator.broadcast([given])
        second += communicator.rank
        return first[0], second[0]

    assert results(3, body) == [(3, 1), (4, 2), (5, 3)]
    assert given.tolist() == [1] * 5


def test_calls_after_each_other_do_not_mix():
    def body(communicator):
        sums = []
        for number in range(50):
            (found,) = communicator.all_reduce([np.full(number, communicator.rank + number)], "sum")
            communicator.barrier()
            sums.append(int(found.sum()))
        return sums

    expected = [number * (3 + 3 * number) for number in range(50)]
    assert results(3, body) == [expected] * 3


def test_a_barrier_is_passed_by_nobody_before_all_have_come():
    came = []

    def body(communicator):
        for number in range(20):
            came.append(number)
            communicator.barrier()
            assert came.count(number) == communicator.size
            communicator.barrier()

    results(4, body)


def test_a_late_member_that_has_no_room_for_what_others_send_is_waited_for(monkeypatch):
    """The kernel would end a connection for requests, though the host of the member is there."""
    monkeypatch.setattr(mesh, "_DELIVERY", 0.1)
    large = np.ones(30_000_000, np.uint8)  # a part is far more than the kernel keeps

    def body(communicator):
        if communicator.rank == 0:
            threading.Event().wait(1.5)
        (found,) = communicator.all_reduce([large], "sum")
        return bool((found == 3).all())

    assert results(3, body) == [True] * 3


def test_twelve_members_on_one_host():
    arrays = np.random.default_rng(0).integers(0, 9, (12, 100_001)).astype(np.float32)
    for found in results(12, lambda c: c.all_reduce([arrays[c.rank]], "sum")[0]):
        np.testing.assert_array_equal(found, arrays.sum(axis=0))


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (
            [
                lambda c: c.all_reduce([np.zeros((2, 3))]),
                lambda c: c.all_reduce([np.zeros((3, 2))]),
            ],
            "array 0 is float64 of shape (2, 3) in worker 0, but float64 of shape (3, 2) in worker",
        ),
        (
            [lambda c: c.all_reduce([np.zeros(1)]), lambda c: c.all_reduce([np.float32([0])])],
            "array 0 is float64 of shape (1,) in worker 0, but float32 of shape (1,) in worker",
        ),
        (
            [lambda c: c.all_reduce([1.0, 2.0]), lambda c: c.all_reduce([1.0])],
            "worker 0 passes 2 arrays, but worker",
        ),
        (
            [lambda c: c.barrier(), lambda c: c.broadcast([1.0])],
            "worker 0 calls barrier, but worker",
        ),
        (
            [lambda c: c.all_reduce([1.0], "sum"), lambda c: c.all_reduce([1.0], "max")],
            "worker 0 calls all_reduce with op='sum', but worker",
        ),
        (
            [
                lambda c: c.all_reduce([1.0]),
                lambda c: c.all_reduce([1.0], compress="float16"),
            ],
            "worker 0 calls all_reduce with op='mean', but worker",
        ),
    ],
)
@pytest.mark.parametrize("size", [2, 3])
def test_members_that_disagree_are_told_what_differs(size, calls, sentence):
    def body(communicator):
        calls[communicator.rank > 0](communicator)

    with Gang(size) as gang:
        found = gang.together(body)
    named = [str(error) for error in found if isinstance(error, MembersDisagree)]
    assert any(sentence in text or "worker 0" in text for text in named)
    assert all(isinstance(error, MembersDisagree | GangBroken) for error in found)
    first = found[0]
    assert not isinstance(first, MembersDisagree) or sentence in str(first)


def test_after_a_failed_call_the_next_one_fails_too():
    def body(communicator):
        with pytest.raises((MembersDisagree, GangBroken)):
            communicator.all_reduce([np.zeros(1 + communicator.rank)])
        communicator.barrier()

    with Gang(2) as gang:
        found = gang.together(body)
    assert all(isinstance(error, MembersDisagree | GangBroken) for error in found)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda c: c.all_reduce(np.zeros(3)), "arrays: expected a list of arrays, got ndarray"),
        (lambda c: c.all_reduce(["x"]), "arrays[0]: expected an array of numbers, got 'x'"),
        (lambda c: c.all_reduce([1.0, object()]), "arrays[1]: expected an array of numbers"),
        (lambda c: c.all_reduce([[1, 2]]), "floating-point numbers for op='mean', got int64"),
        (lambda c: c.all_reduce([1j], "max"), "real numbers for op='max', got complex128"),
        (
            lambda c: c.all_reduce([1.0], "product"),
            "op: expected one of 'mean', 'sum', 'min', 'max'",
        ),
        (
            lambda c: c.all_reduce([1.0], rings=2),
            "rings: expected 1, as there are 2 workers, got 2; ",
        ),
        (
            lambda c: c.all_reduce([1.0], rings=np.int64(2)),
            "rings: expected 1, as there are 2 workers, got 2; ",
        ),
        (lambda c: c.all_reduce([1.0], ["mean"]), "op: expected one of 'mean', 'sum', 'min'"),
        (lambda c: c.all_reduce([1.0], rings=0), "rings: expected an integer from 1, got 0"),
        (lambda c: c.all_reduce([1.0], rings=1.0), "rings: expected an integer from 1, got 1.0"),
        (lambda c: c.all_reduce([1.0], rings=True), "rings: expected an integer from 1, got True"),
        (
            lambda c: c.all_reduce([1.0], compress="int8"),
            "compress: expected 'float16' or None, got 'int8'",
        ),
        (
            lambda c: c.all_reduce([1.0, 2], "sum", compress="float16"),
            "arrays[1]: expected floating-point numbers for compress='float16', got int64",
        ),
        (lambda c: c.broadcast([1.0], root=2), "root: expected a rank from 0 to 1, got 2"),
        (
            lambda c: c.broadcast([1.0], root=np.arange(2)),
            "root: expected a rank from 0 to 1, got array([0, 1])",
        ),
        (lambda c: c.broadcast([np.array([True])]), "arrays[0]: expected an array of numbers"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(call, sentence):
    def body(communicator):
        with pytest.raises(InvalidArgument) as raised:
            call(communicator)
        communicator.barrier()  # the others were not disturbed
        return str(raised.value)

    assert all(sentence in text for text in results(2, body))
