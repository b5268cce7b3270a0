"""The train functions of the tasks. They are importable, so every peer can send them by name."""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Configuration = dict[str, Any]
"""The keyword arguments of a train function."""

Train = Callable[..., float]


def null(trial: int) -> float:
    """Do nothing."""
    return float(trial)


def sleep(seconds: float) -> float:
    """Sleep."""
    time.sleep(seconds)
    return seconds


def sleep_next(turns: str, lengths: Sequence[float], **values: float) -> float:
    """Sleep for the next length of a list; return a value that has its minimum at 0.3.

    So all searches sleep equally long, whatever configurations they try.
    """
    time.sleep(lengths[take_turn(turns) % len(lengths)])
    return sum((value - 0.3) ** 2 for value in values.values())


def taking_turns(
    folder: Path, train: Train, configurations: Sequence[Configuration]
) -> functools.partial[float]:
    """Return a train function whose calls, in any process, take one configuration after the other.

    For peers that choose the configurations themselves.
    """
    return functools.partial(_call_next, str(folder / uuid.uuid4().hex), train, configurations)


def _call_next(
    turns: str, train: Train, configurations: Sequence[Configuration], **_: object
) -> float:
    return train(**configurations[take_turn(turns) % len(configurations)])


def digits(learning_rate: float, dropout: float, epochs: int) -> float:
    """Train a small network on scikit-learn's digits; return its accuracy."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, epochs=epochs, verbose=0)
    return float(model.evaluate(x_val, y_val, verbose=0)[1])


def faulty(trial: int, bad: int, fault: str, done: str) -> float:
    """Raise, end the process or hang in one trial; the others each write a file."""
    if trial == bad:
        if fault == "raises":
            raise ValueError("the fault of this benchmark")
        if fault == "exits":
            os._exit(1)
        time.sleep(100_000)
    time.sleep(0.2)
    Path(done, str(trial)).touch()
    return float(trial)


def take_turn(turns: str) -> int:
    """Return 0 for the first call with this file in any process, 1 for the second, and so on."""
    file = os.open(turns, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR) - 1  # an append and its position are one step
    finally:
        os.close(file)


def turns_taken(turns: str) -> int:
    """Return the number of calls of `take_turn` with this file."""
    return Path(turns).stat().st_size if Path(turns).exists() else 0
