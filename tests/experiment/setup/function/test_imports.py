"""The modules that a train function imports; nothing is run or imported to find them."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from experiment.setup.function.imports import WORTH_IT, Preload, imports_of, preload_of
from experiment.setup.settings import Settings

# No import of this file, which would count for each of its functions.
np = importlib.import_module("numpy")


def inside(x):
    import keras
    from sklearn.datasets import load_digits

    return keras, load_digits, x


def by_members(x):
    from sklearn import no_such_member, svm

    return no_such_member, svm, x


def by_alias(x):
    import sklearn.svm as machines

    return machines, x


def another(x):
    return inside(x)


def as_default(x, run=inside):
    return run(x)


def guarded(x):
    try:
        import keras
    except ImportError:
        keras = None
    return keras, x


def guarded_against_anything(x):
    try:
        import keras
    except:  # noqa: E722  # as users write it
        keras = None
    return keras, x


def guarded_with_finally(x, lock):
    try:
        import keras
    except (lock.Missing, ImportError):
        keras = None
    finally:
        lock.release()
    return keras, x


def guarded_around_others(x, lock):
    try:
        with lock:
            try:
                import keras
            finally:
                lock.release()
    except ImportError:
        keras = None
    return keras, x


def guarded_by_a_group(x):
    try:
        import keras
    except* ImportError:
        keras = None
    return keras, x


def in_a_try_with_finally(x, lock):
    try:
        import keras
    finally:
        try:
            lock.release()
        except RuntimeError:
            lock = None
    return keras, lock, x


def in_a_with_block(x, lock):
    with lock:
        import keras
    return keras, x


def in_nested_functions(x):
    def nested():
        def inner():
            import keras

            return keras

        return inner

    return [nested() for _ in range(x)]


def by_a_string(x):
    return importlib.import_module("ker" + "as"), x


def by_exec(x):
    exec("import keras")
    return x


def light(x):
    import json

    import msgspec

    return json, msgspec, x


def global_module(x):
    return np.square(x)


def decorated_by(function):
    @functools.wraps(function)
    def wrapper(*args):
        import pandas

        return pandas, function(*args)

    return wrapper


REGISTRY = {"a": inside}


def by_registry(x):
    return REGISTRY["a"](x)


class Trainer:
    def __init__(self, make=None):
        self.make = make

    def method(self, x):
        return self.make(x)

    def __call__(self, x):
        import scipy.stats

        return scipy.stats, x


class Tools:
    @staticmethod
    def load(x):
        import pandas

        return pandas, x

    @classmethod
    def build(cls, x):
        import keras

        return keras, x


def by_methods_of_a_class(x):
    return Tools.build(Tools.load(x))


class Slotted:
    __slots__ = ("run",)

    def __call__(self, x):
        import keras

        return keras, x


class Recursive:
    def __init__(self):
        self.self = [self]

    def __call__(self, x):
        import keras

        return keras, x


class Rude:
    """Raises wherever its attributes are read."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __call__(self, x):
        import keras

        return keras, x


def in_a_closure():
    array = np.zeros(3)
    return lambda x: (array, x)


def with_an_empty_cell():
    def train(x):
        import keras

        return keras, later, x  # noqa: F821

    later = None
    del later
    return train


def of_no_module():
    names = {"__name__": "no_such_module"}
    exec("def train(x):\n import keras", names)
    return names["train"]


@functools.lru_cache
def cached():
    import sklearn

    return sklearn


SKLEARN = ("keras", "sklearn.datasets")
GUESS = Preload(required=("keras",), guessed=("sklearn.datasets",))


@pytest.mark.parametrize(
    ("train", "modules"),
    [
        (inside, SKLEARN),
        (by_members, ("sklearn", "sklearn.svm")),
        (by_alias, ("sklearn.svm",)),
        (another, SKLEARN),
        (as_default, SKLEARN),
        (guarded, ()),
        (guarded_against_anything, ()),
        (guarded_with_finally, ()),
        (guarded_around_others, ()),
        (guarded_by_a_group, ()),
        (in_a_try_with_finally, ("keras",)),
        (in_a_with_block, ("keras",)),
        (in_nested_functions, ("keras",)),
        (by_a_string, ()),
        (by_exec, ()),
        (light, ()),
        (global_module, ("numpy",)),
        (decorated_by(inside), ("pandas", *SKLEARN)),
        (by_registry, SKLEARN),
        (functools.partial(as_default, run=light), SKLEARN),
        (functools.partial(light, [{"run": inside}]), SKLEARN),
        (Trainer(), ("scipy.stats",)),
        (Trainer(inside).method, ("scipy.stats", *SKLEARN)),
        (by_methods_of_a_class, ("keras", "pandas")),
        (Slotted(), ("keras",)),
        (Recursive(), ("keras",)),
        (in_a_closure(), ("numpy",)),
        (with_an_empty_cell(), ("keras",)),
        (of_no_module(), ("keras",)),
        (cached, ("sklearn",)),
        (np.square, ("numpy",)),
        (print, ()),
        (lambda x: global_module(x) + 1, ("numpy",)),
    ],
)
def test_imports_of_a_function(train, modules):
    assert sorted(imports_of(train)) == sorted(modules)


def test_an_object_that_raises_wherever_it_is_read_does_no_harm():
    assert imports_of(Rude()) == ("keras",)


