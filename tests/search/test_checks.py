import pytest

from search.checks import check_integer, check_number
from search.errors import InvalidArgument


@pytest.mark.parametrize("value", [3, 4, 10**30])
def test_valid_integers_pass(value):
    check_integer("n", value, 3)


@pytest.mark.parametrize("value", [2, -3, 3.0, True, "3", None])
def test_other_integers_are_refused(value):
    with pytest.raises(InvalidArgument) as caught:
        check_integer("n", value, 3)
    assert str(caught.value) == f"n: expected an integer of at least 3, got {value!r}"


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_numbers_within_the_bounds_pass(value):
    check_number("x", value, "a number of [0, 1]", lambda number: 0 <= number <= 1)


@pytest.mark.parametrize("value", [-0.1, 2, float("nan"), True, "0.5", None, 0j])
def test_other_numbers_are_refused(value):
    with pytest.raises(InvalidArgument) as caught:
        check_number("x", value, "a number of [0, 1]", lambda number: 0 <= number <= 1)
    assert str(caught.value) == f"x: expected a number of [0, 1], got {value!r}"
