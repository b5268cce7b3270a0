"""Corrections of Keras, without which `model.fit` does not run on several workers.

Keras 3 has code for TensorFlow's MultiWorkerMirroredStrategy that nobody maintains
(github.com/keras-team/keras/issues/20585). Its private functions are corrected while the train
function runs, and only in versions whose source is known.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from search.errors import InvalidArgument
from spark_jobs.import_hooks import when_imported
from spark_jobs.strategies.collectives import Collectives
from spark_jobs.strategies.in_step.agreement import agreement
from spark_jobs.strategies.in_step.slow_worker import Lags
from spark_jobs.strategies.mirrored.keras_versions import (
    UncheckedKeras,
    digest_of,
    problem_of,
)
from spark_jobs.strategies.replacing import replaced

_TRAINER = "keras.src.backend.tensorflow.trainer"

Correction = tuple[Any, str, Callable[..., Any]]
"""An object, the name of its attribute, and the function to put there."""


@contextlib.contextmanager
def corrected_fit(strategy: Any, collectives: Collectives, lags: Lags) -> Iterator[None]:
    """Let `model.fit` run on all workers during the block, which may import Keras.

    Args:
        strategy: The strategy of this worker, see `spark_jobs.strategies.mirrored.mirrored`.
        collectives: The collective calls of the workers.
        lags: Measures the steps, and warns of a slow worker.
    """
    with contextlib.ExitStack() as entered:

        def correct(trainer: ModuleType) -> None:
            import keras

            sources = [inspect.getsource(function) for function in known_functions(trainer)]
            problem = problem_of(keras.__version__, digest_of(sources))
            corrections = _refusals(trainer.TensorFlowTrainer, problem)
            if not problem:
                corrections = [
                    _build_from_own_part(trainer, strategy),
                    _keep_metrics_of_steps(trainer, strategy),
                    _average_metrics_of_epochs(trainer, collectives),
                    _reset_metrics_together(trainer, collectives),
                    _agree_in_fit(trainer, strategy, collectives, lags),
                ]
            for target, name, function in corrections:
                entered.enter_context(replaced(target, name, function))

        with when_imported(_TRAINER, correct):
            yield


def known_functions(trainer: ModuleType) -> tuple[Callable[..., Any], ...]:
    """Return the functions of Keras that are corrected, or that the corrections rely on."""
    from keras.src.metrics.metric import Metric

    return (
        trainer.reduce_per_replica,
        trainer.TensorFlowTrainer._maybe_symbolic_build,
        trainer.TensorFlowTrainer._get_metrics_result_or_logs,
        Metric.add_variable,  # before Keras 3.10 an epoch has wrong metrics of several workers
    )


def _refusals(trainer: Any, problem: str) -> list[Correction]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UncheckedKeras(problem)

    names = ("fit", "evaluate", "train_on_batch", "test_on_batch")
    return [(trainer, name, refused) for name in names]


def _build_from_own_part(trainer: ModuleType, strategy: Any) -> Correction:
    """Build a model from this worker's part of a batch, as types and shapes are all it needs.

    Keras averages the batches of all workers, and TensorFlow cannot average each type of data. And
    it takes a batch out of a generator, which yields no batch twice.
    """
    original = trainer.TensorFlowTrainer._maybe_symbolic_build

    @functools.wraps(original)
    def maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if iterator is None or model._distribute_strategy is None:
            return original(model, iterator=iterator, data_batch=data_batch)
        if first_batches := getattr(iterator.data_adapter, "_first_batches", None):
            return original(model, data_batch=first_batches[0])
        *_, batches = next(iter(iterator))  # two items before Keras 3.11, else three
        own = trainer.tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], next(batches)
        )
        return original(model, data_batch=own)

    return trainer.TensorFlowTrainer, "_maybe_symbolic_build", maybe_symbolic_build


def _keep_metrics_of_steps(trainer: ModuleType, strategy: Any) -> Correction:
    """Let a step return this worker's metrics, so that the gradients alone are exchanged.

    Keras averages the metrics of all workers in each step, along an axis that numbers lack. At the
    end of an epoch it reads the sums of all workers, whatever the steps returned.
    """
    tf, original = trainer.tf, trainer.reduce_per_replica

    @functools.wraps(original)
    def reduce_per_replica(values: Any, used: Any, reduction: str) -> Any:
        if used is not strategy or reduction not in ("auto", "mean"):
            return original(values, used, reduction)
        return trainer.tree.map_structure(
            lambda value: tf.reduce_mean(strategy.experimental_local_results(value), axis=0), values
        )

    return trainer, "reduce_per_replica", reduce_per_replica


def _average_metrics_of_epochs(trainer: ModuleType, collectives: Collectives) -> Correction:
    """Average what a user's own `train_step` returns, at the end of an epoch.

    Else callbacks that use the logs, such as EarlyStopping, would decide differently per worker.
    Before the workers read their metrics, they meet.
    """
    original = trainer.TensorFlowTrainer._get_metrics_result_or_logs

    @functools.wraps(original)
    def get_metrics_result_or_logs(model: Any, logs: Any) -> Any:
        if model._distribute_strategy is not None:
            collectives.meet()  # TensorFlow would wait for ever for a worker that is in a step
        found = original(model, logs)
        if found is not logs or not isinstance(logs, Mapping) or not logs:
            return found
        values = [np.asarray(value, np.float64) for value in logs.values()]
        means = collectives.all_reduce(values)
        return dict(zip(logs, (mean.item() for mean in means), strict=True))

    return trainer.TensorFlowTrainer, "_get_metrics_result_or_logs", get_metrics_result_or_logs


def _reset_metrics_together(trainer: ModuleType, collectives: Collectives) -> Correction:
    """Note the begin of an epoch, since TensorFlow waits for all workers as it resets metrics."""
    original = trainer.TensorFlowTrainer.reset_metrics

    @functools.wraps(original)
    def reset_metrics(model: Any) -> None:
        if model._distribute_strategy is not None:
            collectives.begin_step()
        original(model)

    return trainer.TensorFlowTrainer, "reset_metrics", reset_metrics


def _agree_in_fit(
    trainer: ModuleType, strategy: Any, collectives: Collectives, lags: Lags
) -> Correction:
    """Let all workers leave `fit` together, and warn of results that depend on their number."""
    import keras

    original = trainer.TensorFlowTrainer.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(model, *args, **kwargs)
        callbacks = given.arguments.get("callbacks")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            last = agreement(keras, collectives, lags)
            last.set_model(model)
            callbacks.append(last)
        else:
            own = [] if callbacks is None else trainer.tree.flatten(callbacks)
            given.arguments["callbacks"] = [*own, agreement(keras, collectives, lags)]
        if model.steps_per_execution != 1:
            got = f"{model.steps_per_execution} steps in one execution"
            hint = "TensorFlow exchanges no gradients within a loop of steps"
            raise InvalidArgument("steps_per_execution", "1 on several workers", got, hint)
        _warn_of_normalization(keras, model)
        with strategy.training(given.arguments.get("x")):
            return original(*given.args, **given.kwargs)

    return trainer.TensorFlowTrainer, "fit", fit


def _warn_of_normalization(keras: Any, model: Any) -> None:
    kind = keras.layers.BatchNormalization
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, kind)]
    names = [repr(layer.name) for layer in layers if not layer.synchronized and layer.trainable]
    if names:
        warnings.warn(
            f"{', '.join(names)}: batch normalization of each worker's part of a batch, so the "
            "result depends on the number of workers, and the moving statistics differ between "
            "them; use keras.layers.BatchNormalization(synchronized=True)",
            stacklevel=3,
        )
