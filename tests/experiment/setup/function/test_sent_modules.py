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

    It returns the function `train` of one of them as trials get it.
    """
    monkeypatch.syspath_prepend(str(tmp_path))

    def send(files, of="sent_train"):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        importlib.invalidate_caches()
        train = importlib.import_module(of).train
        for name in imported():
            if "." not in name:
                cloudpickle.register_pickle_by_value(sys.modules[name])
        return pickle.loads(pickle_function(train))

    def imported():
        return [name for name in sys.modules if name.startswith("sent_")]

    yield send
    for name in imported():
        module = sys.modules.pop(name)
        if "." not in name:
            cloudpickle.unregister_pickle_by_value(module)


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
