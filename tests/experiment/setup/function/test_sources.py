import functools
import hashlib
import inspect
import subprocess
import sys

import pytest

from experiment.setup.function.sources import hash_of_constraint, hash_of_train, name_of


def fits(p):
    return p["a"] < 3


class Fits:
    def __call__(self, p):
        return True


def hash_in_call(constraint, **settings):
    return hash_of_constraint(constraint)


def test_a_function_is_hashed_by_its_source():
    source = inspect.getsource(fits).encode()
    assert hash_of_train(fits, b"pickled") == hashlib.sha256(source).hexdigest()
    assert hash_of_constraint(fits) == hash_of_train(functools.partial(fits), b"")


def test_a_function_without_source_is_hashed_by_its_pickled_bytes_or_its_name():
    assert hash_of_train(len, b"pickled") == hashlib.sha256(b"pickled").hexdigest()
    assert hash_of_constraint(len) == hashlib.sha256(b"len").hexdigest()
    assert hash_of_constraint(Fits()) == hashlib.sha256(b"Fits").hexdigest()


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


def test_a_lambda_is_hashed_without_the_call_around_it():
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


def test_a_lambda_without_source_is_hashed_by_its_name():
    program = (
        "from experiment.setup.function.sources import *; print(hash_of_constraint(lambda p: True))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == hashlib.sha256(b"<lambda>").hexdigest()
