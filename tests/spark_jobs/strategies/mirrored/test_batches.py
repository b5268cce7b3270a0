from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.strategies.mirrored.batches import bounds
from tests.spark_jobs.strategies.mirrored import train_functions as functions


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_parts_have_each_sample_once_and_about_the_same_size(samples, replicas):
    parts = [range(*bounds(samples, replica, replicas)) for replica in range(replicas)]
    assert [sample for part in parts for sample in part] == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_each_batch_of_a_data_set_is_cut(gangs):
    (found,) = gangs.values(functions.parts, 1)
    assert found["numbers"] == [[[0, 1], [4, 5], []], [[2, 3], [6, 7], [8]]]
    assert found["structure"][1][2] == ({"a": [8], "b": ([8], [9])}, [8])
    assert found["ragged"][1][0] == [[2], [3]]
    assert found["sparse"][1] == [[[2, 2], [3, 3]], [[6, 6], [7, 7]], [[8, 8]]]
    assert found["two replicas"] == ([[2], [3], [6], [7], [], [8]], 6)
    assert found["static"] == 1
    assert "expected batches whose arrays have one length" in found["unequal"]
    # A batch with fewer samples than replicas is not cut where a model is trained on it.
    assert found["trained"] == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [8]]]
    assert found["three replicas"] == [[0], [4], [8]]
    assert found["told"] == [4, 4]
