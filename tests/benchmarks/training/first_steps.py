"""The train function of `training_starts`, in a module that imports as little as a user's would."""

from __future__ import annotations

import time
from typing import Any


def first_step(number: int = 0) -> float:
    """Train one step in the strategy that is entered, and return the time."""
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            with tf.GradientTape() as tape:
                loss = weight * weight
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, weight))
            weight.assign_sub(0.1 * gradient)
            return loss

        return strategy.run(replica)

    step()
    return time.time()


def first_step_by_itself() -> float:
    """Train one step as `TF_CONFIG` says, without this package, and return the time."""
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        return first_step()
