"""Search for an architecture, by evolution or by a controller: what a small network's layers are.

Each of a few positions is a dense layer, a residual one or nothing; a network of 1,797 handwritten
digits is trained for each architecture. Run it with `python examples/architecture_search.py` or
with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys

from pyspark.sql import SparkSession

import experiment

ALGORITHMS: dict[str, experiment.RegularizedEvolution | experiment.Reinforce] = {
    "evolution": experiment.RegularizedEvolution(popsize=8, tournament=4),
    "reinforce": experiment.Reinforce(),  # for thousands of trials, see the guide on algorithms
}
OPERATIONS = ["nothing", "dense 16", "dense 64", "residual", "normalization"]


def train(activation: str, epochs: int = 3, **layers: str) -> dict[str, float]:
    """Train a network of some layers on the digits; return its accuracy on unseen ones."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(digits / 16, labels, test_size=0.25, random_state=0)
    inputs = tensor = keras.layers.Input((64,))
    for number in range(len(layers)):
        operation = layers[f"layer{number}"]
        match operation.split():
            case ["dense", units]:
                tensor = keras.layers.Dense(int(units), activation=activation)(tensor)
            case ["residual"]:
                dense = keras.layers.Dense(tensor.shape[-1], activation=activation)(tensor)
                tensor = keras.layers.Add()([tensor, dense])
            case ["normalization"]:
                tensor = keras.layers.BatchNormalization()(tensor)
    outputs = keras.layers.Dense(10, activation="softmax")(tensor)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x,
        y,
        epochs=epochs,
        validation_data=(x_val, y_val),
        callbacks=experiment.keras_callbacks(),
        verbose=2,
    )
    _, accuracy = model.evaluate(x_val, y_val, verbose=0)
    return {"accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="evolution")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("architecture search")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    layers = [f"layer{number}" for number in range(options.layers)]
    result = experiment.run(
        spark,
        functools.partial(train, epochs=options.epochs),
        dict.fromkeys(layers, OPERATIONS) | {"activation": ["relu", "tanh"]},
        searcher=ALGORITHMS[options.algorithm],
        samples=options.samples,
        name="digits-architecture",
        optimization_key="accuracy",
        seed=options.seed,
        logdir=options.logdir,
    )
    frame = result.to_pandas()
    print(
        frame[["trial", "status", "value", *layers, "activation", "seconds"]].to_string(index=False)
    )
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
