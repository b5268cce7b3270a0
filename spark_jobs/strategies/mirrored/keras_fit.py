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
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from search.errors import InvalidArgument, shown
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.import_hooks import when_imported
from spark_jobs.strategies.first_batch import peeked, taken
from spark_jobs.strategies.fits import with_ours
from spark_jobs.strategies.in_step.agreement import agreement
from spark_jobs.strategies.in_step.slow_worker import Lags
from spark_jobs.strategies.mirrored.batches import bounds
from spark_jobs.strategies.mirrored.keras_versions import (
    UncheckedKeras,
    digest_of,
    problem_of,
)
from spark_jobs.strategies.replacing import replaced

_TRAINER = "keras.src.backend.tensorflow.trainer"

Correction = tuple[Any, str, Any]
"""An object, the name of its attribute, and what to put there, mostly a function."""


@contextlib.contextmanager
def corrected_fit(strategy: Any, communicator: Communicator, lags: Lags) -> Iterator[None]:
    """Let `model.fit` run on all workers during the block, which may import Keras.

    It is refused in other versions of Keras, and with other backends than TensorFlow.

    Args:
        strategy: The strategy of this worker, see `spark_jobs.strategies.mirrored.mirrored`.
        communicator: The connections of this worker to the others.
        lags: Measures the steps, and warns of a slow worker.
    """
    with contextlib.ExitStack() as entered:

        def correct(trainer: ModuleType) -> None:
            import keras

            sources = [inspect.getsource(function) for function in known_functions(trainer)]
            problem = problem_of(keras.__version__, digest_of(sources))
            corrections = _refusals(trainer.TensorFlowTrainer, UncheckedKeras(problem))
            if not problem:
                corrections = [
                    _build_from_own_part(trainer, strategy),
                    _keep_metrics_of_steps(trainer, strategy),
                    _average_metrics_of_epochs(trainer, communicator),
                    _reset_metrics_together(trainer, communicator),
                    _clip_sum_of_gradients(trainer, strategy),
                    _branch_outside_of_replicas(trainer, strategy),
                    _share_loss_of_one_number(),
                    _skip_steps_together(trainer, strategy),
                    _agree_in_fit(trainer, strategy, communicator, lags),
                    *_numbers_of_variables(),
                ]
            for target, name, value in corrections:
                entered.enter_context(replaced(target, name, value))

        def refuse_other_backends(keras: ModuleType) -> None:
            if (error := problem_of_backend(keras.backend.backend())) is not None:
                for target, name, function in _refusals(keras.Model, error):
                    entered.enter_context(replaced(target, name, function))

        with when_imported("keras", refuse_other_backends), when_imported(_TRAINER, correct):
            yield


def problem_of_backend(backend: str) -> InvalidArgument | None:
    """Return the error for a backend with which each worker would train a model of its own.

    Args:
        backend: The name of Keras' backend.

    Returns:
        The error; None for 'tensorflow'.
    """
    if backend == "tensorflow":
        return None
    return InvalidArgument(
        "KERAS_BACKEND",
        "'tensorflow', for strategy 'mirrored'",
        shown(backend),
        "pass strategy='jax' for Keras on JAX, or 'downpour', which trains with each backend",
    )


def known_functions(trainer: ModuleType) -> tuple[Callable[..., Any], ...]:
    """Return the functions of Keras that are corrected, or that the corrections rely on."""
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.losses import loss
    from keras.src.metrics.metric import Metric
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    return (
        trainer.reduce_per_replica,
        trainer.TensorFlowTrainer._maybe_symbolic_build,
        PyDatasetAdapter._standardize_batch,
        trainer.TensorFlowTrainer._get_metrics_result_or_logs,
        Metric.add_variable,  # before Keras 3.10 an epoch has wrong metrics of several workers
        BaseOptimizer.apply,
        BaseOptimizer._backend_apply_gradients,
        BaseOptimizer._clip_gradients,
        TFOptimizer._all_reduce_sum_gradients,
        loss.reduce_values,
        LossScaleOptimizer._tf_apply,
        LossScaleOptimizer.check_finite,
    )


def _refusals(trainer: Any, error: Exception) -> list[Correction]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise error

    names = ("fit", "evaluate", "train_on_batch", "test_on_batch")
    return [(trainer, name, refused) for name in names]


