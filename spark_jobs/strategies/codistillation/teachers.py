"""The models of the other workers, as a worker has last seen them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search.errors import InvalidArgument, shown
from spark_jobs.strategies.codistillation.cross_entropy import CrossEntropy
from spark_jobs.strategies.settings import Codistillation
from spark_jobs.strategies.weights import assign, flat, reals

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator


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
        self._teach = keras.Variable(0.0, trainable=False)

    def begin(self, model: Any) -> None:
        """Copy the worker's model, once it is built, for each of the others."""
        others = set(range(self._communicator.size)) - {self._communicator.rank}
        self._models = {rank: self._copy(model) for rank in sorted(others)}
        self._versions = dict.fromkeys(self._models, 0)

    def exchange(self, model: Any, steps: int) -> None:
        """Publish the worker's weights, and take those that the others have published.

        Args:
            model: The worker's model.
            steps: The number of its steps so far.
        """
        own = flat(self._keras, reals(self._keras, model.weights))
        self._communicator.publish(self._name, own)
        for rank, teacher in self._models.items():
            found = self._communicator.latest(rank, self._name)
            if found is None or found.version == self._versions[rank]:
                continue
            if found.values.shape != own.shape:
                got = f"{found.values.size} numbers in worker {rank}, {own.size} in this one"
                raise InvalidArgument("model", "as many weights in all workers", got)
            assign(reals(self._keras, teacher.weights), found.values)
            self._versions[rank] = found.version
        if steps >= self._settings.burn_in and all(self._versions.values()):
            self._teach.assign(1.0)

    def loss(self, x: Any, predicted: Any) -> Any:
        """Return the loss of predictions towards those of the others; 0 before they teach.

        Args:
            x: The input of a batch.
            predicted: What the worker's model predicts for it.
        """
        ops = self._keras.ops
        if not self._models:
            return 0.0

        def taught() -> Any:
            others = [teacher(x, training=False) for teacher in self._models.values()]
            loss = self._cross_entropy.towards(self._keras, others, predicted)
            return ops.cast(self._settings.weight * loss, "float32")

        return ops.cond(self._teach > 0, taught, lambda: ops.zeros((), "float32"))

    def _copy(self, model: Any) -> Any:
        teacher = self._keras.models.clone_model(model)
        shapes = [[tuple(each.shape) for each in of.weights] for of in (teacher, model)]
        if shapes[0] != shapes[1]:
            expected = "one that keras.models.clone_model copies with all weights"
            hint = "use keras.Sequential or a functional model, with a keras.layers.Input"
            raise InvalidArgument("model", f"{expected}, for 'codistillation'", shown(model), hint)
        return teacher
