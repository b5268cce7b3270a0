import ast
import dataclasses
import functools
import hashlib
import inspect
import itertools
import subprocess
import sys
import types

import pandas
import pytest

from experiment.setup.function import sources
from experiment.setup.function.sources import hash_of_constraint, hash_of_train, name_of


def fits(p):
    return p["a"] < 3


class Fits:
    def __call__(self, p):
        return True


class Model:
    def __init__(self, depth):
        self.depth = depth
        self.layers = [object()]  # it is shown with its address

    def train(self, lr):
        return lr

    def __call__(self, lr):
        return lr

    @classmethod
    def build(cls, lr):
        return lr


def trained_for(epochs):
    def train(lr):
        return lr * epochs

    return train


def inside_itself(value):
    values = [value]
    values.append(values)
    return values


NUMBERS = itertools.count()


@dataclasses.dataclass
class Config:
    shape: int
    lr: float


def nested(depth):
    values = []
    for _ in range(depth):
        values = [values]
    return values


def table_of(rows):
    """Return a table with as many rows, whose numbers do not count."""
    return pandas.DataFrame({"x": [next(NUMBERS) for _ in range(rows)]})


def calling_each_other(count):
    """Return the last of functions that each call all earlier ones."""
    functions = []
    for _ in range(count):

        def call(x, others=tuple(functions)):
            return sum(other(x) for other in others)

        functions.append(call)
    return functions[-1]


def trained_with(model):
    return trained_for(model)


def trained_by_default(epochs, *, repeats=1):
    def train(lr, epochs=epochs, *, repeats=repeats):
        return lr * epochs

    return train


def with_epochs(epochs, wraps=functools.wraps):
    def decorate(train):
        @wraps(train)
        def call(lr):
            return train(lr * epochs)

        return call

    return decorate


def unwrapped(train):
    return lambda call: call


def small(lr):
    return lr


def large(lr):
    return lr


def counting_down(step):
    before = None

    def train(lr):
        return train(lr - step) if lr > 0 else before  # noqa: F821

    del before  # its cell is empty
    return train


def hash_in_call(constraint, **settings):
    return hash_of_constraint(constraint)


def hash_of_train_in_call(train, **settings):
    return hash_of_train(train, b"")


def test_a_function_is_hashed_by_its_source():
    source = inspect.getsource(fits).encode()
    assert hash_of_train(fits, b"pickled") == hashlib.sha256(source).hexdigest()
    assert hash_of_constraint(fits) == hash_of_train(functools.partial(fits), b"")


def test_a_function_without_source_is_hashed_by_its_pickled_bytes_or_its_name():
    assert hash_of_train(len, b"pickled") == hashlib.sha256(b"pickled").hexdigest()
    assert hash_of_constraint(len) == hashlib.sha256(b"len").hexdigest()
    assert hash_of_constraint(Fits()) == hashlib.sha256(b"Fits").hexdigest()


