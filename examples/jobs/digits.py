"""The train function of these jobs: a neural network on scikit-learn's 1,797 handwritten digits."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import experiment


def train(learning_rate: float, units: int, epochs: int = 20) -> dict[str, float]:
    """Train a network with one hidden layer; return its accuracy and loss on unseen digits."""
    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
    model = MLPClassifier((units,), learning_rate_init=learning_rate, random_state=0)
    for epoch in range(epochs):
        model.partial_fit(x, y, classes=range(10))
        experiment.report(step=epoch, accuracy=model.score(x_val, y_val))
    return {"accuracy": model.score(x_val, y_val), "loss": model.loss_}
