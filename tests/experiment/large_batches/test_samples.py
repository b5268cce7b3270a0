"""The samples of a data set in memory."""

from collections import namedtuple

import numpy as np
import pytest

from experiment.large_batches.samples import Samples
from search.errors import InvalidArgument

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)


def test_arrays_are_cut_and_chosen_together():
    samples = Samples((X, Y))
    assert samples.number == 6
    x, y = samples.first(2)
    assert (x.tolist(), y.tolist()) == ([[0, 1], [2, 3]], [0, 1])
    x, y = samples.at(np.array([5, 0]))
    assert (x.tolist(), y.tolist()) == ([[10, 11], [0, 1]], [5, 0])


def test_parts_may_have_weights_and_several_inputs():
    inputs = {"a": X, "b": [Y, (Y, X)]}
    x, _, weights = Samples((inputs, Y, np.ones(6))).first(1)
    assert x["b"][1][1].tolist() == [[0, 1]]
    assert isinstance(x["b"][1], tuple)
    assert weights.tolist() == [1]


def test_a_part_may_be_a_named_tuple():
    named = namedtuple("named", "a b")  # as a user may have it
    x, _ = Samples((named(X, Y), Y)).first(2)
    assert type(x) is named
    assert x.b.tolist() == [0, 1]


@pytest.mark.parametrize("library", ["tensorflow", "keras"])
def test_tensors_are_arrays(library):
    import keras
    import tensorflow as tf

    make = tf.constant if library == "tensorflow" else keras.ops.convert_to_tensor
    (x, _) = Samples([make(X), Y]).first(3)
    assert isinstance(x, np.ndarray)
    assert x.tolist() == X[:3].tolist()


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (X, r"array\(.*"),
        ((X,), r"\(array.*"),
        ((X, "labels"), "a part that is 'labels'"),
        ((X, np.float64(1.0)), "a part that is .*"),
        ((X, np.array([None] * 6)), "a part that is .*"),
        ((X, [0, 1, 2, 3, 4, 5]), "a part that is 0"),
        ((X, Y[:4]), "arrays of 4 and 6 samples"),
        ((X[:0], Y[:0]), "no samples"),
    ],
)
def test_other_data_is_refused_with_advice(data, got):
    check_refused(data, got)


def test_a_data_set_is_refused_with_advice():
    import tensorflow as tf

    check_refused(tf.data.Dataset.from_tensor_slices((X, Y)), ".*Dataset.*")


def check_refused(data, got):
    expected = r"^data: expected a tuple \(x, y\) of arrays with the same number of samples, got "
    with pytest.raises(InvalidArgument, match=f"(?s){expected}{got}; take some batches of"):
        Samples(data)
