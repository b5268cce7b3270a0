"""Learning rate schedules as classes of Keras, which finds them by name in saved models.

`experiment` imports this module as soon as Keras is imported, so that Keras knows the names. It
imports nothing else of ours: Keras' import must not fail for it.
"""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="spark-tf-experiment")
class WarmedUp(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]  # no types
    """A schedule with a linear warm-up before it; see `experiment.warmed_up`.

    Args:
        schedule: The schedule after the warm-up, or its constant rate.
        steps: Number of steps of the warm-up.
        start: The rate of step 0.
    """

    def __init__(self, *, schedule: Any, steps: int, start: float) -> None:
        self.schedule = schedule
        self.steps = steps
        self.start = start

    def __call__(self, step: Any) -> Any:
        """Return the rate of a step, as a scalar tensor."""
        step = keras.ops.convert_to_tensor(step)
        after = keras.ops.maximum(step - self.steps, 0)
        rate = self.schedule(after) if callable(self.schedule) else self.schedule
        rate = keras.ops.cast(rate, "float32")
        share = keras.ops.minimum(keras.ops.cast(step, "float32") / self.steps, 1.0)
        return self.start + (rate - self.start) * share

    def get_config(self) -> dict[str, Any]:
        """Return the arguments as JSON."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "steps": self.steps,
            "start": self.start,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmedUp:
        """Return the schedule with the arguments that `get_config` returned."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})


def register(_keras: Any) -> None:
    """Do nothing: the import of this module has registered its classes."""
