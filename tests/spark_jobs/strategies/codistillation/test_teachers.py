"""The copies of other workers' models."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.codistillation.cross_entropy import CrossEntropy
from spark_jobs.strategies.codistillation.teachers import Teachers
from spark_jobs.strategies.settings import Codistillation
from spark_jobs.strategies.vocabularies import number_of
from spark_jobs.strategies.weights import flat
from tests.spark_jobs.communicator.gangs import results


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras, which pytest.warns repeats
def test_weights_that_are_not_finite_teach_nobody_and_are_warned_of():
    """Or one worker whose training diverges would take all others with it."""
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    published = [[1.0, 2.0], [np.nan, 3.0], [np.inf, 3.0], [4.0, 5.0]]

    def body(communicator):
        loss = CrossEntropy("binary", from_logits=True)
        teachers = Teachers(
            keras, Codistillation(), communicator, name="weights", cross_entropy=loss
        )
        teachers.begin(model)
        copies = []
        for weights in published:
            if communicator.rank == 1:
                communicator.publish("weights", np.float32([*weights, number_of(keras, model)]))
            communicator.barrier()
            if communicator.rank == 0:
                teachers.exchange(model, 1)
                copies.append(flat(keras, teachers._models[1].weights).tolist())
            communicator.barrier()
        return copies

    with pytest.warns(UserWarning, match="worker 1 has published weights that are not finite"):
        copies, _ = results(2, body)
    assert copies == [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [4.0, 5.0]]


def begun(model):
    """Return the teachers of rank 0 of two workers."""
    import keras

    gang, loss = SimpleNamespace(size=2, rank=0), CrossEntropy("binary", from_logits=True)
    teachers = Teachers(keras, Codistillation(), gang, name="weights", cross_entropy=loss)
    teachers.begin(model)
    return teachers


def test_a_copy_is_not_compiled():
    """It needs neither the metrics, which may be functions of the user, nor an optimizer."""
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=[lambda y, predicted: keras.ops.mean(predicted)])
    teachers = begun(model)
    assert (teachers._models[1].compiled, model.compiled) == (False, True)


def words_of(layer):
    import keras

    words = keras.layers.Input((1,), dtype="string")
    return keras.Model(words, keras.layers.Embedding(5, 1)(layer(words)))


def test_a_model_whose_copy_would_lack_a_vocabulary_is_refused():
    """To the copy all words would be unknown, as an adapted vocabulary is no weight."""
    import keras

    begun(words_of(keras.layers.StringLookup(vocabulary=["a", "b"])))
    adapted = keras.layers.TextVectorization(output_sequence_length=3)
    adapted.adapt(["a b"])
    with pytest.raises(InvalidArgument) as raised:
        begun(words_of(adapted))
    assert re.sub("<.*>", "a model", str(raised.value)) == (
        "model: expected one that keras.models.clone_model copies with all vocabularies, for "
        "'codistillation', got a model; give each layer the same list of words in all workers, by "
        "vocabulary="
    )


def test_vocabularies_that_differ_between_the_workers_are_refused():
    """Or a worker's model would learn from an embedding of other words."""
    import keras

    models = [words_of(keras.layers.StringLookup(vocabulary=list(words))) for words in ("ab", "ba")]

    def body(communicator):
        loss, name = CrossEntropy("binary", from_logits=True), "weights"
        teachers = Teachers(keras, Codistillation(), communicator, name=name, cross_entropy=loss)
        teachers.begin(models[communicator.rank])
        if communicator.rank == 1:
            teachers.exchange(models[1], 1)
        communicator.barrier()
        said = ""
        if communicator.rank == 0:
            with pytest.raises(InvalidArgument) as raised:
                teachers.exchange(models[0], 1)
            said = str(raised.value)
        communicator.barrier()
        return said

    assert results(2, body)[0] == (
        "model: expected the same vocabularies in all workers, for 'codistillation', got different "
        "ones; give each layer the same list of words in all workers, by vocabulary="
    )