FILES = {
    "helpers.py": """
        import pandas
        from lazy import later

        def fit(x):
            import keras

        def unused():
            import torch
        """,
    "lazy.py": """
        def later():
            import scipy.stats
        """,
    "package/__init__.py": "from .deep import fit_deep",
    "package/deep.py": """
        from . import deeper
        from .deeper import deepest

        def fit_deep(x):
            return deepest(x)
        """,
    "package/deeper.py": """
        import sklearn

        def deepest(x):
            import keras
        """,
    "broken.py": "import keras (",
    "deep.py": "import keras\nx = " + "-" * 100_000 + "1",
    "warns.py": r"""
        import keras
        "\d"
        """,
    "spaces/inner/within.py": "import keras",
    "train_in_file.py": """
        import helpers
        import matplotlib
        import package
        import sys

        def by_module(x):
            return helpers.fit(x)

        def by_package(x):
            return package.fit_deep(x)

        def not_loaded(x):
            import lazy_too
            return lazy_too.train(x)

        def broken(x):
            import broken

        def missing(x):
            import no_such_module

        def deep(x):
            import deep

        def in_namespaces(x):
            from spaces.inner import within

        def with_warnings(x):
            import warns

        def by_a_member_that_comes_later(x):
            helpers.set_up()
            return helpers.fit_later.now(x), helpers.fit(x)
        """,
    "lazy_too.py": """
        import sklearn.svm

        def train(x):
            import keras

        class Model:
            def fit(self):
                import scipy
        """,
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


OF_FILE = {"matplotlib", "pandas", "sklearn"}  # whatever runs when the file is imported


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("by_module", {"keras"}),
        ("by_package", {"keras"}),
        ("not_loaded", {"sklearn.svm", "keras", "scipy"}),
        ("broken", set()),
        ("missing", set()),
        ("deep", set()),
        ("in_namespaces", {"keras"}),
        ("by_a_member_that_comes_later", {"keras"}),
        # Its compilation warns, as its import would; where warnings are errors, neither succeeds.
        pytest.param("with_warnings", {"keras"}, marks=pytest.mark.filterwarnings("ignore")),
    ],
)
def test_a_functions_own_modules_are_followed(files, monkeypatch, name, more):
    train = getattr(importlib.import_module("train_in_file"), name)
    with monkeypatch.context() as patched:
        # Filters of warnings belong to all threads, so none may be changed, not even for a while.
        patched.setattr("warnings.catch_warnings.__enter__", pytest.fail)
        found = set(imports_of(train))
    assert found == OF_FILE | more
    assert "lazy_too" not in sys.modules


def test_a_function_of_an_installed_package_is_followed_too(files):
    installed = files / "site-packages"
    installed.mkdir()
    (files / "lazy_too.py").rename(installed / "lazy_too.py")
    sys.path.insert(0, str(installed))
    try:
        train = importlib.import_module("lazy_too").train
        assert imports_of(train) == ("keras", "sklearn.svm")
    finally:
        sys.path.remove(str(installed))


def test_objects_count_as_the_public_part_of_their_module():
    from sklearn.svm import SVC

    assert imports_of(lambda x: SVC) == ("sklearn.svm",)
    model = SVC()
    assert imports_of(lambda x: model) == ("sklearn.svm",)


def test_packages_that_are_not_installed_are_left_out(monkeypatch):
    def train(x):
        import keras
        import xgboost

        return keras, xgboost, x

    assert "xgboost" in WORTH_IT
    assert imports_of(train) == ("keras",)


def test_nothing_is_imported(tmp_path):
    program = f"""
        import sys
        from experiment.setup.function.imports import imports_of

        def train(x):
            import keras, tensorflow.keras.layers, sklearn.svm
            from torch import nn

        before = set(sys.modules)
        found = imports_of(train)
        print(*found)
        print(*(name for name in {sorted(WORTH_IT)} if name in set(sys.modules) - before))
        """
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    first, second = output.stdout.splitlines()
    assert {"keras", "tensorflow.keras.layers", "sklearn.svm"} <= set(first.split())
    assert second == ""


def test_a_long_chain_of_objects_ends():
    chain = inside
    for _ in range(20_000):
        chain = SimpleNamespace(run=[chain])
    assert isinstance(imports_of(lambda x: chain), tuple)


@pytest.mark.parametrize(
    ("settings", "modules"),
    [
        (Settings(), GUESS),
        (Settings(preload=()), Preload()),
        (Settings(preload=["json"]), Preload(required=("json",))),
        (Settings(isolation="spawn"), GUESS),
        (Settings(isolation="none"), Preload()),
        (Settings(isolation="none", preload=["json"]), Preload()),
    ],
)
def test_a_list_replaces_the_imports_of_the_function(settings, modules):
    assert preload_of(settings, inside) == modules


NASTY = {
    "metaclass": """
        class Meta(type):
            def __getattribute__(cls, name):
                raise RuntimeError(name)
        class Odd(metaclass=Meta):
            pass
        odd = Odd
        """,
    "property": """
        class Odd:
            @property
            def __dict__(self):
                raise SystemExit
        odd = Odd()
        """,
    "module name": """
        import types
        odd = types.ModuleType("odd")
        odd.__name__ = None
        """,
    "lazy module": """
        import types
        class Odd(types.ModuleType):
            def __getattribute__(self, name):
                raise SystemExit
        odd = Odd("odd")
        """,
    "list": """
        class Odd(list):
            def __iter__(self):
                raise SystemExit
        odd = Odd([1])
        """,
    "module of a function": """
        def odd():
            pass
        odd.__module__ = ["no name"]
        """,
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_no_code_of_the_user_runs_and_its_errors_do_no_harm(text):
    names = {"__name__": "__main__"}
    exec(textwrap.dedent(text), names)
    exec("def train(x):\n odd\n import keras", names)
    assert imports_of(names["train"]) == ("keras",)


def test_branches_are_guesses_that_only_tensorflow_and_keras_are_not():
    def train(x):
        if x < 0:
            import pandas
            import tensorflow.keras

            return pandas, tensorflow
        return x

    found = preload_of(Settings(), train)
    assert found == Preload(required=("tensorflow.keras",), guessed=("pandas",))