def _build_from_own_part(trainer: ModuleType, strategy: Any) -> Correction:
    """Build a model from this worker's part of a batch, as types and shapes are all it needs.

    Keras averages the batches of all workers, and TensorFlow cannot average each type of data.
    """
    original = trainer.TensorFlowTrainer._maybe_symbolic_build

    def part_of(batch: Any) -> Any:
        def cut(value: Any) -> Any:
            shape = getattr(value, "shape", None)
            if shape is None or not len(shape) or isinstance(value, trainer.tf.SparseTensor):
                return value
            _, end = bounds(shape[0], 0, strategy.num_replicas_in_sync)
            return value[: end or None]  # fewer samples than replicas are not divided

        return trainer.tree.map_structure(cut, batch)

    @functools.wraps(original)
    def maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if iterator is None or model._distribute_strategy is None:
            return original(model, iterator=iterator, data_batch=data_batch)
        if (whole := peeked(iterator.data_adapter)) is not None:
            return original(model, data_batch=part_of(whole))
        own = trainer.tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], taken(iterator)
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


def _average_metrics_of_epochs(trainer: ModuleType, communicator: Communicator) -> Correction:
    """Average what a user's own `train_step` returns, at the end of an epoch.

    Else callbacks that use the logs, such as EarlyStopping, would decide differently per worker.
    Before the workers read their metrics, they meet.
    """
    original = trainer.TensorFlowTrainer._get_metrics_result_or_logs

    @functools.wraps(original)
    def get_metrics_result_or_logs(model: Any, logs: Any) -> Any:
        if model._distribute_strategy is not None:
            communicator.meet()  # TensorFlow would wait for ever for a worker that is in a step
        found = original(model, logs)
        if found is not logs or not isinstance(logs, Mapping) or not logs:
            return found
        # As on one worker, they may be vectors, or in a dict of their own.
        values = [np.asarray(value, np.float64) for value in trainer.tree.flatten(logs)]
        means = communicator.all_reduce(values)
        return trainer.tree.pack_sequence_as(
            logs, [mean if mean.ndim else mean.item() for mean in means]
        )

    return trainer.TensorFlowTrainer, "_get_metrics_result_or_logs", get_metrics_result_or_logs


def _reset_metrics_together(trainer: ModuleType, communicator: Communicator) -> Correction:
    """Note the begin of an epoch, since TensorFlow waits for all workers as it resets metrics."""
    original = trainer.TensorFlowTrainer.reset_metrics

    @functools.wraps(original)
    def reset_metrics(model: Any) -> None:
        if model._distribute_strategy is not None:
            communicator.begin_step()
        original(model)

    return trainer.TensorFlowTrainer, "reset_metrics", reset_metrics


def _clip_sum_of_gradients(trainer: ModuleType, strategy: Any) -> Correction:
    """Clip the gradient of the whole batch, as one worker does, not that of each worker's part.

    Keras clips before it adds up the gradients of all workers. So here it gets their sum, and each
    worker goes on with an equal share of the result: the shares add up to it. It costs a second
    exchange in each step, of models whose optimizer clips.
    """
    import keras
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    tf, original = trainer.tf, BaseOptimizer._clip_gradients

    @functools.wraps(original)
    def clip_gradients(optimizer: Any, gradients: Any) -> Any:
        context = _replica_of(tf, strategy)
        clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
        if context is None or not clips:
            return original(optimizer, gradients)
        # No gradient is None: `apply` leaves these out.
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        workers = strategy.num_replicas_in_sync
        # By Keras' function, since those of embeddings are IndexedSlices.
        return [keras.ops.divide(each, workers) for each in original(optimizer, summed)]

    return BaseOptimizer, "_clip_gradients", clip_gradients


