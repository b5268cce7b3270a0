"""The random numbers with which a train function begins."""

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from spark_jobs.trial.random_numbers import seed_random_numbers, seed_repeat


@pytest.fixture
def torch(monkeypatch):
    """A stand-in for PyTorch, with a generator of random numbers of its own."""
    generator = random.Random(0)
    torch = SimpleNamespace(manual_seed=generator.seed, rand=generator.random)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.fixture(autouse=True)
def restored():
    state, numpys = random.getstate(), np.random.get_state()
    yield
    random.setstate(state)
    np.random.set_state(numpys)


def drawn(torch):
    return random.random(), np.random.random(), torch.rand()


def test_forked_trials_do_not_share_their_random_numbers(torch):
    def numbers():
        torch.manual_seed(0)  # a fork has the state of its parent
        seed_random_numbers(None, 3)
        return drawn(torch)

    first, second = numbers(), numbers()
    assert not any(a == b for a, b in zip(first, second, strict=True))


def test_a_seed_gives_each_trial_and_each_repeat_its_numbers(torch):
    def numbers(trial, repeat):
        seed_random_numbers(7, trial)
        seed_repeat(7, trial, repeat)
        return drawn(torch)

    places = [(0, 0), (1, 0), (0, 1)]
    once, again = [[numbers(*place) for place in places] for _ in range(2)]
    assert once == again
    assert len(set(once)) == 3


def test_a_module_that_is_not_imported_is_not_seeded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    seed_random_numbers(7, 0)
    assert "torch" not in sys.modules
