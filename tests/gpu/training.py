"""A small convolutional network on random images, in whichever framework a machine has."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from spark_jobs.slot.gpus.nvml import Gpus

Device = Literal["gpu", "cpu"]

_CHANNELS = (3, 32, 64, 128)
_CLASSES = 10
_LOOKS = {
    ("jax", "gpu"): "import jax; jax.devices('gpu')[0]",
    ("jax", "cpu"): "import jax; jax.devices('cpu')[0]",
    ("torch", "gpu"): "import torch; torch.zeros(1, device='cuda')",
    ("torch", "cpu"): "import torch; torch.zeros(1)",
}


class NothingToTrainOn(Exception):
    """There is no such device, or no framework that finds it; the message says which."""


def framework_on(device: Device) -> str:
    """Return which of JAX and PyTorch finds a device, without starting any of them in here.

    Raises:
        NothingToTrainOn: None does.
    """
    if device == "gpu":
        with Gpus(["0"]) as gpus:
            if not gpus.known:
                raise NothingToTrainOn("no GPU: NVML knows none on this machine")
    missing = []
    for name in ("jax", "torch"):
        if importlib.util.find_spec(name) is None:
            missing.append(f"{name} is not installed")
        elif subprocess.run(
            [sys.executable, "-c", _LOOKS[name, device]], capture_output=True
        ).returncode:
            missing.append(f"{name} finds no {device}")
        else:
            return name
    raise NothingToTrainOn(", ".join(missing))


def train(
    framework: str, device: Device, learning_rate: float, steps: int, batch: int, size: int = 32
) -> dict[str, float]:
    """Train the network; return its last loss.

    Args:
        framework: 'jax' or 'torch'.
        device: Where.
        learning_rate: Of plain gradient descent.
        steps: Of it, all on the same images.
        batch: Images.
        size: Their width and height.
    """
    training = {"jax": _train_jax, "torch": _train_torch}[framework]
    return {"loss": training(device, learning_rate, steps, batch, size)}


def _train_jax(device: str, learning_rate: float, steps: int, batch: int, size: int) -> float:
    import jax

    rng = np.random.default_rng(0)  # each random function of JAX would be compiled on its own
    shapes: list[tuple[int, ...]] = [(3, 3, *pair) for pair in itertools.pairwise(_CHANNELS)]
    shapes.append((_CHANNELS[-1], _CLASSES))
    weights = [rng.normal(0, 0.1, shape).astype("float32") for shape in shapes]
    images = rng.normal(size=(batch, size, size, _CHANNELS[0])).astype("float32")
    labels = rng.integers(_CLASSES, size=batch)
    with jax.default_device(jax.devices(device)[0]):
        images, labels = jax.device_put((images, labels))
        step, value = _jax_step(), float("nan")
        for _ in range(steps):
            value, weights = step(weights, images, labels, learning_rate)
        return float(value)


@functools.cache  # compiled once in a process
def _jax_step() -> Callable[..., Any]:
    import jax

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        for kernel in weights[:-1]:
            order = ("NHWC", "HWIO", "NHWC")
            images = jax.lax.conv_general_dilated(
                images, kernel, (2, 2), "SAME", dimension_numbers=order
            )
            images = jax.nn.relu(images)
        logits = jax.nn.log_softmax(images.mean((1, 2)) @ weights[-1])
        return -(jax.nn.one_hot(labels, _CLASSES) * logits).sum(1).mean()

    def step(weights: Any, images: Any, labels: Any, learning_rate: float) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, images, labels)
        moved = [w - learning_rate * s for w, s in zip(weights, slopes, strict=True)]
        return value, moved

    return jax.jit(step)


def _train_torch(device: str, learning_rate: float, steps: int, batch: int, size: int) -> float:
    import torch
    from torch import nn

    torch.manual_seed(0)
    place = torch.device("cuda" if device == "gpu" else device)
    images = torch.randn(batch, _CHANNELS[0], size, size, device=place)
    labels = torch.randint(_CLASSES, (batch,), device=place)
    layers: list[Any] = []
    for before, after in itertools.pairwise(_CHANNELS):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS[-1], _CLASSES)]
    network = nn.Sequential(*layers).to(place)
    descent = torch.optim.SGD(network.parameters(), lr=learning_rate)
    value = torch.tensor(float("nan"))
    for _ in range(steps):
        descent.zero_grad()
        value = nn.functional.cross_entropy(network(images), labels)
        value.backward()
        descent.step()
    return float(value)
