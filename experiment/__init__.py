"""Distributed experiments for TensorFlow on Spark.

    import experiment

    experiment.launch(spark, train, {"learning_rate": [0.001, 0.01], "dropout": [0.5, 0.6]})
    experiment.evolutionary_search(spark, train, {"learning_rate": [0.005, 0.00005]})
    experiment.distributed_training(spark, train, params, workers=4)    # one, on several slots
    experiment.plan_training(spark, train, params)      # how many slots pay for it
    experiment.submit(experiment.launch, spark, train, ...)     # in the background
    experiment.plan(experiment.launch, spark, train, ...)       # its demand on the cluster
    experiment.warm_up(spark, train)                            # imports before the first search
    experiment.executor(spark)      # a concurrent.futures.Executor on the same slots

    experiment.doctor(spark)        # problems that would make a search on this cluster fail

    experiment.linear_scaling(0.1, 32, 256)     # the learning rate of a larger batch

    experiment.load(run)            # the result of a run, finished or not
    experiment.tensorboard(run)     # TensorBoard for it

Inside a train function: `experiment.report()`, `logdir()`, `checkpoint_dir()`, `params()`,
`max_steps()`, `repeat()`, `keras_callbacks()`, `hogwild()`; with several workers per trial
`rank()`, `world_size()`, `shard()`, `all_reduce()`, `broadcast()` and `barrier()`, too.
"""

import importlib
import typing

import wrapt

from experiment.version import __version__ as __version__

# Keras loads a saved model only if it knows the classes in it, without a public name in use.
wrapt.register_post_import_hook("experiment.large_batches.schedules:register", "keras")

if typing.TYPE_CHECKING:
    from experiment.public import *  # noqa: F403
else:  # for type checkers a name that is not public is an error

    def __getattr__(name: str) -> typing.Any:
        """Return a public name; the first one imports them all.

        Not earlier, so that importing this package takes no time.
        """
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'experiment' has no attribute {name!r}")
        importlib.import_module("experiment.neighbours").check_neighbours()
        public = importlib.import_module("experiment.public")
        names = {public_name: getattr(public, public_name) for public_name in public.__all__}
        globals().update(names, __all__=public.__all__)
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module 'experiment' has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        """Return the public names, without those of subpackages."""
        names: list[str] = __getattr__("__all__")
        return names
