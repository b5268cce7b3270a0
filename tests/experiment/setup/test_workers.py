import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.setup.workers import Workers
from search.errors import InvalidArgument

some = st.tuples(st.integers(1, 6), st.integers(0, 6)).map(lambda w: Workers(w[0], w[0] + w[1]))


def test_a_number_is_fixed_and_a_tuple_has_the_least_and_the_greatest():
    assert Workers.read("workers", 3) == Workers.read("workers", np.int64(3)) == (3, 3)
    assert Workers.read("workers", (2, 4)) == Workers.read("workers", [2, np.int64(4)]) == (2, 4)
    assert [str(Workers(3, 3)), str(Workers(2, 4))] == ["3", "2 to 4"]


@pytest.mark.parametrize(
    "wrong",
    [(), (2,), (4, 2), (2, 2), (0, 2), (2, 3, 4), (1, 2.0), ("2", "4"), (True, 2), [None, 2]],
)
def test_a_tuple_that_does_not_grow_is_refused(wrong):
    with pytest.raises(InvalidArgument) as refused:
        Workers.read("workers_per_trial", wrong)
    assert str(refused.value) == (
        "workers_per_trial: expected an integer, or a least and a greater number, such as (2, 4), "
        f"got {wrong!r}"
    )


@given(some)
def test_what_a_user_gives_is_read_back(workers):
    assert Workers.read("workers", workers.to_json()) == workers


@given(some, st.integers(0, 60))
def test_slots_of_use_are_the_most_that_whole_trials_take(workers, slots):
    def is_whole(number):
        """Whether some number of trials takes exactly these slots."""
        return any(
            trials * workers.least <= number <= trials * workers.most
            for trials in range(number + 1)
        )

    assert workers.of_use(slots) == max(filter(is_whole, range(slots + 1)))


@given(some, st.integers(0, 60))
def test_trials_at_once_take_as_many_slots_as_there_are(workers, slots):
    sizes, left = [], slots
    while left >= workers.least:
        sizes.append(min(left, workers.most))
        left -= sizes[-1]
    assert workers.at_once(slots) == len(sizes)
