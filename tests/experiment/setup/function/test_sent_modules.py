"""Modules that are sent by value, as a job sends those of the current folder."""

from __future__ import annotations

import importlib
import pickle
import sys

import cloudpickle
import pytest

from experiment.setup.function.train_function import pickle_function
from search.errors import InvalidArgument


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Return a function that writes modules, whose names begin with sent_, and sends them by value.

    It returns the function `train` of one of them as trials get it, which lack these files.
    """

    def send(files, of="sent_train"):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(tmp_path))
            pickled = pickled_by_value(of)
        return pickle.loads(pickled)

    return send


def pickled_by_value(of):
    train = importlib.import_module(of).train
    imported = [name for name in sys.modules if name.startswith("sent_")]
    tops = [sys.modules[name] for name in imported if "." not in name]
    for module in tops:
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickle_function(train)
    finally:
        for module in tops:
            cloudpickle.unregister_pickle_by_value(module)
        for name in imported:
            del sys.modules[name]


PACKAGE = {
    "sent_package/data.py": "FACTOR = 2\n\ndef load(x):\n    return FACTOR * x\n",
    "sent_package/train.py": """import sent_package.data

def train(x):
    same = sent_package.train.sent_package is sent_package
    return same and sent_package.data.load(x)
""",
}


@pytest.mark.parametrize("more", [{}, {"sent_package/__init__.py": ""}])
def test_a_package_that_imports_itself_is_sent(sent, more):
    """Without __init__.py it is a namespace package."""
    assert sent(PACKAGE | more, of="sent_package.train")(3) == 6


def test_modules_that_import_each_other_are_sent(sent):
    files = {
        "sent_train.py": "import sent_other\n\ndef train(x):\n    return sent_other.train(x)\n",
        "sent_other.py": """import sent_train

def train(x):
    return x if x > 9 else sent_train.train(2 * x)
""",
    }
    assert sent(files)(3) == 12


def test_a_module_that_cannot_be_sent_is_named(sent):
    files = {
        "sent_train.py": "import sent_other\n\ndef train(x):\n    return sent_other.double(x)\n",
        "sent_other.py": "import threading\nimport sent_train\n\nLOCK = threading.Lock()\n",
    }
    with pytest.raises(InvalidArgument) as caught:
        sent(files)
    assert str(caught.value) == (
        "train: expected a function that can be pickled, got one that refers to 'sent_other' "
        "(module): cannot pickle '_thread.lock' object; make 'sent_other' inside the train function"
    )


USES_NET = "import sent_net\n\ndef train(x):\n    sent_net.DROPOUT = x\n    return "
NESTED = "def build():\n    def nested():\n        return DROPOUT\n    return nested()\n"
CLOSURE = "def make():\n    return lambda: DROPOUT\n\nbuild = make()\n"
DECORATED = """import functools

def halved(function):
    @functools.wraps(function)
    def call():
        return (function() + DROPOUT) / 2

    return call

@halved
def build():
    return DROPOUT
"""
METHOD = "class Net:\n    def build(self):\n        return DROPOUT\n"
PROPERTY = "class Net:\n    @property\n    def rate(self):\n        return DROPOUT\n"
DATACLASS = """from dataclasses import dataclass

@dataclass
class Net:
    units: int

    def build(self):
        return DROPOUT * self.units
"""


@pytest.mark.parametrize(
    ("net", "used"),
    [
        ("def build():\n    return DROPOUT\n", "sent_net.build()"),
        ("build = lambda: DROPOUT\n", "sent_net.build()"),
        (NESTED, "sent_net.build()"),
        (CLOSURE, "sent_net.build()"),
        (DECORATED, "sent_net.build()"),
        (METHOD, "sent_net.Net().build()"),
        (PROPERTY, "sent_net.Net().rate"),
        (DATACLASS, "sent_net.Net(1).build()"),
    ],
)
def test_functions_of_a_module_see_the_attributes_that_are_set(sent, net, used):
    files = {"sent_net.py": f"DROPOUT = 0.5\n\n{net}", "sent_train.py": f"{USES_NET}{used}\n"}
    assert sent(files)(0.25) == 0.25


@pytest.mark.parametrize(
    "head",
    ["import sent_net\nfrom sent_net import load", "from sent_net import load\nimport sent_net"],
)
def test_attributes_of_a_module_are_what_its_functions_set(sent, head):
    files = {
        "sent_net.py": "def load(x):\n    global CACHE\n    CACHE = x\n",
        "sent_train.py": f"{head}\n\ndef train(x):\n    load(x)\n    return sent_net.CACHE\n",
    }
    assert sent(files)(3) == 3


def test_functions_of_a_package_import_relative_to_it(sent):
    text = "def train(x):\n    from . import json\n    return json\n"
    files = {"sent_package/__init__.py": "", "sent_package/train.py": text}
    with pytest.raises(ModuleNotFoundError, match="'sent_package'"):
        sent(files, of="sent_package.train")(3)


def test_what_a_function_of_a_module_does_not_use_is_not_sent(sent):
    text = """import threading

LOCK = threading.Lock()

def double(x):
    return 2 * x

def train(x):
    return double(x)
"""
    train = sent({"sent_train.py": text})
    assert train(3) == 6
    assert "LOCK" not in train.__globals__
