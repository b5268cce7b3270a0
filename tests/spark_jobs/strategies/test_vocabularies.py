"""The number that stands for a model's vocabularies."""

from __future__ import annotations

import pytest

from spark_jobs.strategies.vocabularies import number_of


def strings(words):
    import keras

    return keras.layers.StringLookup(vocabulary=words)


def integers(words):
    import keras

    return keras.layers.IntegerLookup(vocabulary=words)


def texts(words):
    import keras

    return keras.layers.TextVectorization(vocabulary=words)


def numbered(layer, dtype="string"):
    """Return the number of a model that has a layer in a model that is one of its layers."""
    import keras

    given = keras.layers.Input((1,), dtype=dtype)
    inner = keras.Model(given, layer(given))
    return number_of(keras, keras.Model(given, inner(given)))


@pytest.mark.parametrize(
    ("kind", "dtype", "words"),
    [(strings, "string", ["a", "b"]), (integers, "int64", [1, 2]), (texts, "string", ["a", "b"])],
)
def test_the_same_words_in_the_same_order_have_one_number(kind, dtype, words):
    number = numbered(kind(words), dtype)
    assert number == numbered(kind(words), dtype)
    assert number not in (numbered(kind(words[::-1]), dtype), numbered(kind(words[:1]), dtype))


def test_words_that_were_adapted_count_as_those_that_were_given():
    import keras

    adapted = keras.layers.StringLookup()
    adapted.adapt(["b", "a", "a"])
    assert numbered(adapted) == numbered(strings(["a", "b"]))
