"""L-BFGS on two slots: each worker has a part of the digits, and all take the same steps.

SciPy's optimizer runs in each worker, on the loss and the gradient of all digits, which
`experiment.all_reduce` sums over the workers: Sandblaster of DistBelief (Dean et al. 2012) without
a master. Run it with `python examples/lbfgs_on_a_gang.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import experiment


def train(penalty: float, split: int = 0) -> dict[str, float]:
    """Fit multinomial logistic regression; return its loss, and its accuracy on unseen digits.

    Args:
        penalty: The weight of the sum of all weights' squares, halved.
        split: The seed by which the unseen digits are drawn.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    pixels = np.column_stack([images / 16, np.ones(len(images))])
    x_all, x_val, y_all, y_val = train_test_split(
        pixels, labels, test_size=0.25, random_state=split
    )
    x, y = experiment.shard((x_all, y_all))
    truth = np.eye(10)[y]

    def loss_and_gradient(weights: Any) -> tuple[float, Any]:
        matrix = weights.reshape(x.shape[1], 10)
        logarithms = log_softmax(x @ matrix, axis=1)
        loss, gradient = experiment.all_reduce(
            [-(truth * logarithms).sum(), x.T @ (np.exp(logarithms) - truth)], op="sum"
        )
        loss = loss + penalty / 2 * (weights**2).sum()
        return float(loss), gradient.ravel() + penalty * weights

    found = minimize(
        loss_and_gradient,
        np.zeros(x.shape[1] * 10),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1_000, "ftol": 0.0, "gtol": 1e-6},
    )
    np.save(Path(experiment.logdir(), "weights.npy"), found.x)
    predicted = (x_val @ found.x.reshape(-1, 10)).argmax(axis=1)
    return {"loss": found.fun, "accuracy": float((predicted == y_val).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--penalty", type=float, default=1.0)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("L-BFGS on a gang")
        .config("spark.ui.showConsoleProgress", "false")  # the training shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    weights = {}
    for workers in (1, 2):
        trial = experiment.distributed_training(
            spark,
            train,
            {"penalty": options.penalty},
            workers=workers,
            strategy=None,  # the function exchanges arrays itself
            name=f"lbfgs-on-{workers}",
            optimization_key="accuracy",
            logdir=options.logdir,
        )
        if trial.value is None:  # after Ctrl-C
            sys.exit(f"The training was {trial.status}.")
        # Not by np.load alone: the folder may be on HDFS.
        with experiment.data.open(f"{trial.logdir}/weights.npy") as file:
            weights[workers] = np.load(file)
        metrics = trial.metrics
        print(f"Workers: {workers}; accuracy {metrics['accuracy']:.3f}, loss {metrics['loss']:.6f}")
    print(f"Weights differ by {np.abs(weights[1] - weights[2]).max():.1e}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {trial.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