@pytest.mark.parametrize(
    ("function", "same", "other"),
    [
        (
            functools.partial(fits, 1, seed=0),
            functools.partial(fits, 1, seed=0),
            functools.partial(fits, 1, seed=1),
        ),
        (functools.partial(fits, 1), functools.partial(fits, 1), functools.partial(fits, 2)),
        (functools.partial(fits, object()), functools.partial(fits, object()), fits),
        # Sets of one process have different orders, too.
        (functools.partial(fits, {0, 8}), functools.partial(fits, {8, 0}), fits),
        (functools.partial(fits, seed={0, 8}), functools.partial(fits, seed={8, 0}), fits),
        (
            functools.partial(fits, [{"metrics": {0, 8}}]),
            functools.partial(fits, [{"metrics": {8, 0}}]),
            functools.partial(fits, [{"metrics": {8}}]),
        ),
        (functools.partial(fits, (1,)), functools.partial(fits, (1,)), functools.partial(fits, 1)),
        (
            functools.partial(fits, set()),
            functools.partial(fits, set()),
            functools.partial(fits, {}),
        ),
        (
            functools.partial(fits, ((1, 2), 3)),
            functools.partial(fits, ((1, 2), 3)),
            functools.partial(fits, ((1,), 2, 3)),
        ),
        (
            functools.partial(fits, [trained_for(1)]),
            functools.partial(fits, [trained_for(1)]),
            functools.partial(fits, [trained_for(2)]),
        ),
        (functools.partial(fits, inside_itself(1)),) * 2
        + (functools.partial(fits, inside_itself(2)),),
        (
            functools.partial(fits, table_of(1)),
            functools.partial(fits, table_of(1)),
            functools.partial(fits, table_of(2)),
        ),
        (
            functools.partial(fits, Config(shape=1, lr=1)),
            functools.partial(fits, Config(shape=1, lr=1)),
            functools.partial(fits, Config(shape=1, lr=2)),
        ),
        (
            functools.partial(fits, {str(n) for n in range(2000)}),
            functools.partial(fits, {str(n) for n in reversed(range(2000))}),
            fits,
        ),
        (functools.partial(fits, Config), functools.partial(fits, Config), fits),
        (calling_each_other(100), calling_each_other(100), calling_each_other(101)),
        (functools.partial(fits, nested(5000)), functools.partial(fits, nested(5000)), fits),
        (Model({0, 8}).train, Model({8, 0}).train, Model({0, 9}).train),
        (Model(3).train, Model(3).train, Model(9).train),
        (Model(3).build, Model(9).build, Model(3).train),
        (trained_for(10), trained_for(10), trained_for(100)),
        (trained_with({0, 8}), trained_with({8, 0}), trained_with({0, 9})),
        (trained_with(object()), trained_with(object()), trained_with(1)),
        (trained_with(Model), trained_with(Model), trained_with(Fits)),
        (trained_with(functools), trained_with(functools), trained_with(hashlib)),
        (trained_with(small), trained_with(small), trained_with(large)),
        (
            trained_with(functools.partial(small, {0, 8})),
            trained_with(functools.partial(small, {8, 0})),
            trained_with(functools.partial(small, {0, 9})),
        ),
        (trained_with(trained_for(1)), trained_with(trained_for(1)), trained_with(trained_for(2))),
        (counting_down(1), counting_down(1), counting_down(2)),
        (trained_by_default(10), trained_by_default(10), trained_by_default(100)),
        (
            trained_by_default(10),
            trained_by_default(10, repeats=1),
            trained_by_default(10, repeats=2),
        ),
        (with_epochs(10)(fits), with_epochs(10)(fits), with_epochs(100)(fits)),
        (
            with_epochs(10)(trained_for(1)),
            with_epochs(10)(trained_for(1)),
            with_epochs(10)(trained_for(2)),
        ),
        # Without `functools.wraps` the source is that of the decorator's function.
        (
            with_epochs(10, unwrapped)(small),
            with_epochs(10, unwrapped)(small),
            with_epochs(10, unwrapped)(large),
        ),
    ],
)
def test_what_is_bound_to_a_function_counts(function, same, other):
    first, second, third = (hash_of_train(train, b"") for train in (function, same, other))
    assert first == second != third
    first, second, third = (hash_of_constraint(fit) for fit in (function, same, other))
    assert first == second != third


def test_a_module_in_a_closure_is_hashed_by_its_name_alone():
    here, there = types.ModuleType("model"), types.ModuleType("model")
    here.__file__, there.__file__ = "/here/model.py", "/there/model.py"
    assert hash_of_train(trained_with(here), b"") == hash_of_train(trained_with(there), b"")


def test_an_object_is_hashed_by_its_call_and_its_attributes():
    assert hash_of_train(Model(3), b"one") == hash_of_train(Model(3), b"two")
    assert hash_of_train(Model(3), b"") != hash_of_train(Model(9), b"")


def test_a_cached_function_is_hashed_by_its_source():
    cached = functools.cache(fits)
    assert hash_of_train(cached, b"") == hash_of_train(fits, b"")


def test_no_constraint_has_no_hash():
    assert hash_of_constraint(None) is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (fits, "fits"),
        (functools.partial(fits), "fits"),
        (Fits(), "Fits"),
        (lambda p: p, "<lambda>"),
    ],
)
def test_the_name_of_a_function(function, name):
    assert name_of(function) == name


@pytest.mark.parametrize("hash_in_call", [hash_in_call, hash_of_train_in_call])
def test_a_lambda_is_hashed_without_the_call_around_it(hash_in_call):
    one = hash_in_call(lambda p: p["a"] * p["b"] < 10, samples=5)
    longer = hash_in_call(
        lambda p: p["a"] * p["b"]
        < 10,
        samples=500,
    )  # fmt: skip
    other = hash_in_call(
        lambda p: p["a"] * p["b"]
        < 11,
        samples=5,
    )  # fmt: skip
    assert one == longer != other


def test_no_two_threads_parse_at_once(monkeypatch):
    """In Python 3.11 that may end by a SystemError."""
    parse, held = ast.parse, []

    def noted(*args, **kwargs):
        held.append(sources._PARSING.locked())
        return parse(*args, **kwargs)

    monkeypatch.setattr(sources.ast, "parse", noted)
    hash_of_constraint(lambda p: True)
    assert held == [True]


def test_a_lambda_without_source_is_hashed_by_its_name():
    program = (
        "from experiment.setup.function.sources import *; print(hash_of_constraint(lambda p: True))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == hashlib.sha256(b"<lambda>").hexdigest()