def _branch_outside_of_replicas(trainer: ModuleType, strategy: Any) -> Correction:
    """Let optimizers accumulate gradients, and replace weights by their average periodically.

    Keras branches on the step within each replica, where TensorFlow cannot exchange gradients. So
    this branches once for all replicas, and runs each replica's function within the branch.
    """
    from keras.src import ops
    from keras.src.optimizers import base_optimizer

    tf = trainer.tf

    def branch(distribution: Any, due: Any, *functions: Any) -> None:
        def of_replicas(function: Any) -> Callable[[], Any]:
            return lambda: distribution.extended.call_for_each_replica(_called, args=(function,))

        first = distribution.experimental_local_results(due)[0]  # all are equal
        ops.cond(first, *map(of_replicas, functions))

    def cond(due: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        context = _replica_of(tf, strategy)
        if context is None:
            return ops.cond(due, then, otherwise)
        return context.merge_call(branch, args=(due, then, otherwise))

    # Replaced in this module only: schedules of the learning rate may branch within a replica.
    return base_optimizer, "ops", SimpleNamespace(**{**vars(ops), "cond": cond})


def _share_loss_of_one_number() -> Correction:
    """Divide by the number of workers a loss of which a user's function has taken the mean.

    Keras divides the means that it takes itself, since it adds up the gradients of all workers. A
    function that returns a sum cannot be told apart; a loss with `reduction="sum"` is not divided.
    """
    from keras.src.losses import loss

    original = loss.reduce_values
    means = ("sum_over_batch_size", "mean", "mean_with_sample_weight")

    @functools.wraps(original)
    def reduce_values(
        values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size"
    ) -> Any:
        reduced = original(values, sample_weight, reduction)
        if tuple(values.shape) == () and reduction in means:
            return loss.scale_loss_for_distribution(reduced)
        return reduced

    return loss, "reduce_values", reduce_values


def _skip_steps_together(trainer: ModuleType, strategy: Any) -> Correction:
    """Let all workers skip a step with mixed precision in which the gradient of one is infinite.

    Keras decides by the gradient of each worker's part. One that skipped the step alone would not
    take part in the exchange of the gradients, for which the others wait.
    """
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    tf, original = trainer.tf, LossScaleOptimizer.check_finite

    @functools.wraps(original)
    def check_finite(optimizer: Any, gradients: Any) -> Any:
        finite, context = original(optimizer, gradients), _replica_of(tf, strategy)
        if context is None:
            return finite
        infinite = context.all_reduce(tf.distribute.ReduceOp.SUM, 1 - tf.cast(finite, tf.float32))
        return tf.equal(infinite, 0)

    return LossScaleOptimizer, "check_finite", check_finite


def _numbers_of_variables() -> list[Correction]:
    """Let `float` and `int` read a variable, such as the learning rate of an optimizer."""
    import keras

    def number(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda variable: kind(np.asarray(variable))

    return [(keras.Variable, "__float__", number(float)), (keras.Variable, "__int__", number(int))]


def _called(function: Callable[[], Any]) -> Any:
    return function()


def _replica_of(tf: Any, strategy: Any) -> Any:
    """Return the context of the replica in which the caller runs; None outside the strategy's."""
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.strategy is strategy else None


def _agree_in_fit(
    trainer: ModuleType, strategy: Any, communicator: Communicator, lags: Lags
) -> Correction:
    """Let all workers leave `fit` together, and warn of results that depend on their number."""
    import keras

    original = trainer.TensorFlowTrainer.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(model, *args, **kwargs)
        given.arguments["callbacks"] = with_ours(
            keras,
            model,
            given.arguments.get("callbacks"),
            after=[agreement(keras, communicator, lags)],
        )
        if model.steps_per_execution != 1:
            got = f"{model.steps_per_execution} steps in one execution"
            hint = "TensorFlow exchanges no gradients within a loop of steps"
            raise InvalidArgument("steps_per_execution", "1 on several workers", got, hint)
        _warn_of_normalization(keras, model)
        _warn_of_weights(keras, model)
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


def _warn_of_weights(keras: Any, model: Any) -> None:
    """Warn of a loss that is divided by the weights of its entries, in each part of a batch."""
    losses = keras.tree.flatten(model.loss)
    reductions = {getattr(loss, "reduction", "sum_over_batch_size") for loss in losses}
    outputs = getattr(model, "outputs", None) or []  # a class of the user's own has none
    masked = any(getattr(output, "_keras_mask", None) is not None for output in outputs)
    if "mean_with_sample_weight" in reductions:
        cause = "mean_with_sample_weight as the reduction of a loss"
    elif masked and not reductions <= {"sum", "none", None}:
        cause = "a mask of the model's output"
    else:
        return
    warnings.warn(
        f"{cause}: each worker divides the loss of its part of a batch by the weights of that "
        "part, and the means of all parts count the same, so the result depends on the number of "
        "workers; use sample weights, 0 for what does not count, with the usual reduction",
        stacklevel=3,
    )
