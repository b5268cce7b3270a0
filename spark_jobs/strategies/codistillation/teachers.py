"""The models of the other workers, as a worker has last seen them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from search.errors import InvalidArgument, shown
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.codistillation.cross_entropy import CrossEntropy
from spark_jobs.strategies.replacing import replaced
from spark_jobs.strategies.settings import Codistillation
from spark_jobs.strategies.vocabularies import HINT, different, number_of
from spark_jobs.strategies.weights import assign, flat, reals, renew_constants


class Teachers:
    """Copies of the other workers' models, which a worker's model learns from.

    Anil et al.: Large scale distributed neural network training through online distillation, ICLR
    2018, algorithm 1: nobody waits for fresh weights, and those of a worker that has ended go on
    teaching.

    Args:
        keras: The module `keras`.
        settings: The strategy.
        communicator: The connections of this worker.
        name: The name under which the workers publish their weights in this `fit`.
        cross_entropy: The loss of the model.
    """

    def __init__(
        self,
        keras: Any,
        settings: Codistillation,
        communicator: Communicator,
        *,
        name: str,
        cross_entropy: CrossEntropy,
    ) -> None:
        self._keras = keras
        self._settings = settings
        self._communicator = communicator
        self._name = name
        self._cross_entropy = cross_entropy
        self._models: dict[int, Any] = {}
        self._versions: dict[int, int] = {}
        self._vocabularies = np.float32(0)
        self._teaching: Any = None
        self._begun: int | None = None  # the number of steps before the first teacher taught
        self._asked = False  # whether a step, or the trace of one, has asked for the loss

    def begin(self, model: Any) -> None:
        """Copy the worker's model, once it is built, for each of the others."""
        self._vocabularies = number_of(self._keras, model)
        others = set(range(self._communicator.size)) - {self._communicator.rank}
        self._models = {rank: self._copy(model) for rank in sorted(others)}
        self._versions = dict.fromkeys(self._models, 0)
        zeros = np.zeros(len(others), "float32")  # one number for each teacher, 1 once it teaches
        self._teaching = self._keras.Variable(zeros, trainable=False)
        self._begun = None
        self._asked = False

    def exchange(self, model: Any, steps: int) -> None:
        """Publish the worker's weights, and take those that the others have published.

        Args:
            model: The worker's model.
            steps: The number of its steps so far.
        """
        own = np.append(flat(self._keras, reals(self._keras, model.weights)), self._vocabularies)
        self._communicator.publish(self._name, own)
        for rank, teacher in self._models.items():
            found = self._communicator.latest(rank, self._name)
            if found is None or found.version == self._versions[rank]:
                continue
            if found.values[-1] != own[-1]:
                raise different("codistillation")
            if found.values.shape != own.shape:
                got = (
                    f"{found.values.size - 1} numbers in worker {rank}, {own.size - 1} in this one"
                )
                raise InvalidArgument("model", "as many weights in all workers", got)
            if not np.isfinite(found.values).all():  # nor would be what this worker learns
                warnings.warn(
                    f"strategy 'codistillation': worker {rank} has published weights that are not "
                    "finite; its last finite ones, if there are any, go on teaching this worker; "
                    "lower the learning rate, or look for NaN in the data of that worker",
                    stacklevel=2,
                )
                continue
            assign(reals(self._keras, teacher.weights), found.values)
            self._versions[rank] = found.version
        seen = [float(version > 0) for version in self._versions.values()]
        if steps >= self._settings.burn_in and any(seen):
            self._teaching.assign(seen)
            self._begun = steps if self._begun is None else self._begun

    def end(self, steps: int) -> None:
        """Warn if no teacher has taught in any of the steps, or none has asked for their loss.

        Args:
            steps: The number of the worker's steps in this `fit`.
        """
        if steps and not self._asked:
            warnings.warn(
                "strategy 'codistillation': the model has learnt nothing from the others, since "
                "its train_step has not called compute_loss; call self.compute_loss(x, y, y_pred) "
                "in it",
                stacklevel=2,
            )
        elif steps and (self._begun is None or self._begun >= steps):
            warnings.warn(
                "strategy 'codistillation': the other workers' models have taught nothing in the "
                f"{steps} steps of this fit, with every={self._settings.every} and "
                f"burn_in={self._settings.burn_in}; lower these or train longer, and check that "
                "the other workers make at least as many steps as every",
                stacklevel=2,
            )

    def loss(self, x: Any, predicted: Any, dtype: str) -> Any:
        """Return the loss of predictions towards those of the others; 0 before they teach.

        Args:
            x: The input of a batch.
            predicted: What the worker's model predicts for it.
            dtype: The type of the loss, that of the model's own.
        """
        ops = self._keras.ops
        if not self._models:
            return 0.0
        self._asked = True

        def taught() -> Any:
            for teacher in self._models.values():
                renew_constants(self._keras, teacher)
            others = [teacher(x, training=False) for teacher in self._models.values()]
            loss = self._cross_entropy.towards(self._keras, others, self._teaching, predicted)
            return ops.cast(self._settings.weight * loss, dtype)

        return ops.cond(ops.any(self._teaching > 0), taught, lambda: ops.zeros((), dtype))

    def _copy(self, model: Any) -> Any:
        expected = "one that keras.models.clone_model copies with all weights, for 'codistillation'"
        hint = (
            "use keras.Sequential or a functional model, with a keras.layers.Input, or add "
            "get_config to a class of your own"
        )
        try:
            with replaced(model, "compiled", False):  # or Keras looks for the user's metrics, too
                teacher = self._keras.models.clone_model(model)
        except Exception as error:  # of any kind, as the user's classes raise it
            raise InvalidArgument("model", expected, shown(model), hint) from error
        shapes = [[tuple(each.shape) for each in of.weights] for of in (teacher, model)]
        if shapes[0] != shapes[1]:
            raise InvalidArgument("model", expected, shown(model), hint)
        if number_of(self._keras, teacher) != self._vocabularies:  # no weights, so never sent
            expected = expected.replace("weights", "vocabularies")
            raise InvalidArgument("model", expected, shown(model), HINT)
        return teacher
